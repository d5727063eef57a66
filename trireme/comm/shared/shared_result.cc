#include "trireme/comm/shared/shared_result.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/slices.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

// For Operation::detail: makes calls with a shared result differ from those without.
constexpr std::uint64_t kSharedDetail = 0x5348415245;

// Maps the same pages a second time, read-only; null if that fails.
std::byte* map_read_only(std::span<std::byte> pages) {
  void* const view = mremap(pages.data(), 0, pages.size(), MREMAP_MAYMOVE);
  if (view == MAP_FAILED) return nullptr;
  mprotect(view, pages.size(), PROT_READ);
  return static_cast<std::byte*>(view);
}

}  // namespace

class SharedResult::Memory {
 public:
  Memory(std::shared_ptr<Engine> engine, std::size_t bytes)
      : engine_(std::move(engine)), region_(engine_->allocate_shared(bytes)) {
    if (region_.shared) view_ = map_read_only(region_.memory);
  }
  ~Memory() {
    if (view_) munmap(view_, region_.memory.size());
    engine_->release(region_);
  }
  Memory(const Memory&) = delete;
  bool shared() const noexcept { return region_.shared; }
  std::span<std::byte> writable() const noexcept { return region_.memory; }
  std::span<const std::byte> bytes() const noexcept {
    return {view_ ? view_ : region_.memory.data(), region_.memory.size()};
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const SharedRegion region_;
  std::byte* view_ = nullptr;
};

std::span<const std::byte> SharedResult::bytes() const noexcept {
  return memory_ ? memory_->bytes() : std::span<const std::byte>();
}

bool SharedResult::shared() const noexcept { return memory_ && memory_->shared(); }

Buffer SharedResult::writable(std::size_t begin, std::size_t count, DType dtype) const {
  return {memory_->writable().data() + begin * size_of(dtype), count, dtype, {}, {}, memory_};
}

namespace {

std::vector<std::size_t> parts_of(std::size_t count, std::size_t width, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<std::size_t> parts;
  for (std::size_t i = 0; i < ranks; ++i) parts.push_back(slice_of(count, width, i, ranks).count);
  return parts;
}

// The call ends when all ranks have written their parts: direct calls do, others need a barrier.
bool add_barrier(Operation& next) {
  if (next.step > 2 || next.algorithm == "direct") return false;
  next.kind = OpKind::Barrier;
  next.algorithm.clear();
  return true;
}

}  // namespace

SharedResult Communicator::allocate_shared(std::size_t bytes) {
  return SharedResult(std::make_shared<SharedResult::Memory>(engine_, bytes));
}

void Communicator::require_room(const SharedResult& out, std::size_t bytes,
                                std::string_view operation) const {
  require(out.memory_ != nullptr && bytes <= out.bytes().size(), operation, [&] {
    return "the shared result holds " + std::to_string(out.bytes().size()) + " bytes, must hold " +
           std::to_string(bytes);
  });
}

void Communicator::require_on_cpu(const Buffer& buffer, std::string_view operation) const {
  require(buffer.device.kind == DeviceKind::Cpu, operation,
          "a result that the ranks of a host share lies in the host's memory, the buffer on a GPU");
}

// The first step: every rank writes its part of the result.
Operation Communicator::shared_step(OpKind kind, OpKind called, const Buffer& in,
                                    const SharedResult& out, std::vector<std::size_t> counts,
                                    const OpOptions& options) const {
  const auto own = counts.begin() + rank();
  Operation operation = operation_of(
      kind, in, std::accumulate(counts.begin(), counts.end(), std::size_t{0}), options);
  operation.algorithm = kind == OpKind::Scatter ? "central" : "pairwise";
  operation.may_be_direct = selection_->may_be_direct(kind, options.algorithm);
  operation.shared = true;
  operation.part_of = called;
  operation.step = 1;
  operation.detail = kSharedDetail;
  operation.in = in;
  operation.out =
      out.writable(std::accumulate(counts.begin(), own, std::size_t{0}), *own, in.dtype);
  operation.counts = std::move(counts);
  operation.next = add_barrier;
  return operation;
}

Work Communicator::all_reduce_shared(Buffer in, const SharedResult& out, ReduceOp op,
                                     const OpOptions& options) {
  require_reducible(in.dtype, op, "all_reduce_shared");
  require_on_cpu(in, "all_reduce_shared");
  require_room(out, in.bytes(), "all_reduce_shared");
  if (!out.shared() || in.count == 0) {
    const Buffer own = out.writable(0, in.count, in.dtype);
    if (in.count > 0) std::memcpy(own.data, in.data, in.bytes());
    return all_reduce(own, op, options);
  }
  Operation operation = shared_step(OpKind::ReduceScatter, OpKind::AllReduce, in, out,
                                    parts_of(in.count, size_of(in.dtype), size()), options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  return engine_->submit(std::move(operation), options.deadline);
}

Work Communicator::broadcast_shared(Buffer in, const SharedResult& out, int root,
                                    const OpOptions& options) {
  require_root(root, "broadcast_shared");
  require_on_cpu(in, "broadcast_shared");
  require_room(out, in.bytes(), "broadcast_shared");
  if (!out.shared() || in.count == 0) {
    const Buffer own = out.writable(0, in.count, in.dtype);
    if (in.count > 0 && rank() == root) std::memcpy(own.data, in.data, in.bytes());
    return broadcast(own, root, options);
  }
  Operation operation = shared_step(OpKind::Scatter, OpKind::Broadcast, in, out,
                                    parts_of(in.count, size_of(in.dtype), size()), options);
  if (rank() != root) operation.in = {};
  operation.root = root;
  return engine_->submit(std::move(operation), options.deadline);
}

Work Communicator::all_gather_shared(Buffer in, const SharedResult& out, const OpOptions& options) {
  const auto ranks = static_cast<std::size_t>(size());
  require_on_cpu(in, "all_gather_shared");
  require_room(out, in.bytes() * ranks, "all_gather_shared");
  if (!out.shared() || in.count == 0) {
    return all_gather(in, out.writable(0, in.count * ranks, in.dtype), options);
  }
  Operation operation = shared_step(OpKind::AllGather, OpKind::AllGather, in, out,
                                    std::vector<std::size_t>(ranks, in.count), options);
  operation.algorithm = "direct";  // always possible: no rank reads another's memory
  return engine_->submit(std::move(operation), options.deadline);
}

}  // namespace trireme::inline v0::comm
