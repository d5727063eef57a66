// Supervisor: one launch from the first process to the last; see launch.h for what it promises.
//
// Everything but the constructor and run() happens in its Waiter's progress context.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/real_waiter.h"
#include "trireme/launch/coordinator.h"
#include "trireme/launch/guard.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/sources.h"
#include "trireme/launch/status_page.h"

namespace trireme {
inline namespace v0 {
namespace launch {

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options);
  ~Supervisor();
  LaunchResult run();

 private:
  struct Rank {
    pid_t pid = -1;
    std::atomic<bool> ended{false};  // `exit` is set and dealt with
    std::optional<Exit> exit;
    std::unique_ptr<StatusPage> status;
  };

  std::string make_secret(bool& inherited);
  void start_all();
  void start_rank(int rank, int secret, const CoreShare& share);
  std::vector<std::string> environment_of(int rank, int secret, int status,
                                          const CoreShare& share) const;
  void add(std::shared_ptr<DescriptorSource> source);
  void add_pipe(int rank, bool error, int descriptor);

  void on_exit(int rank, Exit exit);
  void on_reported(const Failure& failure);
  void on_signal(int signal);
  void suspend();
  bool stopped_as_asked(const Exit& exit) const;
  Failure failure_of(int rank, const Exit& exit) const;
  /// The job is lost: the others are told, then asked, then killed.
  void end_all(bool secondary);
  void kill_after(Duration delay, int signal);
  void kill_all(int signal);
  bool all_ended() const;
  bool output_finished() const;
  LaunchResult result() const;

  const LaunchOptions& options_;
  const std::string host_;
  Guard guard_;                            // the first: the less there is, the smaller its copy
  std::shared_ptr<SignalSource> signals_;  // before any thread: it blocks the signals
  std::unique_ptr<Output> output_;
  std::shared_ptr<RealWaiter> waiter_;
  std::string secret_;
  bool secret_inherited_ = true;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Rank> ranks_;  // never resized
  std::vector<std::shared_ptr<LineSource>> pipes_;
  int stop_signal_ = 0;
  bool out_of_time_ = false;
  bool ending_ = false;   // end_all() was called
  bool killing_ = false;  // a signal of ours may be what ends a rank
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
