#include "trireme/pipeline/pipeline_sync.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "trireme/base/check.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/sync/gathers/gather_parameter.h"
#include "trireme/sync/levels/owned_gradients.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::parallel {

PipelineSync::PipelineSync(comm::Communicator& pipeline, const PipelinePlan& plan,
                           const ModelParts& parts,
                           std::vector<std::unique_ptr<ParameterSync>> syncs)
    : pipeline_(pipeline), plan_(plan), parts_(parts), syncs_(std::move(syncs)) {
  TRIREME_CHECK(syncs_.size() == parts_.parts().size());
  const std::vector<ModelTensor>& all = parts_.parameters();
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (all[i].stages.size() > 1) tied_.push_back(i);
  find_held();
}

// If two stages of this rank hold a parameter, the first one's is updated; publish() copies it.
void PipelineSync::find_held() {
  std::set<std::uint32_t> earlier;  // parameters of this rank's earlier stages
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const ModelPart& part = *parts_.parts()[i];
    std::vector<optim::OwnedSlice> owned(part.number.size());
    for (optim::OwnedSlice slice : syncs_[i]->owned()) {
      const std::uint32_t stored = slice.parameter;
      slice.parameter = part.number[stored];
      if (!earlier.contains(slice.parameter)) slices_.push_back(slice);
      owned[stored] = std::move(slice);
    }
    for (std::uint32_t stored = 0; stored < part.number.size(); ++stored)
      if (parts_.parameters()[part.number[stored]].stages.size() > 1)
        held_.push_back({part.number[stored], &part, stored, std::move(owned[stored])});
    earlier.insert(part.number.begin(), part.number.end());
  }
  std::sort(slices_.begin(), slices_.end(),
            [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
}

const PipelineSync::TiedParameter* PipelineSync::held(std::uint32_t parameter, int stage) const {
  for (const TiedParameter& one : held_)
    if (one.parameter == parameter && one.part->stage == stage) return &one;
  return nullptr;
}

const PipelineSync::TiedParameter* PipelineSync::first_held(std::uint32_t parameter) const {
  const auto first = std::find_if(held_.begin(), held_.end(), [&](const TiedParameter& one) {
    return one.parameter == parameter;
  });
  return first == held_.end() ? nullptr : &*first;
}

// Differs from every StageLink's tag (none has part 0xff), and between stages and parameters, since
// ranks with several stages give and take sums in different orders.
std::uint32_t PipelineSync::tag(int from, std::uint32_t parameter) const {
  const auto place = std::lower_bound(tied_.begin(), tied_.end(), parameter) - tied_.begin();
  return (static_cast<std::uint32_t>(from) & 0xfffu) << 19 |
         (static_cast<std::uint32_t>(place) & 0x7ffu) << 8 | 0xffu;
}

int PipelineSync::rank_of(int stage) const {
  return plan_.rank_of_stage()[static_cast<std::size_t>(stage)];
}

// Memory for the sum of all elements, beside the parameter's own. The store names the device: a
// rank that owns nothing of the parameter has no slice of it.
Buffer PipelineSync::room_for(const TiedParameter& held) const {
  const ModelTensor& tied = parts_.parameters()[held.parameter];
  const auto count = static_cast<std::size_t>(tied.count());
  const Device device = held.part->store.device();
  const auto memory = tensor::flat_memory(count * size_of(tied.dtype), device);
  return {memory.get(), count, tied.dtype, device, {}, memory};
}

// The sum of all elements, in place or gathered.
Buffer PipelineSync::whole_sum(const TiedParameter& held) const {
  const ModelTensor& tied = parts_.parameters()[held.parameter];
  const Buffer own{const_cast<void*>(held.slice.gradient),
                   static_cast<std::size_t>(held.slice.size()), tied.dtype,
                   held.part->store.device()};
  const ModelPart& part = *held.part;
  // If ranks share it, even one that owns all of it takes part in the gather.
  if (part.store.ownership().pieces().size() == 1) return own;
  const Buffer whole = room_for(held);
  gather_pieces(*part.data, part.store.ownership(), held.stored, own, whole, "sum of " + tied.name);
  return whole;
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

// Stages ascend on every rank, and sums only go to later stages: ranks cannot wait in a circle.
void PipelineSync::settle() {
  std::vector<Work> given;
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const int stage = parts_.parts()[i]->stage;
    take_uses_before(stage);
    syncs_[i]->settle();
    give_uses_after(stage, given);
  }
  Work::all(given).wait();
  spread_sums();
}

// The sum of all earlier stages' uses comes before this stage's first use.
void PipelineSync::take_uses_before(int stage) {
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const TiedParameter* own = held(index, stage);
    if (own == nullptr || tied.stages.front() == stage) continue;
    const int before = *(std::lower_bound(tied.stages.begin(), tied.stages.end(), stage) - 1);
    const TiedParameter* const near = held(index, before);
    const Buffer earlier = near != nullptr ? whole_sum(*near) : room_for(*own);
    if (near == nullptr)
      pipeline_
          .recv(earlier, rank_of(before), tag(before, index), {.label = "uses of " + tied.name})
          .wait();
    const auto size = static_cast<std::size_t>(own->slice.size());
    if (size > 0)
      tensor::flat_math(earlier.device)
          .add_into(const_cast<void*>(own->slice.gradient),
                    earlier.slice(static_cast<std::size_t>(own->slice.begin), size).data,
                    tied.dtype, size);
  }
}

