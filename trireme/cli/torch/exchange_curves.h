// ExchangeCurves: the time of an exchange through parameter servers and by all-reduce over workers,
// predicted, simulated and measured (exchange_times.h). `trireme bench server` prints and draws it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/torch/exchange_times.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::cli {

struct ExchangePoint {
  ExchangeWay way;
  int workers = 1;
  std::string source;  // "predicted", "simulated", "measured"
  double seconds = 0;
};

struct ExchangeCurves {
  plan::LinkCost link;
  std::size_t bytes = 1 << 20;  // of the model
  std::vector<ExchangePoint> points;

  /// Adds predicted and simulated points.
  void add(const std::vector<ExchangeWay>& ways, const std::vector<int>& workers);
  /// JSON lines: the link, then one point per line.
  std::string to_json() const;
  /// Reads the link, the bytes and the measured points from such lines. ConfigError naming `path`.
  static ExchangeCurves measured_in(std::string_view json, const std::string& path);
  std::string to_text() const;
  /// Seconds over workers, as SVG.
  std::string draw() const;
};

}  // namespace trireme::inline v0::cli
