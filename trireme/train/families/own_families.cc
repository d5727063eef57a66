// A program's own models and data (own_parts.h), as families for model.name and data.name.
#include <algorithm>
#include <utility>

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/train/families/model_family.h"
#include "trireme/train/families/model_size.h"
#include "trireme/train/families/module_precision.h"

namespace trireme::inline v0::train {
namespace {

bool has(const std::vector<config::Key>& keys, const std::string& name) {
  return std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key.name == name; });
}

// `whose`: "the model my-gpt"; `table`: "model."; `taken`: keys in it that are built in.
std::vector<config::Key> full_keys(const std::string& whose, const std::string& table,
                                   const std::vector<std::string>& taken,
                                   const std::vector<ModelKey>& keys) {
  std::vector<config::Key> all;
  for (const ModelKey& key : keys) {
    if (key.name.empty() || std::find(taken.begin(), taken.end(), key.name) != taken.end() ||
        key.name.find_first_of(". =\"") != std::string::npos)
      refuse("App", whose + " cannot have a key \"" + key.name + "\"",
             "Use one word without '.', '=' and '\"' that is not a built-in key (" +
                 joined(taken, [&](const std::string& name) { return table + name; }) + ").");
    if (has(all, table + key.name))
      refuse("App", whose + " has two keys \"" + key.name + "\"", "Give each a name of its own.");
    all.push_back({.name = table + key.name,
                   .fallback = key.fallback,
                   .meaning = key.meaning,
                   .minimum = key.minimum,
                   .maximum = key.maximum,
                   .identity = true});
  }
  return all;
}

std::vector<config::Key> model_keys(const std::string& name, const std::vector<ModelKey>& keys,
                                    bool sequences) {
  std::vector<config::Key> all = full_keys("the model " + name, "model.", {"name"}, keys);
  if (!sequences) return all;
  if (!has(all, "model.block")) {
    all.push_back({.name = "model.block",
                   .fallback = std::int64_t{64},
                   .meaning = "tokens of a sequence",
                   .minimum = 1,
                   .maximum = 1e6});
  }
  for (const config::Key& key : all)
    if (key.name == "model.block" && key.type() != config::Type::Integer)
      refuse("App", "the key \"block\" of the model " + name + " is not an integer",
             "It is the length of a sequence, in tokens.");
  return all;
}

// Checks the logits of a model over bytes of text.
void check_logits(const models::Value& value, const MicroBatch& micro) {
  const at::Tensor& tokens = micro.field("tokens");
  const std::int64_t sequences = tokens.size(0), block = tokens.size(1);
  const std::vector<std::int64_t> wanted = {sequences, block, 256};
  if (value.size() == 1 && value[0].sizes() == wanted) return;
  refuse("model",
         "the model gives " + describe_shapes(value) + " for " + std::to_string(sequences) +
             " sequences of " + std::to_string(block) + " bytes",
         "Its last block must give logits [" + std::to_string(sequences) + ", " +
             std::to_string(block) + ", 256]: one for each byte value.");
}

// The loss for measuring figures; for text, it also checks the shape of the logits.
Loss checked_loss(const config::Config& config) {
  const Loss loss = find_loss(config.text("train.loss"))->loss;
  if (config.text("data.name") != "text" || config.text("train.loss") != "tokens") return loss;
  return [loss](const models::Value& output, const MicroBatch& micro) {
    check_logits(output, micro);
    return loss(output, micro);
  };
}

TrainingModel model_of(const ModelValues& values, const models::Blocks& blocks,
                       const config::Config& config) {
  std::string description = values.name();
  if (const std::string summary = values.summary(); !summary.empty()) description += ", " + summary;
  const bool sequences = find_data(config.text("data.name"))->sequences;
  const std::int64_t block = sequences ? values.block() : 0;
  if (sequences) description += ", sequences of " + std::to_string(block) + " bytes";
  return {
      .description = description,
      .blocks = blocks,
      .figures =
          [blocks, loss = checked_loss(config)](std::int64_t samples, const Examples& examples) {
            return measure_size(blocks, examples(samples), loss);
          },
      .context = block};
}

}  // namespace

ModelFamily own_model(const std::string& name, const std::vector<ModelKey>& keys, ModelFactory make,
                      const ModelUses& uses) {
  const DataFamily* data = find_data(uses.data);
  const std::vector<config::Key> own = model_keys(name, keys, data != nullptr && data->sequences);
  return {.name = name,
          .keys = own,
          .data = uses.data,
          .loss = uses.loss,
          .make = [name, own, make = std::move(make)](const config::Config& config) {
            const ModelValues values(name, own, config);
            return model_of(values, in_precision(make(values), values.precision()), config);
          }};
}

DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, TensorReader read,
                    DataWords words) {
  return own_data(
      name, keys,
      [name, read = std::move(read), words = std::move(words)](const DataValues& values) {
        return tensor_source(
            name, [read, values](const std::string& path) { return read(path, values); }, words,
            values.seed());
      });
}

DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys,
                    SourceFactory make) {
  const std::vector<config::Key> own =
      full_keys("the data " + name, "data.", {"name", "path"}, keys);
  return {.name = name,
          .keys = own,
          .make = [name, own, make = std::move(make)](const config::Config& config) {
            return make(DataValues(name, own, config));
          }};
}

}  // namespace trireme::inline v0::train
