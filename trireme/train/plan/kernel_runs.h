// Runs the kernels of models/figures.h on this machine and takes their times. Internal to train.
#pragma once

#include <string>
#include <vector>

#include "trireme/models/figures.h"

namespace trireme::inline v0::train {

/// The kernel with sizes that take at most some 50 ms: the times of larger ones are in proportion to
/// work_of(). Throws CheckFailure for a name that is not known.
models::Kernel sample_of(models::Kernel kernel);
/// The product of its loops' lengths.
double work_of(const models::Kernel& kernel);

struct KernelTimes {
  std::vector<double> seconds;  // of a call of each kernel
  /// The share of the time in which the measuring threads computed: less than 1 where other programs
  /// took their cores. 1 where a kernel has several threads, which is not measured.
  double computing = 1;
};

/// What a call of each takes, forward and backward, with this process's kernel table and threads,
/// while `at_once` threads do the same: cores that compute together share memory and clock. Medians
/// of the runs that fit into 0.1 s, of at least seven. `precision`: train.precision.
KernelTimes run_kernels(const std::vector<models::Kernel>& kernels, const std::string& precision,
                        int at_once);

}  // namespace trireme::inline v0::train
