#include "trireme/train/model_family.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/tensor/allocation.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "register_model", .advice = advice});
}

// A deque: what find_model() gave out stays where it is.
std::deque<ModelFamily>& families() {
  static std::deque<ModelFamily> all = {gpt_family(), resnet18_family(), bert_family()};
  return all;
}

std::string& chosen() {
  static std::string name = "gpt";
  return name;
}

}  // namespace

const std::string& default_model() { return chosen(); }
void choose_default_model(std::string name) { chosen() = std::move(name); }

void register_model(ModelFamily family) {
  if (family.name.empty()) refuse("a model without a name", "Give it one.");
  if (find_model(family.name) != nullptr)
    refuse("there is a model \"" + family.name + "\" already", "Give it another name.");
  for (config::Key& key : family.keys) {
    const bool of_model = key.name.starts_with("model.");
    if ((!of_model && !key.name.starts_with("data.")) || key.name == "model.name" ||
        key.name == "data.path")
      refuse("key " + key.name + " of model \"" + family.name + "\"",
             "Its keys are model.SOMETHING and data.SOMETHING.");
    key.identity = key.identity || of_model;
  }
  families().push_back(std::move(family));
}

const ModelFamily* find_model(const std::string& name) {
  const auto& all = families();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ModelFamily& family) { return family.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelFamily& family : families()) names.push_back(family.name);
  return names;
}

TrainingModel make_model(const config::Config& config) {
  tensor::name_allocation_failures();  // blocks may be built to count their parameters
  TrainingModel model = find_model(config.text("model.name"))->make(config);
  if (!model.figures)
    model.figures = [blocks = model.blocks](std::int64_t) { return count_parameters(blocks); };
  return model;
}

ParameterCount::ParameterCount(const models::Blocks& blocks) {
  for (const models::Tie& tie : blocks.ties()) aliases_.insert(tie.alias);
}

void ParameterCount::add(const std::string& name, models::Block& block) {
  std::int64_t whole = 0;
  for (const models::NamedTensor& parameter : block.parameters()) {
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
  for (const models::BlockSpec& spec : blocks.specs()) count.add(spec.name, *spec.make());
  return count.figures();
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
