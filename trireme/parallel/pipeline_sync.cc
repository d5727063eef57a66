#include "trireme/parallel/pipeline_sync.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {
namespace parallel {
namespace {

constexpr std::uint32_t kTag = 0xff;  // none of a Link's

std::size_t num_chunks(std::int64_t elements) {
  const auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  return static_cast<std::size_t>((elements + chunk - 1) / chunk);
}

}  // namespace

PipelineSync::PipelineSync(comm::Communicator& pipeline, const PipelinePlan& plan,
                           const ModelParts& parts,
                           std::vector<std::unique_ptr<ParameterSync>> syncs)
    : pipeline_(pipeline), plan_(plan), parts_(parts), syncs_(std::move(syncs)) {
  TRIREME_CHECK(syncs_.size() == parts_.parts().size());
  const std::vector<ModelTensor>& all = parts_.parameters();
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (all[i].stages.size() > 1) tied_.push_back(i);
  std::vector<bool> seen(all.size(), false);
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    for (optim::OwnedSlice slice : syncs_[i]->owned()) {
      slice.parameter = parts_.parts()[i]->number[slice.parameter];
      if (all[slice.parameter].stages.size() > 1)
        held_.emplace_back(slice.parameter, Held{i, slice});
      // Another stage of this rank has it: its weights follow in publish().
      if (seen[slice.parameter]) continue;
      seen[slice.parameter] = true;
      slices_.push_back(std::move(slice));
    }
  }
  std::sort(slices_.begin(), slices_.end(),
            [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
}

const PipelineSync::Held* PipelineSync::held(std::uint32_t parameter, int stage) const {
  for (const auto& [number, one] : held_)
    if (number == parameter && parts_.parts()[one.part]->stage == stage) return &one;
  return nullptr;
}

int PipelineSync::rank_of(int stage) const {
  return plan_.rank_of_stage()[static_cast<std::size_t>(stage)];
}

Buffer PipelineSync::gradient_of(const Held& held) const {
  return {const_cast<void*>(held.slice.gradient), static_cast<std::size_t>(held.slice.size()),
          held.slice.master_dtype};
}

void PipelineSync::begin(std::uint32_t total, std::span<const Use> order) {
  for (const auto& sync : syncs_) sync->begin(total, order);
}

Work PipelineSync::finish() {
  std::vector<Work> works;
  for (const auto& sync : syncs_) works.push_back(sync->finish());
  return Work::all(works);
}

std::optional<Refusal> PipelineSync::refusal() const {
  for (const auto& sync : syncs_)
    if (auto refusal = sync->refusal()) return refusal;
  return std::nullopt;
}

// Stages ascend on every rank, and a sum only goes to later ones: nobody waits in a circle.
void PipelineSync::settle() {
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const int stage = parts_.parts()[i]->stage;
    take_uses_before(stage);
    syncs_[i]->settle();
    give_uses_after(stage);
  }
  spread_sums();
}

// The sum of all earlier stages' uses comes before this stage's first use.
void PipelineSync::take_uses_before(int stage) {
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const Held* own = held(index, stage);
    if (own == nullptr || tied.stages.front() == stage) continue;
    const int before = *(std::lower_bound(tied.stages.begin(), tied.stages.end(), stage) - 1);
    const Buffer sum = gradient_of(*own);
    if (const Held* near = held(index, before)) {
      kernel::add_into(sum.data, near->slice.gradient, sum.dtype, sum.count);
      continue;
    }
    std::vector<std::byte> earlier(sum.bytes());
    pipeline_
        .recv({earlier.data(), sum.count, sum.dtype}, rank_of(before), kTag,
              {.label = "uses of " + tied.name})
        .wait();
    kernel::add_into(sum.data, earlier.data(), sum.dtype, sum.count);
  }
}

void PipelineSync::give_uses_after(int stage) {
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const Held* own = held(index, stage);
    if (own == nullptr || tied.stages.back() == stage) continue;
    const int after = *std::upper_bound(tied.stages.begin(), tied.stages.end(), stage);
    if (rank_of(after) == pipeline_.rank()) continue;
    pipeline_.send(gradient_of(*own), rank_of(after), kTag, {.label = "uses of " + tied.name})
        .wait();
  }
}

