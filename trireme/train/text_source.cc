#include "trireme/base/words.h"
#include "trireme/input/masked_text.h"
#include "trireme/train/data_source.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

// Bytes are the tokens: both datasets read the shared text.
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
  std::shared_ptr<const Dataset> train(const SharedBytes& bytes) const override {
    return windows(TextDataset::random_windows(bytes->train(), bytes, block_, seed_));
  }
  std::shared_ptr<const Dataset> validation(const SharedBytes& bytes) const override {
    return windows(TextDataset::fixed_windows(bytes->validation(), bytes, block_));
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

class MaskedSource final : public TextSource {
 public:
  MaskedSource(std::int64_t block, std::uint64_t seed)
      : TextSource(block, seed, {.unit = "nats a hidden byte", .counted = "hidden bytes"}) {}

 protected:
  std::shared_ptr<const Dataset> windows(std::shared_ptr<const TextDataset> text) const override {
    return std::make_shared<MaskedText>(std::move(text), block_, 256, seed_);
  }
};

}  // namespace

std::shared_ptr<const DataSource> text_source(std::int64_t block, std::uint64_t seed) {
  return std::make_shared<TextSource>(block, seed);
}

std::shared_ptr<const DataSource> masked_text_source(std::int64_t block, std::uint64_t seed) {
  return std::make_shared<MaskedSource>(block, seed);
}

std::vector<config::Key> text_keys() {
  return {
      {"data.tokenizer", std::string("bytes"), "How text becomes tokens.", 0, 0, {"bytes"}, true}};
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
