#include "trireme/train/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/shortened.h"
#include "trireme/base/words.h"
#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::train {
namespace {

constexpr const char* kGpuFolder = "/proc/driver/nvidia/gpus";
constexpr const char* kDriverVersion = "/sys/module/nvidia/version";
constexpr const char* kCudaBuild = "`make build TORCH=cuda` gets LibTorch's CUDA build";
constexpr std::array<std::string_view, 3> kDeviceKinds{"cuda", "xpu", "hpu"};
constexpr const char* kWithoutFp64 = "mps";  // Apple's GPUs
constexpr const char* kLookAtDriver =
    "Look at the driver (nvidia-smi); train.device = \"cpu\" trains without.";
constexpr const char* kLacksFp64 = "a step sums in fp64, which it does not have";

[[noreturn]] void refuse_device(const std::string& kind, const std::string& what,
                                const std::string& advice) {
  throw ConfigError("train.device = \"" + shortened(kind) + "\": " + what,
                    {.operation = "config", .label = "train.device", .advice = advice});
}

std::string counted_devices(const Devices& devices, int count) {
  return devices.kind == "cuda" ? counted(count, "GPU") : counted(count, devices.kind + " device");
}

// LibTorch's message without its stack.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// Why LibTorch cannot allocate on `device`: no driver, or one that is too old; "" if it can.
std::string why_unusable(at::Device device) {
  try {
    at::zeros({1}, device);
    return "";
  } catch (const c10::Error& error) {
    return first_line(error);
  }
}

// NVIDIA's GPUs by index, also where a container lacks the driver's folder; none without driver.
std::vector<comm::nccl::GpuInfo> gpus_here() {
  try {
    return comm::nccl::list_gpus(*comm::nccl::open_cuda_library());
  } catch (const Error&) {
    return {};
  }
}

// "138 GB free of 141 GB"; "" if the device does not tell.
std::string memory_of(at::DeviceType kind, int index) {
  try {
    const auto [free, total] =
        at::getDeviceAllocator(kind)->getMemoryInfo(static_cast<at::DeviceIndex>(index));
    return bytes_text(static_cast<double>(free)) + " free of " +
           bytes_text(static_cast<double>(total));
  } catch (const c10::Error&) {
    return "";
  }
}

// Throws unless this LibTorch computes on `wanted`, and a step can.
void check_kind(const std::string& wanted, const Devices& devices) {
  const std::string cpu = "train.device = \"cpu\" trains without.";
  if (wanted == kWithoutFp64) refuse_device(wanted, kLacksFp64, cpu);
  if (wanted == devices.kind && devices.in_build) return;
  if (wanted == "cuda")
    refuse_device(wanted, "this LibTorch computes on the CPU alone",
                  std::string(kCudaBuild) + "; " + cpu);
  if (std::find(kDeviceKinds.begin(), kDeviceKinds.end(), wanted) != kDeviceKinds.end())
    refuse_device(wanted, "this LibTorch does not compute on it",
                  "Build Trireme with a LibTorch that does (docs/gpu.md); " + cpu);
  const bool other = devices.in_build && devices.kind != "cpu";
  refuse_device(wanted, "LibTorch knows no such device",
                (other ? "Use auto, cpu or " + devices.kind : std::string("Use auto or cpu")) +
                    "; a rank takes its device by its local rank.");
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
  if (names.empty() || names.front() == '-') return 0;
  // CUDA takes the names before the first that is none, such as "-1".
  const std::string_view shown = names.substr(0, names.find(",-"));
  const auto named = 1 + std::count(shown.begin(), shown.end(), ',');
  return std::min(count, static_cast<int>(named));
}

Devices devices_here() {
  const auto accelerator = at::accelerator::getAccelerator();
  if (accelerator && *accelerator != at::kCUDA)
    return {.kind = c10::DeviceTypeName(*accelerator, /*lower_case=*/true),
            .count = at::accelerator::deviceCount()};
  int gpus = count_gpus(kGpuFolder, [](const char* name) { return std::getenv(name); });
  if (gpus == 0 && accelerator)
    gpus = at::accelerator::deviceCount();  // a container without the folder
  if (!accelerator && gpus == 0) return {};
  return {.kind = "cuda",
          .count = gpus,
          .in_build = accelerator.has_value(),
          .why_none = gpus == 0 ? why_unusable(at::kCUDA) : ""};
}

DeviceChoice choose_device(const std::string& wanted, const Devices& devices, int ranks,
                           int ranks_per_device) {
  if (wanted == "cpu") return {};
  const int needed = (ranks + ranks_per_device - 1) / ranks_per_device;
  const bool enough = needed <= devices.count;
  const int spare = needed < devices.count ? needed : -1;
  if (wanted != "auto") {
    check_kind(wanted, devices);
    if (enough) return {wanted, "", spare};
    if (devices.count == 0 && !devices.why_none.empty())
      refuse_device(wanted, devices.why_none, kLookAtDriver);
    const std::string each = counted(ranks_per_device, "rank");
    refuse_device(
        wanted,
        counted(ranks, "rank") + (ranks == 1 ? " needs " : " need ") +
            counted_devices(devices, needed) + ", with " + each + " on each, but this host has " +
            std::to_string(devices.count),
        devices.count > 0
            ? "Use --ranks " + std::to_string(devices.count * ranks_per_device) +
                  " or fewer, or set train.ranks_per_device; CUDA_VISIBLE_DEVICES hides GPUs."
            : std::string("Use train.device = \"cpu\", or look at CUDA_VISIBLE_DEVICES and "
                          "nvidia-smi."));
  }
  if (devices.count == 0) return {};
  const std::string there = counted_devices(devices, devices.count);
  const std::string idle = there + (devices.count == 1 ? " lies idle: " : " lie idle: ");
  if (!devices.in_build)
    return {"cpu", idle + "this LibTorch computes on the CPU alone (" + kCudaBuild + ")"};
  if (devices.kind == kWithoutFp64) return {"cpu", idle + kLacksFp64};
  if (!enough)
    return {"cpu", idle + "there is none for each of " + counted(ranks, "rank") +
                       " (train.ranks_per_device lets ranks share one)"};
  return {devices.kind,
          counted(ranks, "rank") + (ranks == 1 ? " trains on " : " train on ") +
              counted_devices(devices, needed) +
              (spare > 0 ? " of " + std::to_string(devices.count) : ""),
          spare};
}

std::string describe_auto(const Devices& devices) {
  if (devices.count == 0 && devices.kind == "cpu") return "cpu: there is no device";
  if (devices.count == 0)
    return "cpu: this LibTorch computes on " + devices.kind + ", and sees no device (" +
           (devices.why_none.empty() ? "" : devices.why_none + "; ") +
           "look at the driver, for instance nvidia-smi, and at CUDA_VISIBLE_DEVICES)";
  const DeviceChoice choice = choose_device("auto", devices, devices.count, 1);
  if (choice.kind == "cpu") return "cpu: " + choice.note;
  return choice.kind + " for up to " + counted(devices.count, "rank") +
         " of this host, cpu for more (train.ranks_per_device lets ranks share a device)";
}

DeviceReport report_devices(const Devices& devices) {
  DeviceReport report{.kinds = "cpu"};
  std::getline(std::ifstream(kDriverVersion) >> std::ws, report.driver);
  const auto accelerator = at::accelerator::getAccelerator();
  if (accelerator) report.kinds += ", " + c10::DeviceTypeName(*accelerator, /*lower_case=*/true);
  const auto gpus = devices.kind == "cuda" ? gpus_here() : std::vector<comm::nccl::GpuInfo>();
  for (int index = 0; index < devices.count; ++index) {
    std::string line = devices.kind + ":" + std::to_string(index);
    if (static_cast<std::size_t>(index) < gpus.size()) line += ", " + gpus[index].name;
    const std::string memory = devices.in_build ? memory_of(*accelerator, index) : "";
    report.devices.push_back(memory.empty() ? line : line + ", " + memory);
  }
  return report;
}

void check_products(const std::string& products, const std::string& kind) {
  const bool on_cpu = kind == "cpu";
  if (products == "fp32" || (products == "bf16") == on_cpu) return;
  throw ConfigError(
      "train.products = \"" + products + "\" cannot be combined with train.device = \"" + kind +
          "\"",
      {.operation = "config",
       .label = "train.products",
       .advice = on_cpu ? "Processors have no tf32: use bf16 or fp32." : "Use tf32 or fp32."});
}

void check_graphs(bool graphs, const std::string& kind) {
  if (graphs && kind == "cpu")
    throw ConfigError("train.graphs = true cannot be combined with train.device = \"cpu\"",
                      {.operation = "config",
                       .label = "train.graphs",
                       .advice = "Graphs spare a GPU's host the launch of kernels: leave it out."});
}

void check_transport(const std::string& transport, const std::string& kind, int ranks_per_device) {
  if (transport != "nccl" || (kind == "cuda" && ranks_per_device == 1)) return;
  const std::string with = kind == "cuda"
                               ? "train.ranks_per_device = " + std::to_string(ranks_per_device)
                               : "train.device = \"" + kind + "\"";
  throw ConfigError("comm.transport = \"nccl\" cannot be combined with " + with,
                    {.operation = "config",
                     .label = "comm.transport",
                     .advice = "NCCL joins ranks with a GPU of their own; use auto, shm or tcp."});
}

Device take_device(const std::string& kind, int local_rank, int ranks_per_device) {
  if (kind == "cpu") return {};
  const int index = local_rank / ranks_per_device;
  const std::string name = kind + ":" + std::to_string(index);
  try {
    const int count = at::accelerator::deviceCount();
    if (count > 0 && index >= count)
      refuse_device(kind,
                    "local rank " + std::to_string(local_rank) + " is to take " + name +
                        ", and this process may use " + std::to_string(count),
                    "Start fewer ranks on this host, set train.ranks_per_device, or look at "
                    "CUDA_VISIBLE_DEVICES and the driver.");
    const at::Device device(name);
    at::zeros({1}, device);  // a driver that is missing or too old says so here
    at::accelerator::setDeviceIndex(device.index());
    return tensor::device_of(device);
  } catch (const c10::Error& error) {
    refuse_device(kind, name + " cannot be used: " + first_line(error), kLookAtDriver);
  }
}

Device take_device(const std::string& wanted) {
  return take_device(choose_device(wanted, devices_here(), 1, 1).kind, 0, 1);
}

Device share_device(const std::string& kind, int rank) {
  const int count = kind == "cpu" ? 1 : std::max<int>(1, at::accelerator::deviceCount());
  return take_device(kind, rank % count, 1);
}

std::string describe_devices(const std::string& kind) {
  if (kind != "cuda") return kind;
  std::set<std::string> models;
  std::error_code missing;
  for (std::filesystem::directory_iterator next(kGpuFolder, missing), end; !missing && next != end;
       next.increment(missing)) {
    std::ifstream information(next->path() / "information");
    for (std::string line; std::getline(information, line);)
      if (line.starts_with("Model:")) models.insert(line.substr(line.find_first_not_of(" \t", 6)));
  }
  if (models.empty())
    for (const auto& gpu : gpus_here()) models.insert(gpu.name);
  std::string text = kind;
  for (const std::string& model : models) text.append(", ").append(model);
  return text;
}

std::int64_t gpu_memory() {
  std::int64_t least = 0;
  for (const auto& gpu : gpus_here()) {
    const auto memory = static_cast<std::int64_t>(gpu.memory);
    least = least == 0 ? memory : std::min(least, memory);
  }
  return least;
}

void forget_peaks() {
  try {
    for (c10::DeviceIndex index = 0; index < at::accelerator::deviceCount(); ++index)
      at::accelerator::resetPeakStats(index);
  } catch (const c10::Error&) {  // nobody counts, or nothing has been allocated yet
  }
}

std::int64_t peak_device_bytes(Device device) {
  if (device.kind == DeviceKind::Cpu) return 0;
  try {
    const auto stats = at::accelerator::getDeviceStats(static_cast<at::DeviceIndex>(device.index));
    return stats.allocated_bytes[0].peak;
  } catch (const c10::Error&) {
    return 0;
  }
}

}  // namespace trireme::inline v0::train
