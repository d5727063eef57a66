// train.device: checks the device before anything starts. This release runs on the CPU only
// (docs/gpu.md), so this refuses "cuda" and reports GPUs that stay idle.
#pragma once

#include <functional>
#include <string>

namespace trireme::inline v0::train {

struct Devices {
  int gpus = 0;             // GPUs of this host that this process may use
  bool cuda_build = false;  // this LibTorch has CUDA
};
/// The devices of this machine.
Devices devices_here();
/// Counts the driver's GPUs (one folder each in `folder`), at most those of CUDA_VISIBLE_DEVICES.
int count_gpus(const std::string& folder,
               const std::function<const char*(const char*)>& environment);

/// Checks train.device = `wanted` for `ranks` ranks on this host. Returns a line to print, or "".
/// Throws ConfigError if the device cannot be used.
std::string choose_device(const std::string& wanted, const Devices& devices, int ranks);

}  // namespace trireme::inline v0::train
