#include "trireme/base/words.h"
#include "trireme/input/dataset.h"
#include "trireme/input/image_files.h"
#include "trireme/train/config/identity_key.h"
#include "trireme/train/families/data_family.h"

namespace trireme::inline v0::train {
namespace {

class ImageSource final : public DataSource {
 public:
  ImageSource(bool augment, std::uint64_t seed)
      : augment_(augment),
        seed_(seed),
        words_{
            .sample = "image", .items = "samples", .unit = "nats an image", .counted = "images"} {}

  input::Corpus load(const std::string& path) const override { return input::load_images(path); }
  std::string describe(const input::Corpus& corpus) const override {
    const auto count = [](const std::string& records) {
      return counted(static_cast<std::int64_t>(records.size()) / input::kImageRecord, "image");
    };
    return corpus.source + ": " + count(corpus.train) + " to train on, " +
           count(corpus.validation) + " held out";
  }
  std::shared_ptr<const Dataset> train(std::string_view bytes, Owner owner) const override {
    return std::make_shared<ImageDataset>(
        bytes, std::move(owner),
        ImageDataset::Options{.endless = true, .augment = augment_, .seed = seed_});
  }
  std::shared_ptr<const Dataset> validation(std::string_view bytes, Owner owner) const override {
    return std::make_shared<ImageDataset>(bytes, std::move(owner), ImageDataset::Options{});
  }
  const DataWords& words() const override { return words_; }

 private:
  const bool augment_;
  const std::uint64_t seed_;
  const DataWords words_;
};

}  // namespace

std::shared_ptr<const DataSource> image_source(bool augment, std::uint64_t seed) {
  return std::make_shared<ImageSource>(augment, seed);
}

DataFamily image_data() {
  return {.name = "images",
          .keys = {identity_key(
              {"data.augment", true,
               "Images to train on are mirrored at random and moved by up to 4 pixels."})},
          .make = [](const config::Config& config) {
            return image_source(config.boolean("data.augment"),
                                static_cast<std::uint64_t>(config.integer("train.seed")));
          }};
}

}  // namespace trireme::inline v0::train
