// The times of the kernels of models/figures.h on this machine. KernelSpeeds says what a call of
// each takes, for the plan's step time. Known times are in a file of the user's cache folder;
// others are measured once, before the first step, and written there. Not thread safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/models/figures.h"

namespace trireme::inline v0::train {

struct Settings;

/// The kernel with sizes that take at most about 50 ms; times of larger ones are in proportion to
/// work_of(). Throws CheckFailure for an unknown name.
models::Kernel sample_of(models::Kernel kernel);
/// The product of its loops' lengths.
double work_of(const models::Kernel& kernel);

struct KernelTimes {
  std::vector<double> seconds;  // of a call of each kernel
  /// The share of the time in which the measuring threads computed: less than 1 where other
  /// programs took their cores. 1 where a kernel has several threads, which is not measured.
  double computing = 1;
};

/// The time of a call of each, forward and backward, with this process's kernel table and threads,
/// while `at_once` threads do the same, since cores share memory and clock. Medians of the runs
/// that fit into 0.1 s, at least seven. `precision`: train.precision.
KernelTimes run_kernels(const std::vector<models::Kernel>& kernels, const std::string& precision,
                        int at_once);

class KernelSpeeds {
 public:
  using Measure = std::function<KernelTimes(const std::vector<models::Kernel>& samples)>;
  /// `machine` is one line with all that decides a time; it chooses the file in `folder`. No file
  /// is used if `folder` is empty, and a file of another machine or with a wrong line is ignored.
  /// `notice` is called before the first measurement.
  KernelSpeeds(const std::string& folder, std::string machine, Measure measure,
               std::function<void()> notice);

  /// Seconds of all calls of `kernels`.
  double seconds(const std::vector<models::Kernel>& kernels);
  /// Writes the measured times. If other programs took a tenth of the time, a valid file stays as
  /// it is, and a new one is marked; the next plan then measures again. It also does so if the
  /// folder cannot be written.
  void save() const;
  /// For people: "kernels as measured on this machine, in /home/me/.cache/trireme/...".
  std::string source() const;

 private:
  const std::string machine_;
  std::string path_;
  const Measure measure_;
  const std::function<void()> notice_;
  std::map<std::string, double> known_;  // seconds by name and sizes
  bool kept_ = false;                    // known_ began with a file's
  bool measured_ = false;
  double computing_ = 1;  // least KernelTimes::computing
};

/// $XDG_CACHE_HOME/trireme, else ~/.cache/trireme; empty if neither variable is set.
std::string cache_folder();
/// Speeds while this many ranks or lanes compute on this machine, as far as it has cores for them.
/// Sets this process up as a rank.
KernelSpeeds speeds_here(const Settings& settings, int at_once, std::function<void()> notice);

}  // namespace trireme::inline v0::train
