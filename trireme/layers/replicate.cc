#include "trireme/layers/replicate.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/comm/texts.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {
namespace {

at::Tensor content_of(const at::Tensor& tensor) { return tensor.detach().contiguous(); }

std::uint64_t hash_of(const std::string& name, const at::Tensor& content, bool with_content) {
  const at::Tensor host = with_content ? tensor::on_host(content) : content;
  const Buffer buffer = tensor::to_buffer(host);
  return tensor_hash({name, buffer.dtype, content.sizes().vec(),
                      with_content ? std::span<const std::byte>(buffer.as_bytes())
                                   : std::span<const std::byte>()});
}

// The numbers of all ranks, one rank after the other.
std::vector<std::int64_t> of_all_ranks(comm::Communicator& world, std::vector<std::int64_t> mine,
                                       const char* label) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), {.label = label})
      .wait();
  return all;
}

// Compares one number per tensor with rank 0's.
void compare(comm::Communicator& world, const NamedTensors& tensors, const std::string& host,
             bool with_content) {
  std::vector<std::int64_t> mine;
  for (const auto& [name, tensor] : tensors) {
    const bool trained = with_content || tensor.requires_grad();
    mine.push_back(static_cast<std::int64_t>(
        hash_of(trained ? name : name + ", not trained", content_of(tensor), with_content)));
  }
  const std::vector<std::int64_t> all = of_all_ranks(world, mine, "parameter hashes");
  for (int rank = 1; rank < world.size(); ++rank) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (all[static_cast<std::size_t>(rank) * mine.size() + i] == all[i]) continue;
      const std::string what = with_content ? "content" : "name, type, shape or requires_grad";
      throw MismatchError(
          "tensor " + std::to_string(i) + " (\"" + tensors[i].first +
              "\" on this rank) differs in " + what + " between rank 0 and rank " +
              std::to_string(rank),
          {.rank = world.rank(),
           .host = host,
           .operation = "replicate",
           .peer = rank,
           .label = tensors[i].first,
           .advice = with_content ? "The copy is damaged: check that machine's memory."
                                  : "Build the same model on every rank."});
    }
  }
}

void compare_counts(comm::Communicator& world, std::size_t count, const std::string& host) {
  const std::vector<std::int64_t> all =
      of_all_ranks(world, {static_cast<std::int64_t>(count)}, "parameter count");
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::int64_t theirs = all[static_cast<std::size_t>(rank)];
    if (theirs == all[0]) continue;
    throw MismatchError("rank 0's model has " + std::to_string(all[0]) +
                            " parameters and buffers, rank " + std::to_string(rank) + "'s has " +
                            std::to_string(theirs),
                        {.rank = world.rank(),
                         .host = host,
                         .operation = "replicate",
                         .peer = rank,
                         .advice = "Build the same model on every rank."});
  }
}

}  // namespace

// A text is the settings, a line end and the processor.
void require_equal_ranks(comm::Communicator& world, const RankText& mine, const std::string& host) {
  if (world.size() == 1) return;
  const std::vector<std::string> all =
      comm::exchange_texts(mine.settings + "\n" + mine.processor, world, "processors");
  const std::string& first = all[0];
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::string& theirs = all[static_cast<std::size_t>(rank)];
    if (theirs == first) continue;
    const std::size_t end = first.find('\n'), their_end = theirs.find('\n');
    const bool settings = first.substr(0, end) != theirs.substr(0, their_end);
    // Only DataParallel's settings name a state (strategy/module_tensors.h).
    const bool state = (first + theirs).find(", state ") != std::string::npos;
    const auto own_part = [&](const std::string& record, std::size_t at) {
      return "\"" + (settings ? record.substr(0, at) : record.substr(at + 1)) + "\"";
    };
    throw MismatchError(
        "rank " + std::to_string(rank) + (settings ? " trains with " : " computes with ") +
            own_part(theirs, their_end) + ", rank 0 with " + own_part(first, end) +
            (settings ? ": their models would differ" : ": their bits differ"),
        {.rank = world.rank(),
         .host = host,
         .operation = "replicate",
         .peer = rank,
         .label = settings ? "settings" : "processor",
         .advice = settings
                       ? std::string("Give all ranks the same options and the same optimizer") +
                             (state ? ", and load its state on all ranks or on none." : ".")
                       : "Give all ranks one kind of processor, one LibTorch and one "
                         "environment, or set reproducible to false (train.reproducible)."});
  }
}

void verify_replicas(comm::Communicator& world, const NamedTensors& tensors,
                     const std::string& host) {
  if (world.size() > 1 && !tensors.empty()) compare(world, tensors, host, true);
}

void replicate(comm::Communicator& world, const NamedTensors& tensors, const std::string& host) {
  if (world.size() == 1) return;
  compare_counts(world, tensors.size(), host);
  if (tensors.empty()) return;
  compare(world, tensors, host, false);
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> contents;
  std::vector<Work> works;
  for (const auto& [name, tensor] : tensors) {
    contents.push_back(content_of(tensor));
    Buffer bytes = tensor::to_buffer(contents.back());
    bytes.count = bytes.bytes();
    bytes.dtype = DType::U8;  // moved, not computed with
    works.push_back(world.broadcast(bytes, 0, {.label = name}));
  }
  Work::all(works).wait();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor target = tensors[i].second.detach();
    if (target.data_ptr() != contents[i].data_ptr()) tensor::copy_elements(target, contents[i]);
  }
  verify_replicas(world, tensors, host);
}

void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices) {
  std::vector<std::int64_t> least;
  for (const optim::OwnedSlice& slice : slices) {
    const auto bytes = static_cast<std::size_t>(slice.size()) * size_of(slice.master_dtype);
    const at::Tensor values = tensor::on_host(
        tensor::view_of(Buffer{const_cast<void*>(slice.gradient), bytes, DType::U8, slice.device}));
    least.push_back(static_cast<std::int64_t>(tensor_hash(
        {"", DType::U8, {}, {static_cast<const std::byte*>(values.const_data_ptr()), bytes}})));
  }
  std::vector<std::int64_t> most = least;
  const comm::OpOptions options{.label = "equal gradients"};
  group.all_reduce(Buffer::of(std::span(least)), ReduceOp::Min, options).wait();
  group.all_reduce(Buffer::of(std::span(most)), ReduceOp::Max, options).wait();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (least[i] == most[i]) continue;
    throw ConfigError(
        "the gradient of " + slices[i].name +
            " differs among ranks that compute a micro-batch together",
        {.rank = group.rank(),
         .operation = "strategy",
         .advice = "Its block must take its layers and attention from its LayerFactory, as those "
                   "of GPT and BERT do; or use parallel.context = 1, parallel.expert = 1 and "
                   "parallel.sequence = false."});
  }
}

}  // namespace trireme::inline v0::parallel
