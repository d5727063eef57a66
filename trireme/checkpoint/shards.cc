#include "trireme/checkpoint/shards.h"

#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/format/safetensors.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::checkpoint {
namespace {

using format::SafetensorsFile;
using format::TensorView;

bool in_model(const std::string& part, const std::string& name) {
  return part == kModelPart && name.find('/') == std::string::npos;
}

void check_shard(const NamedShard& shard) {
  TRIREME_CHECK(shard.local.numel() == shard.end - shard.begin);
  TRIREME_CHECK(shard.local.is_contiguous());
  TRIREME_CHECK(tensor::dtype_of(shard.local) == shard.dtype);
}

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text = std::string(name_of(dtype)) + " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

[[noreturn]] void refuse_shards(const std::string& what) {
  throw CheckpointError(what, {.operation = "resume",
                               .advice = "Resume with the model and optimizer of the checkpoint's "
                                         "run, or start a new one in another folder."});
}

// The number of rows does not matter for a shard that is loaded whole.
bool same_kind(const TensorView& saved, const NamedShard& shard) {
  std::vector<std::int64_t> shape = shard.shape;
  if (shard.load && !shape.empty() && !saved.shape.empty()) shape[0] = saved.shape[0];
  return saved.dtype == shard.dtype && saved.shape == shape;
}

// Returns what was filled.
at::Tensor fill(const NamedShard& shard, const std::string& key, const SafetensorsFile& file) {
  check_shard(shard);
  const TensorView* saved = file.find(key);
  if (saved == nullptr) refuse_shards(file.path() + " has no tensor \"" + key + "\"");
  if (!same_kind(*saved, shard)) {
    refuse_shards(file.path() + ": tensor \"" + key + "\" is " +
                  describe(saved->dtype, saved->shape) + ", and " +
                  describe(shard.dtype, shard.shape) + " is needed");
  }
  if (shard.load) {
    const at::Tensor whole = at::empty(saved->shape, shard.local.options().device(at::kCPU));
    if (!saved->bytes.empty())
      std::memcpy(whole.data_ptr(), saved->bytes.data(), saved->bytes.size());
    shard.load(whole);
    return whole;
  }
  const std::size_t width = size_of(shard.dtype);
  const auto part =
      saved->bytes.subspan(static_cast<std::size_t>(shard.begin) * width, shard.local.nbytes());
  if (part.empty()) return shard.local;
  const at::Tensor host =
      shard.local.is_cpu() ? shard.local : at::empty_like(shard.local, at::Device(at::kCPU));
  std::memcpy(host.data_ptr(), part.data(), part.size());
  if (!shard.local.is_cpu()) at::Tensor(shard.local).copy_(host);
  return shard.local;
}

// With NaN weights every loss is NaN. Infinities are allowed, since some masks have them.
void refuse_nan(const at::Tensor& filled, const std::string& key, const std::string& path) {
  if (!at::isFloatingType(filled.scalar_type())) return;
  const std::int64_t count = at::isnan(filled).sum().item<std::int64_t>();
  if (count == 0) return;
  throw CheckpointError(path + ": tensor \"" + key + "\" holds NaN in " + std::to_string(count) +
                            " of " + std::to_string(filled.numel()) + " elements",
                        {.operation = "resume",
                         .advice = "The run had diverged before it was saved: remove this "
                                   "checkpoint's folder to resume from an older one, or start "
                                   "anew."});
}

void refuse_leftovers(const SafetensorsFile& file, const char* name,
                      const CheckpointContent& wanted,
                      const std::function<bool(const std::string&)>& ours) {
  for (const TensorView& tensor : file.tensors()) {
    if (!wanted.has(name, tensor.name) && ours(tensor.name)) {
      refuse_shards(file.path() + " has a tensor \"" + tensor.name + "\" that this run has not");
    }
  }
}

}  // namespace

void restore(const Parts& parts, const Manifest& manifest, const CheckpointFolder& folder,
             comm::Communicator* world) {
  for (const auto& [part, saveable] : parts) {
    if (manifest.parts.count(part) == 0) {
      refuse_shards(folder.path_of(manifest.step) + " has no part \"" + part + "\"");
    }
    require_same_optimizer(manifest.parts.at(part), saveable->metadata());
  }
  // Knows the shards of all ranks: a tensor without a shard here may have one on another rank.
  const CheckpointContent wanted(parts, world, /*to_write=*/false);
  const SafetensorsFile model(folder.map(manifest.step, kModelFile));
  const SafetensorsFile state(folder.map(manifest.step, kStateFile));
  for (const auto& [part, saveable] : parts) {
    for (const NamedShard& shard : saveable->state()) {
      if (in_model(part, shard.name)) {
        refuse_nan(fill(shard, shard.name, model), shard.name, model.path());
      } else {
        const std::string key = part + "/" + shard.name;
        const at::Tensor filled = fill(shard, key, state);
        if (part == kModelPart) refuse_nan(filled, key, state.path());
      }
    }
  }
  refuse_leftovers(model, kModelFile, wanted,
                   [&](const std::string&) { return parts.count(kModelPart) > 0; });
  refuse_leftovers(state, kStateFile, wanted, [&](const std::string& key) {
    return parts.count(key.substr(0, key.find('/'))) > 0;
  });
  for (const auto& [part, saveable] : parts) {
    try {
      saveable->restored(manifest.parts.at(part));
    } catch (const nlohmann::json::exception&) {
      refuse_shards(folder.path_of(manifest.step) + ": what it says of part \"" + part +
                    "\" is not what that part writes");
    }
  }
}

}  // namespace trireme::inline v0::checkpoint
