#include "trireme/checkpoint/shards.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/shape_text.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::checkpoint {
namespace {

[[noreturn]] void refuse_shards(const std::string& what) {
  throw CheckpointError(what, {.operation = "resume",
                               .advice = "Resume with the model and optimizer of the checkpoint's "
                                         "run, or start a new one in another folder."});
}

using Saved = storage::SavedTensors::Tensor;

// The number of rows does not matter for a shard that is loaded whole, nor for ranks' rows.
bool same_kind(const Saved& saved, const NamedShard& shard) {
  std::vector<std::int64_t> shape = shard.shape;
  if ((shard.load || shard.row_of_rank) && !shape.empty() && !saved.shape.empty())
    shape[0] = saved.shape[0];
  return saved.dtype == shard.dtype && saved.shape == shape;
}

// The first elements of the pieces of the saved tensor that fill the shard; each has its size.
std::vector<std::int64_t> begins_of(const NamedShard& shard, const Saved& saved) {
  if (shard.load) return {0};
  const std::int64_t row = shard.end - shard.begin;
  if (!shard.row_of_rank || row == 0) return {shard.begin};
  std::vector<std::int64_t> begins;
  for (std::int64_t at = shard.begin; at < saved.elements(); at += shard.shape[0] * row)
    begins.push_back(at);
  return begins;
}

// A shard, and the saved tensor that fills it.
struct Filling {
  NamedShard shard;
  const Saved* saved = nullptr;
  std::string path;
  bool weights = false;                   // of the part "train", in which NaN is refused
  std::vector<std::int64_t> begins = {};  // of pieces that are added up
  at::Tensor host = {};                   // read into this; the shard itself if possible

  bool needs_copy() const { return shard.load || begins.size() != 1 || !shard.local.is_cpu(); }
  std::size_t piece_bytes() const { return shard.load ? saved->bytes() : shard.local.nbytes(); }
  std::size_t bytes() const { return begins.size() * piece_bytes(); }
};

bool is_saved(const NamedShard& shard, const std::string& part,
              const storage::SavedTensors& tensors) {
  const auto [file, key] = place_of(part, shard);
  return tensors.find(file, key) != nullptr;
}

Filling filling_of(const NamedShard& shard, const std::string& part,
                   const storage::SavedTensors& tensors, const std::string& folder) {
  const auto [file, key] = place_of(part, shard);
  Filling filling{.shard = shard,
                  .saved = tensors.find(file, key),
                  .path = folder + "/" + file,
                  .weights = part == storage::kModelPart};
  if (filling.saved == nullptr) refuse_shards(filling.path + " has no tensor \"" + key + "\"");
  if (!same_kind(*filling.saved, shard))
    refuse_shards(filling.path + ": tensor \"" + key + "\" is " +
                  tensor_text(filling.saved->dtype, filling.saved->shape) + ", and " +
                  tensor_text(shard.dtype, shard.shape) + " is needed");
  filling.begins = begins_of(shard, *filling.saved);
  return filling;
}

// With NaN weights every loss is NaN. Infinities are allowed, since some masks have them.
void refuse_nan(const at::Tensor& filled, const std::string& key, const std::string& path) {
  if (!at::isFloatingType(filled.scalar_type())) return;
  // A sum with a NaN is NaN; so is one of both infinities. isnan() would make two more tensors.
  if (!std::isnan(filled.sum().item<double>())) return;
  const std::int64_t count = at::isnan(filled).sum().item<std::int64_t>();
  if (count == 0) return;
  throw CheckpointError(path + ": tensor \"" + key + "\" holds NaN in " + std::to_string(count) +
                            " of " + std::to_string(filled.numel()) + " elements",
                        {.operation = "resume",
                         .advice = "The run had diverged before it was saved: remove this "
                                   "checkpoint's folder to resume from an older one, or start "
                                   "anew."});
}

void refuse_leftovers(const storage::SavedTensors& tensors, const char* file,
                      const std::string& folder, const CheckpointContent& wanted,
                      const std::function<bool(const std::string&)>& ours) {
  for (const Saved* tensor : tensors.tensors(file)) {
    if (!wanted.has(file, tensor->name) && ours(tensor->name)) {
      refuse_shards(folder + "/" + file + " has a tensor \"" + tensor->name +
                    "\" that this run has not");
    }
  }
}

// Shards that are read to the host first take at most this much memory there, plus one shard.
constexpr std::size_t kCopiedBytes = 256 << 20;

// Allocates the memory that a filling is read to.
void allocate(Filling& filling) {
  const NamedShard& shard = filling.shard;
  const auto on_host = shard.local.options().device(at::kCPU);
  if (shard.load)
    filling.host = at::empty(filling.saved->shape, on_host);
  else if (filling.needs_copy())
    filling.host =
        at::empty({static_cast<std::int64_t>(filling.begins.size()), shard.local.numel()}, on_host);
  else
    filling.host = shard.local;
}

// Row 0 of a filling's memory, with all other rows added.
at::Tensor sum_of_pieces(const Filling& filling) {
  const at::Tensor& pieces = filling.host;
  if (pieces.size(0) == 0) return at::zeros_like(filling.shard.local, at::Device(at::kCPU));
  at::Tensor sum = pieces[0];
  for (std::int64_t i = 1; i < pieces.size(0); ++i) sum.add_(pieces[i]);
  return sum.view(filling.shard.local.sizes());
}

void finish(Filling& filling) {
  const NamedShard& shard = filling.shard;
  if (filling.weights) refuse_nan(filling.host, filling.saved->name, filling.path);
  if (shard.load)
    shard.load(filling.host);
  else if (filling.needs_copy())
    at::Tensor(shard.local).copy_(sum_of_pieces(filling));
  filling.host = at::Tensor();
}

void fill_all(std::vector<Filling>& fillings, storage::SavedTensors& tensors) {
  std::vector<std::pair<std::pair<std::size_t, std::int64_t>, Filling*>> order;
  for (Filling& one : fillings) {
    const std::int64_t first = one.begins.empty() ? 0 : one.begins.front();
    order.emplace_back(tensors.place_of(*one.saved, first), &one);
  }
  std::sort(order.begin(), order.end());
  for (auto next = order.begin(); next != order.end();) {
    std::vector<storage::SavedTensors::Wanted> wanted;
    const auto first = next;
    for (std::size_t copied = 0; next != order.end() && copied <= kCopiedBytes; ++next) {
      Filling& one = *next->second;
      allocate(one);
      std::byte* memory = static_cast<std::byte*>(one.host.data_ptr());
      for (const std::int64_t begin : one.begins) {
        wanted.push_back({one.saved, begin, {memory, one.piece_bytes()}});
        memory += one.piece_bytes();
      }
      if (one.needs_copy()) copied += one.bytes();
    }
    tensors.read(wanted);
    for (auto done = first; done != next; ++done) finish(*done->second);
  }
}

}  // namespace

