#include "trireme/memory/activation_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/memory/mapped_file.h"
#include "trireme/memory/recompute.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/threads.h"

namespace trireme {
namespace {

using memory::ActivationFile;
using ::testing::HasSubstr;
using Function = std::function<at::Tensor(const at::Tensor&)>;

const std::string kFolder = std::filesystem::temp_directory_path();

at::Tensor filled(at::IntArrayRef sizes, const std::string& name) {
  at::Tensor tensor = at::empty(sizes);
  tensor::fill_normal(tensor, 3, name, 0, 0.3);
  return tensor;
}

// Has dropout, a batch norm that updates its statistics, an in-place ReLU, a transposed and a
// narrowed view, and integers.
struct Net {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(4, 4, 3).padding(1).bias(false)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear linear{64, 64};
  at::Tensor table = filled({50, 64}, "table").requires_grad_(true);
  Net() {
    const at::NoGradGuard off;
    conv->weight.copy_(filled(conv->weight.sizes(), "conv"));
    linear->weight.copy_(filled(linear->weight.sizes(), "linear"));
    linear->bias.zero_();
  }
  std::vector<at::Tensor> parameters() const {
    return {conv->weight, norm->weight, norm->bias, linear->weight, linear->bias, table};
  }
  std::vector<Function> blocks() {
    return {[this](const at::Tensor& x) {
              return norm->forward(conv->forward(x.view({-1, 4, 8, 64}))).relu_();
            },
            [this](const at::Tensor& x) {
              const at::Tensor dropped = torch::dropout(linear->forward(x), 0.3, true);
              return at::gelu(dropped).transpose(1, 2) * x.transpose(1, 2);
            },
            [this](const at::Tensor& x) {
              const at::Tensor rows = at::arange(x.numel() / 64, at::kLong) % 50;
              return x.reshape({-1, 64}).narrow(1, 8, 48).exp() *
                     at::embedding(table, rows).narrow(1, 0, 48);
            },
            [](const at::Tensor& x) { return at::softmax(x, 1).cumsum(0); }};
  }
};

at::Tensor input() { return filled({64, 4, 8, 64}, "x"); }

// Results of two steps: losses, gradients, statistics. `around` runs a block.
std::vector<at::Tensor> train(
    const std::function<at::Tensor(const Function& block, const at::Tensor& in)>& around,
    const std::function<void()>& between = [] {}) {
  tensor::set_up_process({.kernel_threads = 2});
  at::manual_seed(5);
  Net net;
  std::vector<at::Tensor> all;
  const at::Tensor x = input().requires_grad_(true);
  for (int step = 0; step < 2; ++step) {
    at::Tensor h = x * 2;
    for (const Function& block : net.blocks()) h = around(block, h);
    const at::Tensor loss = h.sum();
    h.reset();
    between();
    loss.backward();
    all.push_back(loss.detach());
  }
  all.push_back(x.grad());
  for (const at::Tensor& p : net.parameters()) all.push_back(p.grad());
  all.insert(all.end(), {net.norm->running_mean, net.norm->running_var, at::rand({1})});
  return all;
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(at::equal(got[i], wanted[i])) << "tensor " << i;
}

at::Tensor plainly(const Function& block, const at::Tensor& in) { return block(in); }

void wait_until_written(const ActivationFile& file) {
  while (file.bytes_waiting() > 0) std::this_thread::yield();
}

// Call when the graphs are gone; the background thread may still hold its last slot for a moment.
void wait_until_empty(const ActivationFile& file) {
  while (file.bytes_waiting() + file.bytes_fetched() > 0) std::this_thread::yield();
}

TEST(ActivationFile, ChangesNoBit) {
  const auto wanted = train(plainly);
  // Backward starts while the file is still being written, and after.
  for (const bool waits : {false, true}) {
    ActivationFile file(kFolder);
    const auto got =
        train([&](const Function& block, const at::Tensor& in) { return file.run(block, in); },
              [&] {
                if (waits) wait_until_written(file);
              });
    expect_equal(got, wanted);
    EXPECT_GT(file.bytes(), 4 * input().numel() * 4);
    wait_until_empty(file);
  }
}

TEST(ActivationFile, ChangesNoBitWithRecomputation) {
  ActivationFile file(kFolder);
  const auto got = train([&](const Function& block, const at::Tensor& in) {
    return file.run([&](const at::Tensor& x) { return memory::recompute(block, x); }, in);
  });
  expect_equal(got, train([](const Function& block, const at::Tensor& in) {
                 return memory::recompute(block, in);
               }));
}

// The memory of saved tensors is freed, and they come back from the file.
TEST(ActivationFile, KeepsNothingInMemory) {
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::optional<Weak> saved;
  ActivationFile file(kFolder);
  const at::Tensor x = filled({64, 1024}, "x").requires_grad_(true);
  const at::Tensor y = file.run(
      [&](const at::Tensor& in) {
        const at::Tensor square = in * in;
        saved = square.storage().getWeakStorageImpl();
        return square.pow(3);  // needs its input in backward
      },
      x);
  wait_until_written(file);
  EXPECT_TRUE(saved->expired());
  EXPECT_EQ(file.bytes(), 64 * 1024 * 4) << "x is a leaf, and stays";
  y.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), 6 * x.pow(5)));
}

