#include "trireme/checkpoint/shards.h"

#include <cstring>
#include <set>

#include "trireme/base/check.h"
#include "trireme/format/safetensors.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {
namespace checkpoint {
namespace {

using format::SafetensorsFile;
using format::TensorView;

bool in_model(const std::string& part, const std::string& name) {
  return part == kModelPart && name.find('/') == std::string::npos;
}

std::int64_t elements_of(const NamedShard& shard) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shard.shape) elements *= dim;
  return elements;
}

void check_shard(const NamedShard& shard) {
  TRIREME_CHECK(shard.local.numel() == shard.end - shard.begin);
  TRIREME_CHECK(shard.local.is_contiguous());
  TRIREME_CHECK(tensor::dtype_of(shard.local) == shard.dtype);
}

TensorView view_of(const NamedShard& shard, std::string name) {
  check_shard(shard);
  TRIREME_CHECK(shard.begin == 0);
  TRIREME_CHECK(shard.end == elements_of(shard));
  return {std::move(name),
          shard.dtype,
          shard.shape,
          {static_cast<const std::byte*>(shard.local.data_ptr()), shard.local.nbytes()}};
}

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text = std::string(name_of(dtype)) + " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

[[noreturn]] void refuse(const std::string& what) {
  throw CheckpointError(what, {.operation = "resume",
                               .advice = "Resume with the model and optimizer of the checkpoint's "
                                         "run, or start a new one in another folder."});
}

void fill(const NamedShard& shard, const std::string& key, const SafetensorsFile& file,
          std::set<std::string>& used) {
  check_shard(shard);
  const TensorView* saved = file.find(key);
  if (saved == nullptr) refuse(file.path() + " has no tensor \"" + key + "\"");
  if (saved->dtype != shard.dtype || saved->shape != shard.shape) {
    refuse(file.path() + ": tensor \"" + key + "\" is " + describe(saved->dtype, saved->shape) +
           ", and " + describe(shard.dtype, shard.shape) + " is needed");
  }
  used.insert(key);
  const std::size_t width = size_of(shard.dtype);
  const auto part =
      saved->bytes.subspan(static_cast<std::size_t>(shard.begin) * width, shard.local.nbytes());
  if (!part.empty()) std::memcpy(shard.local.data_ptr(), part.data(), part.size());
}

void refuse_leftovers(const SafetensorsFile& file, const std::set<std::string>& used,
                      const std::function<bool(const std::string&)>& ours) {
  for (const TensorView& tensor : file.tensors()) {
    if (used.count(tensor.name) == 0 && ours(tensor.name)) {
      refuse(file.path() + " has a tensor \"" + tensor.name + "\" that this run has not");
    }
  }
}

}  // namespace

std::map<std::string, FileWriter> file_writers(const Parts& parts) {
  // The shards keep their tensors alive for as long as the writers live.
  const auto shards = std::make_shared<std::vector<NamedShard>>();
  std::vector<TensorView> model, state;
  for (const auto& [part, saveable] : parts) {
    for (NamedShard& shard : saveable->state()) {
      const bool weights = in_model(part, shard.name);
      const std::string key = weights ? shard.name : part + "/" + shard.name;
      (weights ? model : state).push_back(view_of(shard, key));
      shards->push_back(std::move(shard));
    }
  }
  const auto writer = [shards](std::vector<TensorView> tensors) -> FileWriter {
    return [shards, tensors = std::move(tensors)](const auto& sink) {
      format::write_safetensors(tensors, {{"format", "pt"}}, sink);
    };
  };
  return {{kModelFile, writer(std::move(model))}, {kStateFile, writer(std::move(state))}};
}

void restore(const Parts& parts, const Manifest& manifest, const CheckpointFolder& folder) {
  for (const auto& [part, saveable] : parts) {
    if (manifest.parts.count(part) == 0) {
      refuse(folder.path_of(manifest.step) + " has no part \"" + part + "\"");
    }
    saveable->check_metadata(manifest.parts.at(part));
  }
  const SafetensorsFile model(folder.map(manifest.step, kModelFile));
  const SafetensorsFile state(folder.map(manifest.step, kStateFile));
  std::set<std::string> used_model, used_state;
  for (const auto& [part, saveable] : parts) {
    for (const NamedShard& shard : saveable->state()) {
      if (in_model(part, shard.name)) {
        fill(shard, shard.name, model, used_model);
      } else {
        fill(shard, part + "/" + shard.name, state, used_state);
      }
    }
  }
  refuse_leftovers(model, used_model,
                   [&](const std::string&) { return parts.count(kModelPart) > 0; });
  refuse_leftovers(state, used_state, [&](const std::string& key) {
    return parts.count(key.substr(0, key.find('/'))) > 0;
  });
  for (const auto& [part, saveable] : parts) saveable->restored(manifest.parts.at(part));
}

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
