#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/input/masked_text.h"
#include "trireme/train/families/data_family.h"

namespace trireme::inline v0::train {
namespace {

// Tokens are bytes, so both datasets read the shared text without a copy.
class TextSource : public DataSource {
 public:
  TextSource(std::int64_t block, std::uint64_t seed, DataWords words = {})
      : block_(block), seed_(seed), words_(std::move(words)) {
    words_.items_per_sample = block;
  }

  input::Corpus load(const std::string& path) const override {
    return input::load_corpus({.path = path, .block = block_});
  }
  std::string describe(const input::Corpus& corpus) const override {
    std::string line = corpus.source + ": ";
    if (corpus.num_files > 0) line += counted(corpus.num_files, "file") + ", ";
    return line + bytes_text(static_cast<double>(corpus.train.size())) + " to train on, " +
           bytes_text(static_cast<double>(corpus.validation.size())) + " held out";
  }
  std::shared_ptr<const Dataset> train(std::string_view bytes, Owner owner) const override {
    return windows(TextDataset::random_windows({bytes, std::move(owner)}, block_, seed_));
  }
  std::shared_ptr<const Dataset> validation(std::string_view bytes, Owner owner) const override {
    return windows(TextDataset::fixed_windows({bytes, std::move(owner)}, block_));
  }
  const DataWords& words() const override { return words_; }

 protected:
  virtual std::shared_ptr<const Dataset> windows(std::shared_ptr<const TextDataset> text) const {
    return text;
  }
  const std::int64_t block_;
  const std::uint64_t seed_;

 private:
  DataWords words_;
};

// The same windows with some bytes hidden (input/masked_text.h): 257 tokens, of which 256 is the
// mask; "targets" has the original bytes at target positions, -1 elsewhere.
class MaskedSource final : public TextSource {
 public:
  MaskedSource(std::int64_t block, std::uint64_t seed)
      : TextSource(block, seed, {.unit = "nats a hidden byte", .counted = "hidden bytes"}) {}

 protected:
  std::shared_ptr<const Dataset> windows(std::shared_ptr<const TextDataset> text) const override {
    return std::make_shared<MaskedText>(std::move(text), block_, 256, seed_);
  }
};

std::vector<config::Key> text_keys() {
  return {{.name = "data.tokenizer",
           .fallback = std::string("bytes"),
           .meaning = "How text becomes tokens.",
           .choices = {"bytes"},
           .identity = true}};
}

std::int64_t block_of(const config::Config& config, const std::string& name) {
  if (config.schema().find("model.block") != nullptr) return config.integer("model.block");
  throw ConfigError(
      "the data \"" + name + "\" is read in sequences of model.block, and the model " +
          config.text("model.name") + " has no such key",
      {.operation = "config", .advice = "Leave data.name out, or give the model a key block."});
}

std::uint64_t seed_of(const config::Config& config) {
  return static_cast<std::uint64_t>(config.integer("train.seed"));
}

}  // namespace

std::shared_ptr<const DataSource> text_source(std::int64_t block, std::uint64_t seed) {
  return std::make_shared<TextSource>(block, seed);
}

DataFamily text_data() {
  return {.name = "text",
          .keys = text_keys(),
          .sequences = true,
          .text = true,
          .make = [](const config::Config& config) {
            return text_source(block_of(config, "text"), seed_of(config));
          }};
}

DataFamily masked_text_data() {
  return {.name = "masked-text",
          .keys = text_keys(),
          .sequences = true,
          .make = [](const config::Config& config) {
            return std::make_shared<MaskedSource>(block_of(config, "masked-text"), seed_of(config));
          }};
}

}  // namespace trireme::inline v0::train
