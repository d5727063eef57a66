#include "trireme/tensor/convert.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/state.h"

namespace trireme {
namespace {

TEST(Convert, TensorAndBufferShareMemory) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt,
                    at::kShort, at::kChar, at::kByte, at::kBool}) {
    at::Tensor tensor = at::zeros({3, 4}, type);
    const Buffer buffer = tensor::to_buffer(tensor);
    EXPECT_EQ(buffer.data, tensor.data_ptr());
    EXPECT_EQ(buffer.count, 12u);
    EXPECT_EQ(buffer.bytes(), static_cast<std::size_t>(tensor.nbytes()));
    EXPECT_EQ(tensor::scalar_type_of(buffer.dtype), type);
    at::Tensor view = tensor::view_of(buffer.slice(4, 8), {2, 4});
    view.fill_(1);
    EXPECT_EQ(tensor.to(at::kDouble).sum().item<double>(), 8.0) << c10::toString(type);
  }
}

TEST(Convert, BufferAndViewKeepTheMemoryAlive) {
  at::Tensor view;
  {
    at::Tensor tensor = at::full({100}, 7.0f);
    view = tensor::view_of(tensor::to_buffer(tensor));
  }
  EXPECT_EQ(view.sum().item<float>(), 700.0f);
}

TEST(Convert, AShardOfOtherStridesIsACopyThatIsWrittenBack) {
  const at::Tensor plain = at::rand({2, 3});
  const NamedShard shared = tensor::whole_shard("plain", plain);
  EXPECT_EQ(shared.local.data_ptr(), plain.data_ptr());
  EXPECT_FALSE(shared.load);
  for (const at::Tensor& tensor :
       {at::rand({3, 2}).t(), at::rand({2, 1}).expand({2, 3}), at::rand({1, 3}).expand({2, 3})}) {
    const NamedShard shard = tensor::whole_shard("strided", tensor);
    EXPECT_TRUE(shard.local.is_contiguous());
    EXPECT_TRUE(shard.local.equal(tensor));
    shard.load(shard.local + 1);
    EXPECT_TRUE(tensor.equal(shard.local + 1));
    EXPECT_THROW(shard.load(at::ones({1, 3})), CheckpointError);
  }
}

TEST(Convert, RefusesWhatIsNotAPlainPieceOfMemory) {
  EXPECT_THROW(tensor::to_buffer(at::zeros({3, 4}).t()), CheckFailure);
  EXPECT_THROW(tensor::to_buffer(at::zeros({2}, at::kComplexFloat)), ConfigError);
  EXPECT_THROW(tensor::view_of(tensor::to_buffer(at::zeros({3})), {4}), CheckFailure);
  EXPECT_THROW(tensor::compute_type("fp8"), ConfigError);
}

TEST(Batch, NamesTheFieldsThatExist) {
  MicroBatch micro;
  micro.fields = {{"tokens", at::zeros({1})}, {"targets", at::ones({1})}};
  EXPECT_EQ(micro.field("targets").item<float>(), 1.0f);
  try {
    micro.field("labels");
    FAIL() << "found a field that does not exist";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("tokens, targets"), std::string::npos) << error.what();
  }
}

TEST(Determinism, KernelThreadsAreHonoured) {
  for (int threads : {2, 1}) {
    tensor::set_up_process({.kernel_threads = threads});
    EXPECT_EQ(at::get_num_threads(), threads);
  }
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace trireme
