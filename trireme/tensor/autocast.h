// Autocast: while it lives, this thread's LibTorch operations run in bf16 or fp16 where that is
// safe, as under torch.autocast. Scopes nest. Needs no Job.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace trireme::inline v0 {

class Autocast {
 public:
  explicit Autocast(c10::DeviceType device = c10::DeviceType::CPU,
                    c10::ScalarType type = c10::ScalarType::BFloat16, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType was_type_;
};

}  // namespace trireme::inline v0
