// App: the whole command `trireme` for a model of one's own: train, resume, eval, plan …
//
//     int main(int argc, char** argv) {
//       trireme::App app("my_trainer");
//       app.model("my-gpt", {{"width", 256, "channels"}, {"layers", 4, "blocks"}}, make_my_gpt);
//       return app.run(argc, argv);
//     }
//
// `./my_trainer train my.toml --ranks 4` starts this same program as its ranks. The keys are
// model.width and model.layers in the configuration, listed by `train --help-config` and checked as
// the program's own are; `model.name` says which model, the first one where it says nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/train/model_values.h"

namespace trireme {
inline namespace v0 {

class App {
 public:
  /// `name`: the program's, as users type it.
  explicit App(std::string name) : name_(std::move(name)) {}
  /// A model with its keys, each {name, default, unit or meaning} and, where wanted, least and
  /// largest value; `make` gets their values. model.block, the length of a sequence, is every
  /// model's; a key "block" gives it another default. The model reads the batch field "tokens"
  /// [b, T] int64, T at most model.block and its values below 256 (bytes), and its last block gives
  /// logits [b, T, 256]. What is wrong here, run() reports.
  App& model(std::string name, std::vector<ModelKey> keys, ModelFactory make) {
    models_.push_back({std::move(name), std::move(keys), std::move(make)});
    return *this;
  }
  /// Runs the command that argv names; returns the exit code (docs/errors.md).
  int run(int argc, char** argv) const;

 private:
  struct Own {
    std::string name;
    std::vector<ModelKey> keys;
    ModelFactory make;
  };
  std::string name_;
  std::vector<Own> models_;
};

}  // namespace v0
}  // namespace trireme
