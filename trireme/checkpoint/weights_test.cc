#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/format/safetensors.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

torch::nn::Sequential make_net(std::int64_t width = 4) {
  return torch::nn::Sequential(torch::nn::Linear(3, width), torch::nn::BatchNorm1d(width),
                               torch::nn::Linear(width, 2));
}

class WeightsTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string refusal(torch::nn::Sequential net) {
    try {
      load_weights(path_, *net);
    } catch (const CheckpointError& error) {
      return error.message();
    }
    return "accepted";
  }
  std::string path_ =
      ::testing::TempDir() + "weights_" + std::to_string(::getpid()) + ".safetensors";
};

TEST_F(WeightsTest, LoadsWhatItSavedBuffersToo) {
  auto net = make_net();
  net->forward(at::randn({8, 3}));  // changes the running statistics
  save_weights(path_, *net);
  auto other = make_net();
  load_weights(path_, *other);
  for (const auto& item : net->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), other->named_parameters()[item.key()])) << item.key();
    EXPECT_TRUE(other->named_parameters()[item.key()].requires_grad());
  }
  for (const auto& item : net->named_buffers()) {
    EXPECT_TRUE(at::equal(item.value(), other->named_buffers()[item.key()])) << item.key();
  }
  const format::SafetensorsFile file(path_);
  EXPECT_NE(file.find("0.weight"), nullptr);
  EXPECT_NE(file.find("1.num_batches_tracked"), nullptr);
}

TEST_F(WeightsTest, SavesATensorThatIsNotContiguous) {
  auto net = make_net();
  net->ptr<torch::nn::LinearImpl>(0)->weight.set_data(at::arange(12, at::kFloat).view({3, 4}).t());
  save_weights(path_, *net);
  auto other = make_net();
  load_weights(path_, *other);
  EXPECT_TRUE(at::equal(other->ptr<torch::nn::LinearImpl>(0)->weight,
                        at::arange(12, at::kFloat).view({3, 4}).t()));
}

TEST_F(WeightsTest, LoadsABufferThatIsExpanded) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2));
  const at::Tensor mask = net->register_buffer("mask", at::full({1, 4}, 3).expand({8, 4}));
  save_weights(path_, *net);
  mask.select(0, 0).zero_();
  load_weights(path_, *net);
  EXPECT_TRUE(at::equal(mask, at::full({8, 4}, 3)));
}

TEST_F(WeightsTest, RefusesAnotherModuleAndChangesNothing) {
  auto net = make_net();
  save_weights(path_, *net);
  auto wider = make_net(5);
  const at::Tensor before = wider->named_parameters()["0.weight"].clone();
  EXPECT_THAT(refusal(wider), HasSubstr("\"0.weight\" is F32 [4, 3], and F32 [5, 3] is needed"));
  EXPECT_TRUE(at::equal(before, wider->named_parameters()["0.weight"]));
  auto longer = make_net();
  longer->push_back(torch::nn::Linear(2, 2));
  EXPECT_THAT(refusal(longer), HasSubstr("no tensor \"3.weight\""));
  auto shorter = torch::nn::Sequential(torch::nn::Linear(3, 4));
  EXPECT_THAT(refusal(shorter),
              HasSubstr("a tensor \"1.num_batches_tracked\" that the module has not"));
  EXPECT_THROW(load_weights(path_ + ".none", *net), ConfigError);
  EXPECT_THROW(save_weights("/nowhere/at/all.safetensors", *net), ResourceError);
}

TEST_F(WeightsTest, NothingIsLeftOfAFileThatCannotBeWritten) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2));
  net->register_buffer("__metadata__", at::zeros({1}));
  EXPECT_THROW(save_weights(path_, *net), CheckFailure);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

}  // namespace
}  // namespace trireme
