// Tuning: what was measured of collectives on a machine, and which algorithm follows from it.
//
// Written by `trireme bench comm --tune`, read by comm (`comm.algorithm = auto`) and by the
// planner. Where a size was not measured, times are interpolated between its neighbours (log-log:
// in both the latency-bound and the bandwidth-bound part time is a power of size); where a rank
// count was not measured, the cost formula with the link's α, β, γ stands in. Plain values; const
// methods are thread safe.
//
// α–β–γ: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005, section 2.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

/// Seconds. A round in which a rank sends m messages of b bytes in all and adds a bytes takes
/// m·alpha + b·beta + a·gamma.
struct LinkCost {
  double alpha = 0;  // per message
  double beta = 0;   // per byte sent
  double gamma = 0;  // per byte added
};

/// What one rank of an algorithm does on its longest way, as multiples of messages and of the
/// buffer's size.
struct CostShape {
  int rounds = 0;       // one after the other
  double messages = 0;  // sum over rounds of the most that any rank sends
  double sent = 0;      // likewise, in buffers
  double added = 0;     // likewise
  double seconds(const LinkCost& link, double bytes) const noexcept {
    return messages * link.alpha + bytes * (sent * link.beta + added * link.gamma);
  }
};

struct Measurement {
  std::string collective, algorithm, transport;  // "all_reduce", "ring", "tcp"
  int ranks = 0;
  std::size_t bytes = 0;
  double seconds = 0;  // median
};

class Tuning {
 public:
  std::string machine;                                 // "Intel Xeon …, 2 cores": for people
  std::map<std::string, LinkCost, std::less<>> links;  // by transport

  void add(Measurement measurement);
  const std::vector<Measurement>& measurements() const noexcept { return measured_; }

  /// Seconds of one algorithm at `bytes`; nothing where the rank count was not measured. Beyond the
  /// measured sizes: the nearest one's, scaled by the size above the largest.
  std::optional<double> seconds(std::string_view collective, std::string_view algorithm,
                                std::string_view transport, int ranks, std::size_t bytes) const;

  /// ConfigError naming `path` and the line where the text is no TOML, of another version, or has a
  /// value that cannot be.
  static Tuning from_toml(std::string_view text, const std::string& path);
  std::string to_toml() const;

 private:
  std::vector<Measurement> measured_;  // sorted by everything but the seconds
};

/// α, β, γ of a transport before anything was measured: a machine of 2025, one host.
LinkCost typical_link(std::string_view transport) noexcept;

/// TRIREME_TUNING, else $XDG_CONFIG_HOME/trireme/tuning.toml, else ~/.config/trireme/tuning.toml;
/// empty where none of these variables is set.
std::string tuning_path();

}  // namespace plan
}  // namespace v0
}  // namespace trireme
