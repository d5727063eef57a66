// The model and the data of images: resnet18 and CIFAR-10.
#include "trireme/base/words.h"
#include "trireme/input/dataset.h"
#include "trireme/input/image_files.h"
#include "trireme/models/figures.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {
namespace {

// CIFAR-10's images (input/dataset.h): fields "images" [b, 3, 32, 32] and "targets" [b]. `seed`
// decides order and augmentation.
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

TrainingModel make_resnet_model(const config::Config& config) {
  const models::ResnetConfig resnet{
      .width = config.integer("model.width"),
      .side = input::kImageSide,
      .classes = input::kImageClasses,
      .precision = config.text("train.precision"),
      .seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
  models::ResnetConfig small = resnet;
  small.width = 1;
  return {.description =
              "ResNet-18 for 32 x 32 images, " + std::to_string(resnet.width) + " channels wide",
          .blocks = models::make_resnet(resnet),
          .figures =
              [resnet](std::int64_t images, const Examples&) {
                return ModelFigures{.parameters = models::num_parameters(resnet),
                                    .largest_neighbours = models::largest_neighbours(resnet),
                                    .activations = models::block_activations(resnet, images),
                                    .temporaries = 0.6,  // measured (docs/design/007)
                                    .flops = models::training_flops(resnet, images),
                                    .kernels = models::kernels(resnet, images),
                                    .shape = parallel::ModelShape{}};
              },
          .names = models::make_resnet(small)};
}

}  // namespace

ModelFamily resnet18_family() {
  return {.name = "resnet18",
          .keys = {{"model.width", std::int64_t{64},
                    "Channels of the first stage; doubled in each of the others.", 1, 4096}},
          .data = "images",
          .loss = "classes",
          .make = make_resnet_model};
}

DataFamily image_data() {
  return {
      .name = "images",
      .keys = {{.name = "data.augment",
                .fallback = true,
                .meaning = "Images to train on are mirrored at random and moved by up to 4 pixels.",
                .identity = true}},
      .make = [](const config::Config& config) {
        return std::make_shared<ImageSource>(
            config.boolean("data.augment"),
            static_cast<std::uint64_t>(config.integer("train.seed")));
      }};
}

}  // namespace trireme::inline v0::train
