#include "trireme/base/words.h"
#include "trireme/input/tensor_rows.h"
#include "trireme/train/families/data_family.h"

namespace trireme::inline v0::train {
namespace {

using input::TensorRows;

class TensorSource final : public DataSource {
 public:
  TensorSource(std::string name, ReadTensors read, DataWords words, std::uint64_t seed)
      : name_(std::move(name)), read_(std::move(read)), seed_(seed), words_(std::move(words)) {}

  input::Corpus load(const std::string& path) const override {
    const TensorSets sets = read_(path);
    input::Corpus corpus;
    corpus.train = input::pack_rows(sets.train, "the samples of " + name_ + " to train on");
    corpus.validation = input::pack_rows(sets.validation, "the held-out samples of " + name_);
    corpus.source = path.empty() ? name_ : path;
    input::set_hash(corpus);
    return corpus;
  }
  std::string describe(const input::Corpus& corpus) const override {
    const auto count = [](const std::string& bytes) {
      return grouped(static_cast<long>(TensorRows::count(bytes)));
    };
    return corpus.source + ": " + count(corpus.train) + " " + words_.sample + "s to train on, " +
           count(corpus.validation) + " held out";
  }
  std::shared_ptr<const Dataset> train(std::string_view bytes, Owner owner) const override {
    return rows(bytes, std::move(owner), true);
  }
  std::shared_ptr<const Dataset> validation(std::string_view bytes, Owner owner) const override {
    return rows(bytes, std::move(owner), false);
  }
  const DataWords& words() const override { return words_; }

 private:
  std::shared_ptr<const Dataset> rows(std::string_view bytes, Owner owner, bool endless) const {
    return std::make_shared<TensorRows>(
        bytes, std::move(owner),
        TensorRows::Options{
            .endless = endless, .seed = seed_, .items_per_sample = words_.items_per_sample});
  }

  const std::string name_;
  const ReadTensors read_;
  const std::uint64_t seed_;
  const DataWords words_;
};

}  // namespace

DataWords words_of_samples() {
  return {.sample = "sample", .items = "samples", .unit = "", .counted = "samples"};
}

std::shared_ptr<const DataSource> tensor_source(std::string name, ReadTensors read, DataWords words,
                                                std::uint64_t seed) {
  return std::make_shared<TensorSource>(std::move(name), std::move(read), std::move(words), seed);
}

}  // namespace trireme::inline v0::train
