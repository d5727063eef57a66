#include "trireme/tensor/allocation.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::tensor {
namespace {

// Reading what is left from /proc takes time, so only large allocations are checked.
constexpr std::size_t kLarge = std::size_t{256} << 20;

// The bytes that this process can still use.
std::int64_t bytes_left() {
  return std::min(observe::memory_available() + observe::swap_available(), observe::memory_left());
}

class NamedAllocator final : public c10::Allocator {
 public:
  explicit NamedAllocator(c10::Allocator* inner) : inner_(inner) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes >= kLarge && observe::memory_total() > 0 &&
        bytes > static_cast<std::size_t>(bytes_left()))
      refuse(bytes);
    try {
      return inner_->allocate(bytes);
    } catch (const c10::Error&) {
      refuse(bytes);
    }
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return inner_->is_simple_data_ptr(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    inner_->copy_data(to, from, count);
  }

 private:
  [[noreturn]] static void refuse(std::size_t bytes) {
    refuse_allocation("a tensor of " + bytes_text(static_cast<double>(bytes)));
  }
  c10::Allocator* const inner_;
};

}  // namespace

void name_allocation_failures() {
  static const bool once = [] {
    c10::SetCPUAllocator(new NamedAllocator(c10::GetCPUAllocator()));  // LibTorch keeps it
    return true;
  }();
  static_cast<void>(once);
}

void refuse_allocation(const std::string& what) {
  throw ResourceError(
      "no memory for " + what + ": " + bytes_text(static_cast<double>(bytes_left())) +
          " are left on this machine or in its control group",
      {.operation = "allocate",
       .advice = "Use a smaller model or batch.micro, memory.offload or more ranks (`trireme plan` "
                 "says what takes how much), and check ulimit -v."});
}

}  // namespace trireme::inline v0::tensor
