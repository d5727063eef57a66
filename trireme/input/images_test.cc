#include "trireme/input/dataset.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "trireme/base/error.h"
#include "trireme/input/image_files.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

// Record i has label i mod 10, and pixel values that depend on channel, row and column.
std::string records(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x)
          bytes += static_cast<char>(1 + (c * 80 + y * 3 + x * 2 + i) % 255);
  }
  return bytes;
}

struct Images : ::testing::Test {
  std::string folder = ::testing::TempDir() + "images_test";
  Images() { std::filesystem::create_directories(folder); }
  ~Images() override { std::filesystem::remove_all(folder); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  }
  static std::string refusal(const std::string& path) {
    try {
      input::load_images(path);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

std::shared_ptr<const input::ImageDataset> dataset(const std::string& bytes,
                                                   input::ImageDataset::Options options) {
  auto owner = std::make_shared<const std::string>(bytes);
  return std::make_shared<const input::ImageDataset>(*owner, owner, options);
}

TEST_F(Images, AFolderIsCutByTheNamesOfItsFiles) {
  write("data_batch_2.bin", records(3));
  write("data_batch_1.bin", records(5));
  write("test_batch.bin", records(2));
  write("batches.meta.txt", "airplane");
  const input::Corpus corpus = input::load_images(folder);
  EXPECT_EQ(corpus.train, records(5) + records(3));
  EXPECT_EQ(corpus.validation, records(2));
  EXPECT_EQ(corpus.num_files, 3);
  write("test_batch.bin", records(3));
  EXPECT_NE(input::load_images(folder).hash, corpus.hash);
}

TEST_F(Images, APackedFileBesideItsUnpackedOneAddsNothing) {
  write("data_batch_1.bin", records(5));
  write("data_batch_1.bin.gz", records(5));
  write("data_batch_2.bin.gz", records(3));
  write("test_batch.bin", records(2));
  const input::Corpus corpus = input::load_images(folder);
  EXPECT_EQ(corpus.train, records(5) + records(3));
  EXPECT_EQ(corpus.num_files, 3);
}

TEST_F(Images, OfAFileTheLastTenthIsHeldOut) {
  write("all.bin", records(21));
  const input::Corpus corpus = input::load_images(folder + "/all.bin");
  EXPECT_EQ(corpus.train, records(18));
  EXPECT_EQ(corpus.train + corpus.validation, records(21));
}

TEST_F(Images, WhatIsNoSetOfRecordsIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("--data"));
  EXPECT_THAT(refusal(folder + "/no"), HasSubstr("there is no"));
  EXPECT_THAT(refusal(folder + "/" + std::string(300, 'x')), HasSubstr("File name too long"));
  EXPECT_THAT(refusal(folder), HasSubstr("lacks data_batch"));
  write("data_batch_1.bin", records(2));
  EXPECT_THAT(refusal(folder), HasSubstr("lacks test"));
  write("test.bin", records(2) + "x");
  EXPECT_THAT(refusal(folder), HasSubstr("6147 bytes"));
  std::string wrong = records(3);
  wrong[3073] = 10;
  write("test.bin", wrong);
  EXPECT_THAT(refusal(folder), HasSubstr("record 1 has the label 10"));
}

TEST_F(Images, AFolderThatCannotBeReadIsNotTakenForAnEmptyOne) {
  write("data_batch_1.bin", records(2));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const std::string said = refusal(folder);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(said, HasSubstr("cannot read the folder " + folder));
}

TEST_F(Images, AreNormalizedByChannel) {
  const auto data = dataset(records(4), {});
  EXPECT_EQ(data->size(), 4);
  const std::vector<std::int64_t> samples = {3, 0};
  EXPECT_EQ(data->count_items(samples), 2);
  const auto fields = data->read(samples);
  const at::Tensor &images = fields[0].second, &targets = fields[1].second;
  EXPECT_EQ(fields[0].first, "images");
  EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(targets[0].item<std::int64_t>(), 3);
  EXPECT_EQ(targets[1].item<std::int64_t>(), 0);
  const double value = 1 + (2 * 80 + 7 * 3 + 11 * 2 + 3) % 255;
  EXPECT_NEAR(images[0][2][7][11].item<double>(), (value / 255 - 0.4465) / 0.2616, 1e-5);
}

// Every epoch has each record once, in its own order, which does not depend on earlier calls.
TEST_F(Images, TheEndlessOneGoesThroughAllRecordsInEveryEpoch) {
  const auto data = dataset(records(10), {.endless = true, .seed = 3});
  EXPECT_EQ(data->size(), 0);
  std::vector<std::int64_t> first, second;
  for (std::int64_t i = 0; i < 10; ++i) first.push_back(data->record(i));
  for (std::int64_t i = 10; i < 20; ++i) second.push_back(data->record(i));
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(std::set<std::int64_t>(second.begin(), second.end()).size(), 10u);
  const auto other = dataset(records(10), {.endless = true, .seed = 3});
  for (std::int64_t i = 99; i >= 0; i -= 7) EXPECT_EQ(other->record(i), data->record(i));
}

TEST_F(Images, AugmentedOnesAreCropsAndMirrorsThatOnlySeedAndNumberDecide) {
  const std::string bytes = records(10);
  const auto plain = dataset(bytes, {.endless = true, .seed = 3});
  const auto data = dataset(bytes, {.endless = true, .augment = true, .seed = 3});
  std::set<int> moves;
  int mirrors = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    const at::Tensor whole = plain->read(std::vector<std::int64_t>{i})[0].second;
    const at::Tensor image = data->read(std::vector<std::int64_t>{i})[0].second;
    EXPECT_TRUE(
        at::equal(image, data->read(std::vector<std::int64_t>{i, 5})[0].second.narrow(0, 0, 1)));
    // Black outside: the normalized value of byte 0 in each channel.
    std::vector<at::Tensor> padded;
    for (int c = 0; c < 3; ++c)
      padded.push_back(at::constant_pad_nd(whole.narrow(1, c, 1), {4, 4, 4, 4},
                                           (c == 0   ? -0.4914 / 0.2470
                                            : c == 1 ? -0.4822 / 0.2435
                                                     : -0.4465 / 0.2616)));
    const at::Tensor wide = at::cat(padded, 1);
    int found = -1;
    for (int move = 0; move < 2 * 81; ++move) {
      // Mirrored after the crop.
      at::Tensor crop = wide.narrow(2, move / 2 / 9, 32).narrow(3, move / 2 % 9, 32);
      if (move % 2 == 1) crop = crop.flip(3);
      if (at::allclose(image, crop, 1e-5, 1e-5)) found = move;
    }
    EXPECT_GE(found, 0) << "sample " << i;
    moves.insert(found / 2);
    mirrors += found % 2;
  }
  EXPECT_GT(moves.size(), 25u);
  EXPECT_GT(mirrors, 15);
  EXPECT_LT(mirrors, 45);
  const auto another = dataset(bytes, {.endless = true, .augment = true, .seed = 4});
  EXPECT_FALSE(at::equal(another->read(std::vector<std::int64_t>{0})[0].second,
                         data->read(std::vector<std::int64_t>{0})[0].second));
}

TEST(ImageDataset, TakesWholeRecordsAlone) {
  EXPECT_THROW(dataset("", {}), ConfigError);
  EXPECT_THROW(dataset(records(2) + "x", {}), ConfigError);
}

}  // namespace
}  // namespace trireme