TEST(ActivationFile, ATensorThatTwoNodesSaveIsWrittenOnce) {
  ActivationFile file(kFolder);
  const at::Tensor x = filled({64, 1024}, "x").requires_grad_(true);
  at::Tensor y;
  {
    const ActivationFile::Block block(file);
    const at::Tensor square = x * x;
    y = square.pow(3) + square.exp() * 0 + square.t().pow(2).t();
  }
  EXPECT_EQ(file.bytes(), 2 * 64 * 1024 * 4) << "square, and its exponential";
  y.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), 6 * x.pow(5) + 4 * x.pow(3)));
}

TEST(ActivationFile, IsUsedAgain) {
  ActivationFile file(kFolder);
  const auto around = [&](const Function& block, const at::Tensor& in) {
    return file.run(block, in);
  };
  train(around);
  const std::int64_t bytes = file.bytes();
  for (int time = 0; time < 4; ++time) train(around);
  EXPECT_LT(file.bytes(), 2 * bytes) << "the thread may have one in hand when the next is taken";
}

TEST(ActivationFile, ReadsTwiceAndFromOtherThreadsAndWithoutTheFileObject) {
  auto file = std::make_unique<ActivationFile>(kFolder);
  const at::Tensor x = filled({64, 1024}, "x").requires_grad_(true);
  const at::Tensor y = file->run([](const at::Tensor& in) { return (in * in).pow(3); }, x);
  wait_until_written(*file);
  y.sum().backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  file.reset();
  std::thread([&] { y.sum().backward(); }).join();
  EXPECT_TRUE(at::equal(x.grad(), 2 * once));
}

// The error is the one of LibTorch without the file. Small tensors do not go to the file.
TEST(ActivationFile, WhatIsChangedInPlaceAfterItWasSavedIsRefused) {
  const Function changes_a_value = [](const at::Tensor& in) {
    const at::Tensor square = in * in;
    const at::Tensor power = square.pow(3);
    square.add_(1);
    return power + square;
  };
  const Function changes_a_constant = [](const at::Tensor& in) {
    const at::Tensor mask = at::ones_like(in);
    const at::Tensor masked = in * mask;
    mask.zero_();
    return masked;
  };
  for (const std::int64_t rows : {1, 64}) {
    for (const Function& block : {changes_a_value, changes_a_constant}) {
      const at::Tensor x = filled({rows, 1024}, "x").requires_grad_(true);
      EXPECT_THROW(block(x).sum().backward(), c10::Error);
      ActivationFile file(kFolder);
      const at::Tensor y = file.run(block, x);
      wait_until_written(file);
      EXPECT_THROW(y.sum().backward(), c10::Error) << rows;
    }
  }
}

TEST(ActivationFile, OutsideABlockGraphsKeepTheirOwn) {
  ActivationFile file(kFolder);
  const at::Tensor x = filled({64, 1024}, "x").requires_grad_(true);
  { const ActivationFile::Block block(file); }
  const at::Tensor y = (x * x).pow(3);
  {
    const at::NoGradGuard off;
    file.run([](const at::Tensor& in) { return (in * in).pow(3); }, x);
  }
  EXPECT_EQ(file.bytes(), 0);
  y.sum().backward();
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return std::to_string(error.exit_code()) + ": " + error.what();
  }
  return "nothing was thrown";
}

TEST(ActivationFile, ItsThreadsTakeNoSignals) {
  const std::set<std::string> before = testing::threads();
  const ActivationFile file(kFolder);
  std::set<std::string> own = testing::threads();
  for (const std::string& one : before) own.erase(one);
  EXPECT_FALSE(own.empty());
  for (const std::string& one : own) EXPECT_TRUE(testing::blocks(one, SIGTERM)) << one;
}

