#include "trireme/train/plan/kernel_speeds.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "trireme/base/sha256.h"
#include "trireme/observe/machine.h"
#include "trireme/tensor/processor.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::train {
namespace {

namespace fs = std::filesystem;

std::string key_of(const models::Kernel& kernel) {
  std::string key = kernel.name;
  for (const std::int64_t size : kernel.sizes) key += " " + std::to_string(size);
  return key;
}

// Empty unless every line is right.
std::map<std::string, double> read(const std::string& path, const std::string& machine) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != machine) return {};
  std::map<std::string, double> known;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    double seconds = 0;
    std::string key;
    if (!(words >> seconds) || !std::getline(words >> std::ws, key) || !std::isfinite(seconds) ||
        seconds <= 0)
      return {};
    known[key] = seconds;
  }
  return known;
}

bool disturbed(double computing) { return computing < 0.9; }

}  // namespace

KernelSpeeds::KernelSpeeds(const std::string& folder, std::string machine, Measure measure,
                           std::function<void()> notice)
    : machine_(std::move(machine)), measure_(std::move(measure)), notice_(std::move(notice)) {
  if (folder.empty()) return;
  Sha256 hash;
  hash.update(machine_);
  path_ = folder + "/kernels-" + hash.hex().substr(0, 12) + ".txt";
  known_ = read(path_, machine_);
  kept_ = !known_.empty();
}

double KernelSpeeds::seconds(const std::vector<models::Kernel>& kernels) {
  std::vector<models::Kernel> unknown;
  for (const models::Kernel& kernel : kernels)
    if (known_.emplace(key_of(sample_of(kernel)), 0).second) unknown.push_back(sample_of(kernel));
  if (!unknown.empty()) {
    if (!std::exchange(measured_, true)) notice_();
    const KernelTimes times = measure_(unknown);
    for (std::size_t i = 0; i < unknown.size(); ++i) known_[key_of(unknown[i])] = times.seconds[i];
    computing_ = std::min(computing_, times.computing);
  }
  double sum = 0;
  for (const models::Kernel& kernel : kernels) {
    const models::Kernel sample = sample_of(kernel);
    sum += kernel.calls * known_.at(key_of(sample)) * work_of(kernel) / work_of(sample);
  }
  return sum;
}

void KernelSpeeds::save() const {
  if (!measured_ || path_.empty() || (kept_ && disturbed(computing_))) return;
  std::error_code failed;
  fs::create_directories(fs::path(path_).parent_path(), failed);
  const std::string own = path_ + "." + std::to_string(::getpid());
  std::ofstream file(own);
  file << (disturbed(computing_) ? "disturbed: " : "") << machine_ << "\n";
  for (const auto& [kernel, seconds] : known_) file << seconds << " " << kernel << "\n";
  file.close();
  if (file) fs::rename(own, path_, failed);
  fs::remove(own, failed);
}

std::string KernelSpeeds::source() const {
  if (disturbed(computing_))
    return "kernels as measured while other programs took " +
           std::to_string(std::lround(100 * (1 - computing_))) +
           " % of the time: the next plan measures again";
  return "kernels as measured on this machine" + (path_.empty() ? "" : ", in " + path_);
}

std::string cache_folder() {
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", "/trireme"}, {"HOME", "/.cache/trireme"}})
    if (const char* folder = std::getenv(variable); folder != nullptr && *folder == '/')
      return std::string(folder) + below;
  return {};
}

KernelSpeeds speeds_here(const Settings& settings, int at_once, std::function<void()> notice) {
  set_up_process(settings);
  const int cores = observe::usable_cores().usable / settings.kernel_threads;
  at_once = std::clamp(at_once, 1, std::max(cores, 1));
  const std::string& precision = settings.strategy.precision;
  std::ostringstream machine;
  machine << observe::processor_name() << "; " << tensor::describe_processor() << "; "
          << tensor::describe(tensor::kernel_table()) << "; fp32 products in " << settings.products
          << "; " << precision << "; threads " << settings.kernel_threads << "; at a time "
          << at_once;
  return {cache_folder(), machine.str(),
          [=](const std::vector<models::Kernel>& samples) {
            return run_kernels(samples, precision, at_once);
          },
          std::move(notice)};
}

}  // namespace trireme::inline v0::train
