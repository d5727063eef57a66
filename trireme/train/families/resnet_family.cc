#include "trireme/input/dataset.h"
#include "trireme/input/image_files.h"
#include "trireme/models/figures.h"
#include "trireme/train/config/identity_key.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {
namespace {

std::vector<config::Key> resnet_keys() {
  return {identity_key({"model.width", std::int64_t{64},
                        "Channels of the first stage; doubled in each of the others.", 1, 4096})};
}

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
          .keys = resnet_keys(),
          .data = "images",
          .loss = "classes",
          .make = make_resnet_model};
}

}  // namespace trireme::inline v0::train
