// train.device: where tensors live, decided before anything starts. This release's kernels are the
// CPU's (docs/gpu.md), so "cpu" is what runs; this says what else was asked for, or lies idle.
#pragma once

#include <functional>
#include <string>

namespace trireme {
inline namespace v0 {
namespace train {

struct Devices {
  int gpus = 0;             // of this host that this process may use
  bool cuda_build = false;  // LibTorch computes on them
};
/// Those of this machine.
Devices devices_here();
/// The driver's GPUs (a folder each in `folder`), or fewer where CUDA_VISIBLE_DEVICES names fewer.
int count_gpus(const std::string& folder,
               const std::function<const char*(const char*)>& environment);

/// What `train.device` comes to for so many ranks of this host: a line for people, or "" where
/// nothing is to be said. ConfigError where it cannot be.
std::string choose_device(const std::string& wanted, const Devices& devices, int ranks);

}  // namespace train
}  // namespace v0
}  // namespace trireme
