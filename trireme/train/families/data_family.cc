#include "trireme/train/families/data_family.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/sum.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/families/registry.h"

namespace trireme::inline v0::train {
namespace {

Registry<DataFamily>& data() {
  static Registry<DataFamily> all("kind of data",
                                  {text_data(), masked_text_data(), image_data(), criteo_data()});
  return all;
}

Registry<LossFamily>& losses() {
  static Registry<LossFamily> all("loss", {{.name = "tokens", .loss = token_loss()},
                                           {"classes", token_loss(), class_matches()},
                                           {"binary", binary_loss(), binary_matches()}});
  return all;
}

}  // namespace

void register_data(DataFamily family) {
  for (config::Key& key : family.keys) {
    if (!key.name.starts_with("data.") || key.name == "data.name" || key.name == "data.path")
      throw ConfigError("the data \"" + family.name + "\" cannot have the key " + key.name,
                        {.operation = "register",
                         .advice = "Call it data.SOMETHING, but not data.name or data.path."});
  }
  data().add(std::move(family));
}
const DataFamily* find_data(const std::string& name) { return data().find(name); }
std::vector<std::string> data_names() { return data().names(); }

void register_loss(LossFamily family) { losses().add(std::move(family)); }
const LossFamily* find_loss(const std::string& name) { return losses().find(name); }
std::vector<std::string> loss_names() { return losses().names(); }

Loss class_matches() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return at::sum(at::eq(at::argmax(output.at(0), -1), micro.field("targets")));
  };
}

}  // namespace trireme::inline v0::train
