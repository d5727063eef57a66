#include "trireme/train/device.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::train {
namespace {

constexpr const char* kCudaBuild = "`make build TORCH=cuda` gets LibTorch's CUDA build";

[[noreturn]] void refuse_device(const std::string& what, const std::string& advice) {
  std::string message = "train.device = \"cuda\": ";
  throw ConfigError(message.append(what), {.operation = "config", .advice = advice});
}

}  // namespace

int count_gpus(const std::string& folder,
               const std::function<const char*(const char*)>& environment) {
  int count = 0;
  std::error_code missing;
  for (std::filesystem::directory_iterator next(folder, missing), end; !missing && next != end;
       next.increment(missing))
    ++count;
  const char* visible = environment("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return count;
  const std::string_view names(visible);
  if (names.empty() || names.front() == '-') return 0;  // "-1" hides all
  const auto named = 1 + std::count(names.begin(), names.end(), ',');
  return std::min(count, static_cast<int>(named));
}

Devices devices_here() {
  return {.gpus = count_gpus("/proc/driver/nvidia/gpus",
                             [](const char* name) { return std::getenv(name); }),
          .cuda_build = at::hasCUDA()};
}

std::string choose_device(const std::string& wanted, const Devices& devices, int ranks) {
  const std::string there = counted(devices.gpus, "GPU");
  if (wanted == "cuda") {
    if (!devices.cuda_build)
      refuse_device("this LibTorch computes on the CPU alone",
                    std::string(kCudaBuild) + "; train.device = \"cpu\" trains without.");
    if (devices.gpus < ranks)
      refuse_device(counted(ranks, "rank") + " for " + there + " on this host (" +
                        std::to_string(ranks) + " > " + std::to_string(devices.gpus) +
                        "); a rank takes one",
                    devices.gpus > 0 ? "Use --ranks " + std::to_string(devices.gpus) +
                                           " or fewer, or look at CUDA_VISIBLE_DEVICES."
                                     : std::string("Use train.device = \"cpu\", or look at "
                                                   "CUDA_VISIBLE_DEVICES and nvidia-smi."));
    refuse_device("training on GPUs is not in this release",
                  "Use train.device = \"cpu\" (docs/gpu.md).");
  }
  if (wanted != "auto" || devices.gpus == 0) return "";
  std::string line = there;
  line.append(devices.gpus == 1 ? " lies idle: " : " lie idle: ");
  if (devices.cuda_build)
    return line.append("training on GPUs is not in this release (docs/gpu.md)");
  return line.append("this LibTorch computes on the CPU alone (").append(kCudaBuild).append(")");
}

}  // namespace trireme::inline v0::train
