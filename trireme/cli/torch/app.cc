#include "trireme/cli/torch/app.h"

#include <cstdio>

#include "trireme/base/config/config.h"
#include "trireme/base/error.h"
#include "trireme/cli/torch/cli.h"
#include "trireme/train/families/data_family.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0 {

App& App::model(std::string name, std::vector<ModelKey> keys, ModelFactory make, ModelUses uses) {
  models_.push_back([=] { train::register_model(train::own_model(name, keys, make, uses)); });
  if (first_model_.empty()) first_model_ = std::move(name);
  return *this;
}

App& App::data(std::string name, std::vector<ModelKey> keys, TensorReader read, DataWords words) {
  parts_.push_back([=] { train::register_data(train::own_data(name, keys, read, words)); });
  return *this;
}

App& App::data(std::string name, std::vector<ModelKey> keys, SourceFactory make) {
  parts_.push_back([=] { train::register_data(train::own_data(name, keys, make)); });
  return *this;
}

App& App::loss(std::string name, Loss loss, Loss correct) {
  parts_.push_back([=] { train::register_loss({name, loss, correct}); });
  return *this;
}

int App::run(int argc, char** argv) const {
  config::name_program(name_);
  try {
    for (const auto* list : {&parts_, &models_})
      for (const auto& registers : *list) registers();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
  if (!first_model_.empty()) train::choose_default_model(first_model_);
  return cli::run(argc, argv, name_);
}

}  // namespace trireme::inline v0