// The thread that writes is held when it frees a tensor that it wrote. Without any patience, the
// second block after it gives up.
TEST(ActivationFile, GivesUpOnADiskThatWritesNothing) {
  const auto held = std::make_shared<std::atomic<bool>>(true);
  const auto holds_its_writer = [held, own = std::this_thread::get_id()] {
    at::Tensor content = at::zeros({1 << 12});
    void* const data = content.data_ptr();
    return at::from_blob(data, {1 << 12}, [held, own, kept = std::move(content)](void*) {
      if (std::this_thread::get_id() != own) held->wait(true);
    });
  };
  ActivationFile file(kFolder, Duration::zero());
  const at::Tensor x = at::ones({1}).requires_grad_(true);
  const std::string said = refusal([&] {
    std::vector<at::Tensor> graphs;
    for (int block = 0; block < 100; ++block)  // this thread may be the one that frees, sometimes
      graphs.push_back(file.run([&](const at::Tensor& in) { return in * holds_its_writer(); }, x));
  });
  *held = false;
  held->notify_all();
  EXPECT_THAT(said, HasSubstr("170: no activation was written for 0"));
  EXPECT_THAT(said, HasSubstr(kFolder));
}

TEST(ActivationFile, SaysWhereItCannotBe) {
  EXPECT_THAT(refusal([] { ActivationFile file("/nowhere/at/all"); }),
              HasSubstr("2: memory.offload_activations = \"/nowhere/at/all\": there is no such "
                        "folder"));
}

// While it lives, files grow to 1 MiB: the limit RLIMIT_FSIZE stands for a full disk.
class FullDisk {
 public:
  FullDisk() {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*const handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

// A view of a data set must not take the whole data set with it.
TEST(ActivationFile, StoresTheElementsOfASmallViewOnly) {
  const at::Tensor all = filled({4096, 63}, "all");
  for (const std::int64_t rows : {256, 2}) {
    const auto gradient = [&](ActivationFile* file, bool changed = false) {
      const at::Tensor weight = filled({63, 8}, "weight").requires_grad_(true);
      const at::Tensor part = all.narrow(0, 3, rows);
      const Function block = [&](const at::Tensor& x) { return at::matmul(x, weight); };
      const at::Tensor y = file != nullptr ? file->run(block, part) : block(part);
      if (file != nullptr) wait_until_written(*file);
      if (changed) part.add_(0);
      y.sum().backward();
      return weight.grad();
    };
    ActivationFile file(kFolder);
    EXPECT_TRUE(at::equal(gradient(&file), gradient(nullptr)));
    EXPECT_LE(file.bytes(), rows == 2 ? 0 : 256 * 64 * 4);
    EXPECT_THROW(gradient(&file, /*changed=*/true), c10::Error);
  }
}

TEST(ActivationFile, ASmallViewThatTwoNodesSaveIsWrittenOnce) {
  const at::Tensor all = filled({4096, 64}, "all");
  const auto gradient = [&](ActivationFile* file) {
    const at::Tensor a = filled({256, 64}, "a").requires_grad_(true);
    const at::Tensor b = filled({256, 64}, "b").requires_grad_(true);
    const Function block = [&](const at::Tensor& x) { return a * x + b * x.view_as(x); };
    const at::Tensor y =
        file != nullptr ? file->run(block, all.narrow(0, 3, 256)) : block(all.narrow(0, 3, 256));
    y.sum().backward();
    return at::stack({a.grad(), b.grad()});
  };
  ActivationFile file(kFolder);
  EXPECT_TRUE(at::equal(gradient(&file), gradient(nullptr)));
  EXPECT_EQ(file.bytes(), 256 * 64 * 4);
}

TEST(ActivationFile, SaysThatTheDiskIsFull) {
  const FullDisk full;
  const std::string said = refusal([] {
    ActivationFile file(kFolder);
    file.run([](const at::Tensor& in) { return (in * in).pow(3); },
             filled({1024, 1024}, "x").requires_grad_(true));
  });
  EXPECT_THAT(said, HasSubstr("the file cannot grow by 4.2 MB in"));
  EXPECT_THAT(said, HasSubstr("memory.offload_activations"));
}

TEST(ActivationFile, OnAFullDiskLargeRegionsServeSmallTensors) {
  memory::MappedFile file(kFolder, {.key = "key", .prefix = "test", .content = "a test's bytes"});
  const FullDisk full;
  const memory::MappedFile::Region large = file.take(1 << 20);
  file.give_back(large);
  const memory::MappedFile::Region small = file.take(1 << 12);
  EXPECT_EQ(small.offset, large.offset);
  EXPECT_THAT(refusal([&] { file.take(1 << 12); }), HasSubstr("the file cannot grow by"));
  file.give_back(small);
  EXPECT_EQ(file.take(1 << 20).offset, large.offset);
}

}  // namespace
}  // namespace trireme