// The last stage that uses a parameter has its whole sum. On each other rank that holds it, its
// first stage there gets it: that is the one in slices_.
void PipelineSync::spread_sums() {
  std::vector<Work> works;
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const int root = rank_of(tied.stages.back());
    const comm::OpOptions options{.label = tied.name};
    const Held* whole = held(index, tied.stages.back());
    std::vector<int> told{root};
    for (const int stage : tied.stages) {
      const int rank = rank_of(stage);
      if (std::find(told.begin(), told.end(), rank) != told.end()) continue;
      told.push_back(rank);
      if (whole != nullptr)
        works.push_back(pipeline_.send(gradient_of(*whole), rank, kTag, options));
      if (rank == pipeline_.rank())
        works.push_back(pipeline_.recv(gradient_of(*held(index, stage)), root, kTag, options));
    }
    if (whole == nullptr) continue;
    const Buffer sum = gradient_of(*whole);
    const auto own = std::find_if(slices_.begin(), slices_.end(),
                                  [&](const auto& slice) { return slice.parameter == index; });
    if (own->gradient != sum.data)
      std::memcpy(const_cast<void*>(own->gradient), sum.data, sum.bytes());
  }
  Work::all(works).wait();
}

std::vector<double> PipelineSync::chunk_squares() {
  const std::vector<ModelTensor>& all = parts_.parameters();
  std::vector<double> mine;
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const std::vector<double> squares = syncs_[i]->chunk_squares();
    const double* at = squares.data();
    for (const std::uint32_t parameter : parts_.parts()[i]->number) {
      const std::size_t chunks = num_chunks(all[parameter].count());
      if (all[parameter].stages.front() == parts_.parts()[i]->stage)
        mine.insert(mine.end(), at, at + chunks);
      at += chunks;
    }
  }
  std::vector<std::size_t> counts(static_cast<std::size_t>(pipeline_.size()), 0);
  std::size_t total = 0;
  for (const ModelTensor& one : all) {
    counts[static_cast<std::size_t>(rank_of(one.stages.front()))] += num_chunks(one.count());
    total += num_chunks(one.count());
  }
  TRIREME_CHECK(mine.size() == counts[static_cast<std::size_t>(pipeline_.rank())]);
  std::vector<double> gathered(total);
  pipeline_
      .all_gather_v(Buffer::of(std::span(mine)), Buffer::of(std::span(gathered)), counts,
                    {.label = "gradient norm"})
      .wait();
  std::vector<const double*> next;  // of each rank
  const double* begin = gathered.data();
  for (const std::size_t count : counts) {
    next.push_back(begin);
    begin += count;
  }
  std::vector<double> squares;
  squares.reserve(total);
  for (const ModelTensor& one : all) {
    const double*& from = next[static_cast<std::size_t>(rank_of(one.stages.front()))];
    squares.insert(squares.end(), from, from + num_chunks(one.count()));
    from += num_chunks(one.count());
  }
  return squares;
}

std::int64_t PipelineSync::first_overflow() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 1> first{kNone};
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const std::int64_t own = syncs_[i]->first_overflow();
    if (own < 0) continue;
    const auto number = parts_.parts()[i]->number[static_cast<std::size_t>(own)];
    first[0] = std::min<std::int64_t>(first[0], number);
  }
  pipeline_
      .all_reduce(Buffer::of(std::span<std::int64_t>(first)), ReduceOp::Min, {.label = "overflow"})
      .wait();
  return first[0] == kNone ? -1 : first[0];
}

void PipelineSync::drop() {
  for (const auto& sync : syncs_) sync->drop();
}

// The updated weights of a tied parameter go to the rank's other stages that hold it.
Work PipelineSync::publish() {
  std::vector<Work> works;
  for (const auto& [number, copy] : held_) {
    const auto first = std::lower_bound(slices_.begin(), slices_.end(), number,
                                        [](const optim::OwnedSlice& slice, std::uint32_t wanted) {
                                          return slice.parameter < wanted;
                                        });
    if (first->weight == copy.slice.weight) continue;
    const auto count = static_cast<std::size_t>(copy.slice.size());
    std::memcpy(copy.slice.weight, first->weight, count * size_of(copy.slice.master_dtype));
    if (copy.slice.compute != nullptr)
      std::memcpy(copy.slice.compute, first->compute, count * size_of(DType::BF16));
  }
  for (const auto& sync : syncs_) works.push_back(sync->publish());
  return Work::all(works);
}

std::size_t PipelineSync::gradient_bytes() const {
  std::size_t bytes = 0;
  for (const auto& sync : syncs_) bytes += sync->gradient_bytes();
  return bytes;
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
