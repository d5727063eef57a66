#include "trireme/train/report/kernel_profile.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

namespace trireme::inline v0::train {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

}  // namespace

KernelProfile::~KernelProfile() {
  if (running_) profiler::disableProfiler();
}

void KernelProfile::begin() {
  if (path_.empty() || steps_++ != kWarmUp) return;
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device_.kind == DeviceKind::Cuda) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  running_ = true;
}

bool KernelProfile::end(bool last) {
  if (!running_ || (steps_ < kWarmUp + kSteps && !last)) return false;
  if (device_.kind != DeviceKind::Cpu)
    at::accelerator::synchronizeDevice(static_cast<at::DeviceIndex>(device_.index));
  profiler::disableProfiler()->save(path_);
  running_ = false;
  written_ = true;
  return true;
}

}  // namespace trireme::inline v0::train