SavedPlace place_of(const std::string& part, const NamedShard& shard) {
  TRIREME_CHECK(shard.local.numel() == shard.end - shard.begin);
  TRIREME_CHECK(shard.local.is_contiguous());
  TRIREME_CHECK(tensor::dtype_of(shard.local) == shard.dtype);
  if (part == storage::kModelPart && shard.name.find('/') == std::string::npos)
    return {storage::kModelFile, shard.name};
  return {storage::kStateFile, part + "/" + shard.name};
}

bool can_be_left_out(std::string_view key) {
  return key.substr(key.find('/') + 1).starts_with(kCompressionPrefix);
}

bool restore(const Parts& parts, const storage::Manifest& manifest,
             const storage::CheckpointReader& folder, comm::Communicator* world,
             const std::function<bool(const std::function<void()>& read)>& reading) {
  for (const auto& [part, saveable] : parts) {
    if (manifest.parts.count(part) == 0) {
      refuse_shards(folder.path_of(manifest.step) + " has no part \"" + part + "\"");
    }
    require_same_optimizer(manifest.parts.at(part), saveable->metadata());
  }
  // Knows the shards of all ranks: a tensor without a shard here may have one on another rank.
  const CheckpointContent wanted(parts, world, /*to_write=*/false);
  const std::string path = folder.path_of(manifest.step);
  std::vector<std::pair<std::string, NamedShard>> shards;  // with their parts' names
  for (const auto& [part, saveable] : parts)
    for (NamedShard& shard : saveable->state()) shards.emplace_back(part, std::move(shard));
  const auto read = [&] {
    storage::SavedTensors tensors(folder, manifest);
    std::vector<Filling> fillings;
    for (const auto& [part, shard] : shards)
      if (!shard.optional || is_saved(shard, part, tensors))
        fillings.push_back(filling_of(shard, part, tensors, path));
    refuse_leftovers(tensors, storage::kModelFile, path, wanted,
                     [&](const std::string&) { return parts.count(storage::kModelPart) > 0; });
    refuse_leftovers(tensors, storage::kStateFile, path, wanted, [&](const std::string& key) {
      return parts.count(key.substr(0, key.find('/'))) > 0 && !can_be_left_out(key);
    });
    fill_all(fillings, tensors);
  };
  if (!reading)
    read();
  else if (!reading(read))
    return false;
  for (const auto& [part, saveable] : parts) {
    try {
      saveable->restored(manifest.parts.at(part));
    } catch (const nlohmann::json::exception&) {
      refuse_shards(path + ": what it says of part \"" + part + "\" is not what that part writes");
    }
  }
  return true;
}

}  // namespace trireme::inline v0::checkpoint
