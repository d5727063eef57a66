// Chooser: the algorithm that `auto` takes for a collective. It uses measured times if there are
// any (plan::Tuning), else the alpha-beta-gamma cost of the algorithm's routes.
//
// The choice depends only on the call, the group and the measured times, which are equal on all
// ranks, so they agree without a message. Sizes are rounded up to a power of two. Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::comm {

struct Candidate {
  std::string algorithm;
  double seconds = 0;
  bool measured = false;  // else from the formula
};

class Chooser {
 public:
  struct Group {
    int size = 1;
    std::string transport;
    bool can_map = false;      // ranks can map one another's arenas: "direct" is possible
    std::vector<int> hosts{};  // as Algorithm::host_of_rank
    std::shared_ptr<const plan::Tuning> tuning{};
  };
  explicit Chooser(Group group) : group_(std::move(group)) {}

  /// The name of the chosen algorithm. `total`: the leaves of a sum, else 1. `wide`: partial sums
  /// take twice the bytes (16-bit floats are added in fp32).
  const std::string& choose(OpKind kind, std::size_t bytes, std::uint32_t total,
                            bool wide = false) const;
  /// The algorithms that could run it: measured ones first, then the others, each fastest first.
  /// Algorithms that a program registered are candidates only if they have been measured.
  std::vector<Candidate> candidates(OpKind kind, std::size_t bytes, std::uint32_t total,
                                    bool wide = false) const;
  /// "all_reduce of 1 MiB on 4 ranks over tcp: ring (1.2 ms by the formula); then tree (3.1 ms by
  /// the formula), ...; alpha 30 us, beta 0.5 ns/B, gamma 0.1 ns/B, typical values".
  std::string explain(OpKind kind, std::size_t bytes, std::uint32_t total) const;

 private:
  const std::string& decide(OpKind kind, std::size_t bytes, std::uint32_t total, bool wide) const;
  const Group group_;
  static constexpr std::size_t kKinds = 16, kSizes = 65;
  // Choices for total == size, by wide, kind and bit width of the rounded size: no lock needed.
  using Known = std::array<std::array<std::atomic<const std::string*>, kSizes>, kKinds>;
  mutable std::array<Known, 2> known_{};
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<OpKind, std::size_t, std::uint32_t, bool>, std::string> chosen_;
};

/// The text of a tuning table; empty if there is no such file.
std::string read_tuning_file(const std::string& path);
/// The text of the table at plan::tuning_path(). If TRIREME_TUNING names one that cannot be read, a
/// warning says so, once in a process.
std::string read_tuning_file();
/// Null for an empty text; ConfigError, naming `path`, if it cannot be parsed.
std::shared_ptr<const plan::Tuning> parse_tuning(std::string_view text,
                                                 const std::string& path = plan::tuning_path());

}  // namespace trireme::inline v0::comm