// Does not wait: the receiver may first take the sum of another parameter, from a later stage.
void PipelineSync::give_uses_after(int stage, std::vector<Work>& given) {
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const TiedParameter* own = held(index, stage);
    if (own == nullptr || tied.stages.back() == stage) continue;
    const int after = *std::upper_bound(tied.stages.begin(), tied.stages.end(), stage);
    if (rank_of(after) == pipeline_.rank()) continue;
    given.push_back(pipeline_.send(whole_sum(*own), rank_of(after), tag(stage, index),
                                   {.label = "uses of " + tied.name}));
  }
}

// The last stage that uses a parameter has its whole sum. On each rank that holds the parameter,
// the first stage gets the part that the rank owns: the slice in slices_.
void PipelineSync::spread_sums() {
  for (const std::uint32_t index : tied_) {
    const ModelTensor& tied = parts_.parameters()[index];
    const TiedParameter* const first = first_held(index);
    if (first == nullptr) continue;
    const int last = tied.stages.back(), root = rank_of(last);
    const comm::OpOptions options{.label = tied.name};
    Buffer whole;
    if (root == pipeline_.rank()) {
      whole = whole_sum(*held(index, last));
      std::vector<int> told{root};
      for (const int stage : tied.stages) {
        const int rank = rank_of(stage);
        if (std::find(told.begin(), told.end(), rank) != told.end()) continue;
        told.push_back(rank);
        pipeline_.send(whole, rank, tag(last, index), options).wait();
      }
    } else {
      whole = room_for(*first);
      pipeline_.recv(whole, root, tag(last, index), options).wait();
    }
    const optim::OwnedSlice& own = first->slice;
    const Buffer mine =
        whole.slice(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.size()));
    if (mine.count > 0 && mine.data != own.gradient)
      tensor::flat_math(mine.device).copy(const_cast<void*>(own.gradient), mine.data, mine.bytes());
  }
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
  std::vector<SquaresOf> order;
  for (const ModelTensor& one : all)
    order.push_back({rank_of(one.stages.front()), num_chunks(one.count())});
  return gather_squares(pipeline_, mine, order);
}

std::int64_t PipelineSync::first_overflow() {
  std::int64_t first = -1;
  for (std::size_t i = 0; i < syncs_.size(); ++i) {
    const std::int64_t own = syncs_[i]->first_overflow();
    if (own < 0) continue;
    const std::int64_t number = parts_.parts()[i]->number[static_cast<std::size_t>(own)];
    first = first < 0 ? number : std::min(first, number);
  }
  return first_of_all(pipeline_, first);
}

void PipelineSync::drop() {
  for (const auto& sync : syncs_) sync->drop();
}

Work PipelineSync::publish() {
  std::vector<Work> works;
  for (const auto& sync : syncs_) works.push_back(sync->publish());
  for (const TiedParameter& copy : held_) {
    const TiedParameter& first = *first_held(copy.parameter);
    if (first.part == copy.part) continue;
    Work::all(works).wait();  // the first stage's weights are whole
    const c10::AutoGradMode no_grad(false);
    keep_weights(copy.part->store, copy.stored,
                 whole_weights(*first.part->data, first.part->store, first.stored));
  }
  return Work::all(works);
}

std::size_t PipelineSync::gradient_bytes() const {
  std::size_t bytes = 0;
  for (const auto& sync : syncs_) bytes += sync->gradient_bytes();
  return bytes;
}

}  // namespace trireme::inline v0::parallel
