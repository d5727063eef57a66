// The output of `trireme bench comm`: a table for people, or JSON lines. Writes to standard output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/choice/measure.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::cli {

struct BenchReport {
  std::string algorithm = "auto";
  std::string link;              // of a simulated network: "25us,1GB/s"
  std::string memory = "arena";  // or "ordinary", "GPU"
  bool json = false;
};

void print_figures(const comm::Communicator& world, std::string_view collective,
                   const std::vector<comm::Measured>& figures, const BenchReport& report);
/// The all-reduce algorithm that `auto` chooses at each size, and why.
void print_choices(const comm::Communicator& world, const std::vector<std::size_t>& sizes,
                   const BenchReport& report);

}  // namespace trireme::inline v0::cli
