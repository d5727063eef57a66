// Coordinator: the launcher's side of the control plane (gRPC, one per job).
//
// Lives in the launcher's process and listens on loopback, on a port that the system chooses. A
// bind elsewhere needs a secret of the user's, since ranks on other hosts inherit no descriptor.
// All methods are thread safe; callbacks come on gRPC's threads and must not block. The destructor
// answers every open call and stops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/launch/membership.h"

namespace trireme {
inline namespace v0 {
namespace launch {

struct CoordinatorOptions {
  int size = 1;
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: the system's choice
  std::string secret;      // empty: allowed on no address
  std::string job = "job";
  std::uint32_t epoch = 0;
  std::string version = {};  // empty: kWireVersion
  /// Nobody else sees processes end: a rank whose stream of news breaks off is lost.
  bool lost_with_stream = false;
  /// A rank told that it failed, before its process has ended.
  std::function<void(const Failure&)> on_failure = {};
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  /// What the destructor does; no callback comes afterwards, and the methods still work.
  void close();

  /// "127.0.0.1:40123", "[::1]:40123".
  const std::string& endpoint() const noexcept;
  void set_process(int rank, pid_t pid);
  /// The process of `rank` is gone; calls that wait for it fail.
  void end(int rank);
  /// Records a failure and, unless it is the consequence of another, tells all ranks at once.
  void fail(Failure failure);
  /// Tells all ranks the first failure (fail() keeps secondary ones back).
  void announce_failure();
  std::optional<Failure> first_failure() const;
  /// 2 or 15: every rank's stop_signal() becomes 130 or 143.
  void request_stop(int signal);
  /// This process was stopped for a while: silence of that time counts for nothing.
  void forgive_silence();
  bool has_joined(int rank) const;
  /// Some rank has not left yet, nor ended, nor been silent for `silence`.
  bool awaits_anybody(Duration silence) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
