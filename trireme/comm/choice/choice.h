// Which algorithm runs a collective where the caller did not say: measured times where there are
// some (plan::Tuning), else the α–β–γ formula over the algorithm's own routes.
//
// The answer depends on nothing but the call, the group and the table, all equal on every rank, so
// ranks agree without a message; sizes are rounded up to a power of two. Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct Candidate {
  std::string algorithm;
  double seconds = 0;
  bool measured = false;  // else by formula
};

class Chooser {
 public:
  struct Group {
    int size = 1;
    std::string transport;
    bool can_map = false;      // ranks reach one another's arenas: "direct" is possible
    std::vector<int> hosts{};  // as Algorithm::host_of_rank
    std::shared_ptr<const plan::Tuning> tuning{};
  };
  explicit Chooser(Group group) : group_(std::move(group)) {}

  /// The name of the algorithm; total: leaves of a sum, else 1; wide: partial sums take twice the
  /// bytes (16-bit floats, added in fp32).
  const std::string& choose(OpKind kind, std::size_t bytes, std::uint32_t total,
                            bool wide = false) const;
  /// Those that could run it: the measured ones first, each sort fastest first. Algorithms that a
  /// program registered itself take part once they were measured.
  std::vector<Candidate> candidates(OpKind kind, std::size_t bytes, std::uint32_t total,
                                    bool wide = false) const;
  /// "all_reduce of 1 MiB on 4 ranks over tcp: ring, 1.2 ms by the formula (…); tree 3.1 ms, …".
  std::string explain(OpKind kind, std::size_t bytes, std::uint32_t total) const;

 private:
  const std::string& decide(OpKind kind, std::size_t bytes, std::uint32_t total, bool wide) const;
  const Group group_;
  static constexpr std::size_t kKinds = 16, kSizes = 65;
  // total == size, by wide, kind and bit width: no lock in the common case.
  using Known = std::array<std::array<std::atomic<const std::string*>, kSizes>, kKinds>;
  mutable std::array<Known, 2> known_{};
  mutable std::mutex mutex_;
  mutable std::deque<std::string> names_;  // addresses stay
  mutable std::map<std::tuple<OpKind, std::size_t, std::uint32_t, bool>, const std::string*>
      chosen_;
};

/// The text of the file at plan::tuning_path(); empty where there is none.
std::string read_tuning_file();
/// Null for an empty text; ConfigError where it is broken.
std::shared_ptr<const plan::Tuning> parse_tuning(std::string_view text);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
