#include "trireme/testing/emulated_device/copies.h"

#include <cstring>
#include <limits>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {
namespace {

std::vector<Access> accesses_of_copy(const at::Tensor& from, const at::Tensor& to) {
  std::vector<Access> made;
  const auto tracked = [](const at::Tensor& tensor) {
    return is_emulated(tensor) || Runtime::get().is_pinned(tensor.storage().data());
  };
  if (tracked(from)) add_accesses(made, from, false);
  if (tracked(to)) add_accesses(made, to, true);
  return made;
}

std::uint64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * tensor.itemsize(); }

void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  Runtime& runtime = Runtime::get();
  const StreamIndex source = current_stream(from.device().index());
  const StreamIndex target = current_stream(to.device().index());
  if (source != target) runtime.order(target, source);
  CpuAliases aliases;
  runtime.launch(source, {"copy between tensors", accesses_of_copy(from, to),
                          [from = aliases.of(from), to = aliases.of(to)] { to.copy_(from); }});
  if (source != target) runtime.order(source, target);
  runtime.count_copy(&EmulatedStats::copies_on_devices, &EmulatedStats::bytes_on_devices,
                     bytes_of(to));
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Runtime& runtime = Runtime::get();
  const StreamIndex stream = current_stream(to.device().index());
  const bool late = runtime.is_pinned(from.storage().data());
  CpuAliases aliases;
  runtime.launch(stream,
                 {"copy from the host", accesses_of_copy(from, to),
                  [from = late ? from : from.clone(), to = aliases.of(to)] { to.copy_(from); }});
  runtime.count_copy(&EmulatedStats::copies_to_device, &EmulatedStats::bytes_to_device,
                     bytes_of(to));
  if (!non_blocking) runtime.synchronize_stream(stream);
}

/// Fills the memory, unless an operation still uses it.
void poison(const at::Tensor& tensor) {
  const std::vector<ByteRun> runs = byte_runs(tensor, std::numeric_limits<std::size_t>::max());
  for (const ByteRun run : runs)
    if (!Runtime::get().is_settled(run.begin, run.bytes)) return;
  for (const ByteRun run : runs) std::memset(run.begin, kPoisonByte, run.bytes);
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Runtime& runtime = Runtime::get();
  const StreamIndex stream = current_stream(from.device().index());
  const bool late = non_blocking && runtime.is_pinned(to.storage().data());
  CpuAliases aliases;
  Launch copy{"copy to the host", accesses_of_copy(from, to),
              [from = aliases.of(from), to] { to.copy_(from); }};
  if (late) copy.given = [to] { poison(to); };
  runtime.launch(stream, std::move(copy));
  runtime.count_copy(&EmulatedStats::copies_to_host, &EmulatedStats::bytes_to_host, bytes_of(to));
  if (!late) runtime.synchronize_stream(stream);
}

}  // namespace

void copy_tensor(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return;
  for (const at::Tensor& one : {from, to})
    TORCH_CHECK(is_emulated(one) || one.is_cpu(),
                "the emulated device copies to and from the CPU, not ", one.device());
  if (is_emulated(from) && is_emulated(to)) return copy_on_devices(from, to);
  if (is_emulated(to)) return copy_from_host(from, to, non_blocking);
  copy_to_host(from, to, non_blocking);
}

}  // namespace trireme::inline v0::testing
