#include "trireme/train/families/model_family.h"

#include <algorithm>
#include <utility>

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/models/server_embedding.h"
#include "trireme/tensor/allocation.h"
#include "trireme/train/families/registry.h"

namespace trireme::inline v0::train {
namespace {

Registry<ModelFamily>& families() {
  static Registry<ModelFamily> all("model", {gpt_family(), resnet18_family(), bert_family(),
                                             dlrm_family(), wide_and_deep_family()});
  return all;
}

void check_uses(const ModelFamily& family) {
  const std::string whose = "the model \"" + family.name + "\" trains ";
  if (find_data(family.data) == nullptr)
    refuse("register", whose + "on the data \"" + family.data + "\", which is not registered",
           "Use one of " + joined(data_names()) + ".");
  if (find_loss(family.loss) == nullptr)
    refuse("register", whose + "with the loss \"" + family.loss + "\", which is not registered",
           "Use one of " + joined(loss_names()) + ".");
}

std::string& chosen() {
  static std::string name = "gpt";
  return name;
}

}  // namespace

const std::string& default_model() { return chosen(); }
void choose_default_model(std::string name) { chosen() = std::move(name); }

void register_model(ModelFamily family) {
  for (const config::Key& key : family.keys)
    if (!key.name.starts_with("model.") || key.name == "model.name")
      refuse("register", "the model \"" + family.name + "\" cannot have the key " + key.name,
             "Call it model.SOMETHING, but not model.name.");
  check_uses(family);
  families().add(std::move(family));
}
const ModelFamily* find_model(const std::string& name) { return families().find(name); }
std::vector<std::string> model_names() { return families().names(); }

TrainingModel make_model(const config::Config& config) {
  tensor::name_allocation_failures();  // blocks may be built to count their parameters
  const DataFamily& data = *find_data(config.text("data.name"));
  std::shared_ptr<const DataSource> source = data.make(config);  // first: refuses unfit models
  TrainingModel model = find_model(config.text("model.name"))->make(config);
  if (!model.figures)
    model.figures = [blocks = model.blocks](std::int64_t, const Examples&) {
      return count_parameters(blocks);
    };
  const LossFamily& loss = *find_loss(config.text("train.loss"));
  model.data = std::move(source);
  model.loss = loss.loss;
  model.correct = loss.correct;
  if (!data.text) model.context = 0;
  return model;
}

Examples examples_of(std::shared_ptr<const Dataset> held_out) {
  if (held_out->size() < 1)
    refuse("data", "the data has no samples to validate on",
           "Let the source's validation() have some.");
  return [held_out = std::move(held_out)](std::int64_t samples) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < samples; ++i) numbers.push_back(i % held_out->size());
    return MicroBatch{.count = held_out->count_items(numbers), .fields = held_out->read(numbers)};
  };
}

void check_reads(const models::Blocks& blocks, const input::Fields& data) {
  std::vector<std::string> fields;
  for (const auto& [name, tensor] : data) fields.push_back(name);
  std::sort(fields.begin(), fields.end());
  std::set<std::string> given(fields.begin(), fields.end());
  for (const models::BlockSpec& spec : blocks.specs()) {
    for (const std::string& name : spec.reads) {
      if (given.contains(name)) continue;
      refuse("model",
             "block \"" + spec.name + "\" reads \"" + name +
                 "\", which no block before it writes and the data does not have",
             "Name a block before it, or a field of the data: " + joined(fields) + ".");
    }
    given.insert(spec.writes);
  }
}

ParameterCount::ParameterCount(const models::Blocks& blocks) {
  for (const models::Tie& tie : blocks.ties()) aliases_.insert(tie.alias);
}

void ParameterCount::add(const std::string& name, const std::shared_ptr<models::Block>& block) {
  if (!models::embeddings_of(block).empty()) figures_.rows_on_servers = true;
  std::int64_t whole = 0;
  for (const models::NamedTensor& parameter : block->parameters()) {
    whole += parameter.tensor.numel();
    if (!aliases_.contains(name + "." + parameter.name))
      figures_.parameters += parameter.tensor.numel();
  }
  figures_.largest_neighbours = std::max(figures_.largest_neighbours, before_ + whole);
  before_ = whole;
}

std::vector<std::string> parameter_names(const models::Blocks& blocks) {
  std::set<std::string> aliases;
  for (const models::Tie& tie : blocks.ties()) aliases.insert(tie.alias);
  std::vector<std::string> names;
  for (const models::BlockSpec& spec : blocks.specs()) {
    for (const models::NamedTensor& parameter : spec.make()->parameters()) {
      std::string name = spec.name + "." + parameter.name;
      if (!aliases.contains(name)) names.push_back(std::move(name));
    }
  }
  return names;
}

ModelFigures count_parameters(const models::Blocks& blocks) {
  ParameterCount count(blocks);
  for (const models::BlockSpec& spec : blocks.specs()) count.add(spec.name, spec.make());
  return count.figures();
}

}  // namespace trireme::inline v0::train
