#include "trireme/testing/emulated_device/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"

namespace trireme::inline v0::testing {

EmulatedGenerator::EmulatedGenerator(int device)
    : c10::GeneratorImpl(emulated_device(device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      cpu_(at::detail::createCPUGenerator()),
      last_{Runtime::get().default_stream(device), 0} {}

StreamPoint EmulatedGenerator::launch(StreamIndex stream, Launch work) {
  const std::lock_guard lock(launch_mutex_);
  work.after.push_back(last_);
  return last_ = Runtime::get().launch(stream, std::move(work));
}

void EmulatedGenerator::settle() const {
  const StreamPoint last = [this] {
    const std::lock_guard lock(launch_mutex_);
    return last_;
  }();
  Runtime::get().wait(last);
}

void EmulatedGenerator::set_current_seed(std::uint64_t seed) {
  settle();
  cpu_.set_current_seed(seed);
}

void EmulatedGenerator::set_offset(std::uint64_t offset) {
  settle();
  cpu_.set_offset(offset);
}

std::uint64_t EmulatedGenerator::get_offset() const {
  settle();
  return cpu_.get_offset();
}

std::uint64_t EmulatedGenerator::current_seed() const {
  settle();
  return cpu_.current_seed();
}

std::uint64_t EmulatedGenerator::seed() {
  settle();
  return cpu_.seed();
}

void EmulatedGenerator::set_state(const c10::TensorImpl& state) {
  settle();
  cpu_.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> EmulatedGenerator::get_state() const {
  settle();
  return cpu_.unsafeGetGeneratorImpl()->get_state();
}

EmulatedGenerator* EmulatedGenerator::clone_impl() const {
  settle();
  auto* const copy = new EmulatedGenerator(device().index());
  copy->cpu_ = cpu_.clone();
  return copy;
}

const at::Generator& default_generator(int device) {
  static auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>();
    for (int i = 0; i < Runtime::get().num_devices(); ++i)
      made->push_back(at::make_generator<EmulatedGenerator>(i));
    return made;
  }();
  return (*generators)[device_or_current(device)];
}

EmulatedGenerator& emulated_generator(const at::Generator& generator) {
  auto* const own = dynamic_cast<EmulatedGenerator*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(own, "an operation of the emulated device is given a generator of ",
              generator.device());
  return *own;
}

}  // namespace trireme::inline v0::testing
