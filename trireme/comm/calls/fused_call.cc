#include "trireme/comm/calls/fused_call.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/scratch.h"

namespace trireme::inline v0::comm {
namespace {

// Buffers of one type that are reduced in one step.
struct Bundle {
  DType dtype = DType::F32;
  std::size_t count = 0;
  std::vector<Buffer> parts;
  std::string algorithm;
};

std::vector<Bundle> bundles_of(std::span<const Buffer> buffers) {
  std::vector<Bundle> bundles;
  std::vector<std::size_t> open;  // indices of bundles that are not full
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    const bool alone = buffer.bytes() >= kFuseBelow;
    const auto fits = [&](std::size_t i) {
      return bundles[i].dtype == buffer.dtype &&
             (bundles[i].count + buffer.count) * size_of(buffer.dtype) <= kFusedBytes;
    };
    const auto found = std::find_if(open.begin(), open.end(), fits);
    if (alone || found == open.end()) {
      if (!alone) open.push_back(bundles.size());
      bundles.push_back({buffer.dtype, buffer.count, {buffer}, {}});
    } else {
      bundles[*found].count += buffer.count;
      bundles[*found].parts.push_back(buffer);
    }
  }
  return bundles;
}

// One step per bundle: pack, all_reduce, unpack.
class FusedCall {
 public:
  FusedCall(std::vector<Bundle> bundles, ReduceOp op, int rank, int size, std::uint64_t detail)
      : bundles_(std::move(bundles)), op_(op), rank_(rank), size_(size), detail_(detail) {
    std::size_t most = 0;
    for (const Bundle& bundle : bundles_) {
      if (bundle.parts.size() > 1) most = std::max(most, bundle.count * size_of(bundle.dtype));
    }
    if (most > 0) packed_ = aligned_bytes(most);
  }

  bool next(Operation& operation) {
    if (done_ > 0) unpack(bundles_[done_ - 1]);
    if (done_ == bundles_.size()) return false;
    fill(bundles_[done_++], operation);
    return true;
  }

 private:
  void fill(const Bundle& bundle, Operation& operation) {
    operation.kind = OpKind::AllReduce;
    operation.op = op_;
    operation.dtype = bundle.dtype;
    operation.count = bundle.count;
    operation.total = static_cast<std::uint32_t>(size_);
    operation.detail = detail_;
    operation.algorithm = bundle.algorithm;
    operation.out = bundle.parts.front();
    if (bundle.parts.size() > 1) {
      operation.out = {packed_.get(), bundle.count, bundle.dtype, {}, {}, {}};
      std::byte* to = packed_.get();
      for (const Buffer& part : bundle.parts) {
        std::memcpy(to, part.data, part.bytes());
        to += part.bytes();
      }
    }
    operation.terms = {{operation.out, static_cast<std::uint32_t>(rank_), 1}};
  }

  void unpack(const Bundle& bundle) const {
    if (bundle.parts.size() == 1) return;
    const std::byte* from = packed_.get();
    for (const Buffer& part : bundle.parts) {
      std::memcpy(part.data, from, part.bytes());
      from += part.bytes();
    }
  }

  const std::vector<Bundle> bundles_;
  const ReduceOp op_;
  const int rank_, size_;
  const std::uint64_t detail_;
  AlignedBytes packed_;
  std::size_t done_ = 0;
};

// The first step of all_to_all_v. `all_` has two rows per rank: the counts that it sends to each
// rank, then those that it expects from each.
class CountsTable {
 public:
  CountsTable(Operation then, const GroupFacts& facts)
      : then_(std::move(then)),
        facts_(facts),
        size_(static_cast<std::size_t>(facts.size)),
        own_(then_.counts),
        all_(2 * size_ * size_) {
    own_.insert(own_.end(), then_.recv_counts.begin(), then_.recv_counts.end());
  }

  void fill(Operation& step) {
    step.kind = OpKind::AllGather;
    step.dtype = DType::I64;
    step.count = all_.size();
    step.counts.assign(size_, own_.size());
    step.algorithm = "pairwise";
    step.in = {own_.data(), own_.size(), DType::I64, {}, {}, {}};
    step.out = {all_.data(), all_.size(), DType::I64, {}, {}, {}};
  }

  bool next(Operation& operation) {
    if (std::exchange(checked_, true)) return false;
    for (int from = 0; from < facts_.size; ++from) {
      for (int to = 0; to < facts_.size; ++to) check(from, to);
    }
    then_.detail = hash_of(all_);
    then_.label = operation.label;
    then_.sequence = operation.sequence;
    then_.part_of = operation.part_of;
    then_.step = operation.step;
    operation = std::move(then_);
    return true;
  }

 private:
  void check(int from, int to) const {
    const std::size_t sent = all_[2 * size_ * from + to],
                      expected = all_[2 * size_ * to + size_ + from];
    if (sent == expected) return;
    throw MismatchError("rank " + std::to_string(facts_.world_rank(from)) + " sends " +
                            std::to_string(sent) + " elements to rank " +
                            std::to_string(facts_.world_rank(to)) + ", which expects " +
                            std::to_string(expected),
                        {.operation = "all_to_all",
                         .advice = "recv_counts[i] of rank j must be send_counts[j] of rank i."});
  }

  Operation then_;
  const GroupFacts& facts_;
  const std::size_t size_;
  std::vector<std::size_t> own_, all_;
  bool checked_ = false;
};
static_assert(sizeof(std::size_t) == sizeof(std::int64_t));

}  // namespace

std::optional<Operation> fused_call(
    std::span<const Buffer> buffers, ReduceOp op, int rank, int size, const OpOptions& options,
    const std::function<std::string(std::size_t, DType)>& algorithm) {
  std::vector<Bundle> bundles = bundles_of(buffers);
  if (bundles.empty()) return std::nullopt;
  std::vector<std::size_t> words;
  for (const Buffer& buffer : buffers) {
    words.push_back(buffer.count);
    words.push_back(static_cast<std::size_t>(buffer.dtype));
  }
  for (Bundle& bundle : bundles) {
    bundle.algorithm = algorithm(bundle.count * size_of(bundle.dtype), bundle.dtype);
  }
  auto call = std::make_shared<FusedCall>(std::move(bundles), op, rank, size, hash_of(words));
  return first_step(OpKind::AllReduce, options,
                    [call](Operation& operation) { return call->next(operation); });
}

Operation counts_before(Operation all_to_all_v, const GroupFacts& facts) {
  Operation first;
  first.label = all_to_all_v.label;
  first.leaving = all_to_all_v.leaving;
  first.part_of = OpKind::AllToAll;
  first.device = all_to_all_v.device;
  first.staged = all_to_all_v.staged;
  first.step = 1;
  auto table = std::make_shared<CountsTable>(std::move(all_to_all_v), facts);
  table->fill(first);
  first.next = [table](Operation& operation) { return table->next(operation); };
  return first;
}

}  // namespace trireme::inline v0::comm
