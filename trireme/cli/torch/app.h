// App: the whole command `trireme` for a user's own model: train, resume, eval, plan, ...
//
//     int main(int argc, char** argv) {
//       trireme::App app("my_trainer");
//       app.model("my-gpt", {{"width", 256, "channels"}, {"layers", 4, "blocks"}}, make_my_gpt);
//       return app.run(argc, argv);
//     }
//
// `./my_trainer train my.toml --ranks 4` starts this same program as its ranks. The configuration
// keys are model.width and model.layers; `train --help-config` lists them, and they are checked
// like built-in keys. `model.name` chooses the model; the default is the first one.
//
// A model over text needs no more. Others name their data (images, tensors) and their loss.
//
//     app.data("shapes", {{"side", 16, "pixels"}}, read_shapes);
//     app.loss("smoothed", smoothed, matches);
//     app.model("my-cnn", {{"width", 8, "channels"}}, make_my_cnn, {"shapes", "smoothed"});
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/strategy/strategy.h"
#include "trireme/train/families/own_parts.h"

namespace trireme::inline v0 {

class App {
 public:
  /// `name`: the program's name, as users type it.
  explicit App(std::string name) : name_(std::move(name)) {}
  /// Adds a model with its keys, each {name, default, unit or meaning} and optionally the least and
  /// the largest value; `make` gets their values. `uses` are the defaults of data.name and
  /// train.loss. run() reports errors in these four arguments.
  ///
  /// On text, model.block is the length of a sequence; a key "block" gives it another default.
  /// The model reads the batch field "tokens" [b, T] int64, T at most model.block and its values
  /// below 256 (bytes), and its last block returns logits [b, T, 256]. On other data, the blocks
  /// name the fields that they read: net.add("stem", {"images"}, factory).
  App& model(std::string name, std::vector<ModelKey> keys, ModelFactory make, ModelUses uses = {});
  /// Adds data: tensors by field, for training and for validation; `data.name` chooses it. `read`
  /// is called once, in the process that starts the ranks, and the ranks share its result. `words`
  /// names the items over which the loss is averaged; by default, samples.
  App& data(std::string name, std::vector<ModelKey> keys, TensorReader read,
            DataWords words = train::words_of_samples());
  /// Adds data other than tensors in memory, or that draws samples (train/families/own_parts.h).
  App& data(std::string name, std::vector<ModelKey> keys, SourceFactory make);
  /// Adds a loss, summed over the items of a micro-batch; `train.loss` chooses it. `correct` counts
  /// the right answers of a micro-batch; with it, validation reports the accuracy.
  App& loss(std::string name, Loss loss, Loss correct = {});
  /// Runs the command that argv names; returns the exit code (docs/errors.md).
  int run(int argc, char** argv) const;

 private:
  std::string name_, first_model_;
  // Models are registered last, since they name data and losses.
  std::vector<std::function<void()>> parts_, models_;
};

}  // namespace trireme::inline v0
