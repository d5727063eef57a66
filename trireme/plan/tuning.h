// Tuning: measured times of collectives on a machine, from which the fastest algorithm is chosen.
//
// Written by `trireme bench comm --tune`, read by comm (`comm.algorithm = auto`) and by the
// planner. Between measured sizes, times are interpolated (log-log: both in the latency-bound and
// in the bandwidth-bound range, time is a power of size). For rank counts that were not measured,
// the cost formula with the link's alpha, beta, gamma is used. Plain values; const methods are
// thread safe.
//
// The alpha-beta-gamma model: Thakur, Rabenseifner, Gropp, "Optimization of Collective
// Communication Operations in MPICH", 2005, section 2.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::plan {

/// In seconds. A round in which a rank sends m messages of b bytes in all and adds a bytes takes m
/// * alpha + b * beta + a * gamma.
struct LinkCost {
  double alpha = 0;  // per message
  double beta = 0;   // per byte sent
  double gamma = 0;  // per byte added
};

/// The cost of an algorithm's critical path, in multiples of messages and of the buffer's size.
struct CostShape {
  int rounds = 0;       // sequential rounds
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
  std::string machine;                                 // "Intel Xeon ..., 2 cores": for people
  std::map<std::string, LinkCost, std::less<>> links;  // by transport

  void add(Measurement measurement);
  const std::vector<Measurement>& measurements() const noexcept { return measured_; }

  /// The seconds of one algorithm at `bytes`; nullopt if the rank count was not measured. Below the
  /// smallest measured size: its time; above the largest: its time scaled by size.
  std::optional<double> seconds(std::string_view collective, std::string_view algorithm,
                                std::string_view transport, int ranks, std::size_t bytes) const;

  /// ConfigError naming `path` and the line if the text is not TOML, has another version, or
  /// contains an invalid value.
  static Tuning from_toml(std::string_view text, const std::string& path);
  std::string to_toml() const;

 private:
  std::vector<Measurement> measured_;  // sorted by all fields but seconds
};

/// Typical alpha, beta, gamma of a transport without measurements: a machine of 2025, one host.
LinkCost typical_link(std::string_view transport) noexcept;

/// TRIREME_TUNING, else $XDG_CONFIG_HOME/trireme/tuning.toml, else ~/.config/trireme/tuning.toml;
/// empty if none of these variables is set.
std::string tuning_path();

}  // namespace trireme::inline v0::plan
