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
//
// A model over text needs no more. Others say what they train on: images, tensors, a loss.
//
//     app.data("shapes", {{"side", 16, "pixels"}}, read_shapes);
//     app.loss("smoothed", smoothed, matches);
//     app.model("my-cnn", {{"width", 8, "channels"}}, make_my_cnn, {"shapes", "smoothed"});
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/own_families.h"

namespace trireme {
inline namespace v0 {

class App {
 public:
  /// `name`: the program's, as users type it.
  explicit App(std::string name) : name_(std::move(name)) {}
  /// A model with its keys, each {name, default, unit or meaning} and, where wanted, least and
  /// largest value; `make` gets their values. `uses` are the data and the loss that it has where
  /// data.name and train.loss say nothing. What is wrong in these four, run() reports.
  ///
  /// Over text, model.block is the length of a sequence; a key "block" gives it another default.
  /// The model reads the batch field "tokens" [b, T] int64, T at most model.block and its values
  /// below 256 (bytes), and its last block gives logits [b, T, 256]. Over other data its blocks
  /// name the fields that they read: net.add("stem", {"images"}, factory).
  App& model(std::string name, std::vector<ModelKey> keys, ModelFactory make, ModelUses uses = {}) {
    return add([=] { train::register_model(train::own_model(name, keys, make, uses)); }, name);
  }
  /// Tensors by field, those to train on and those held out; `data.name` chooses them. `read` is
  /// called once, in the process that starts the ranks, which share what it gives. What a loss is a
  /// mean over is `words`': samples.
  App& data(std::string name, std::vector<ModelKey> keys, TensorReader read,
            DataWords words = train::words_of_samples()) {
    return add([=] { train::register_data(train::own_data(name, keys, read, words)); });
  }
  /// Data that does not lie in memory as tensors, or draws its samples (train/data_source.h).
  App& data(std::string name, std::vector<ModelKey> keys, SourceFactory make) {
    return add([=] { train::register_data(train::own_data(name, keys, make)); });
  }
  /// A loss, summed over the items of a micro-batch; `train.loss` chooses it. With `correct`, the
  /// number of right answers among them, validation tells their share.
  App& loss(std::string name, Loss loss, Loss correct = {}) {
    return add([=] { train::register_loss({name, loss, correct}); });
  }
  /// Runs the command that argv names; returns the exit code (docs/errors.md).
  int run(int argc, char** argv) const;

 private:
  App& add(std::function<void()> registers, std::string model = {}) {
    // Models name data and losses, wherever these are given.
    (model.empty() ? parts_ : models_).push_back(std::move(registers));
    if (first_model_.empty()) first_model_ = std::move(model);
    return *this;
  }
  std::string name_, first_model_;
  std::vector<std::function<void()>> parts_, models_;
};

}  // namespace v0
}  // namespace trireme
