#include "trireme/input/images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/format/gzip.h"
#include "trireme/input/random_below.h"

namespace trireme {
inline namespace v0 {
namespace input {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
constexpr std::int64_t kPlane = kImageSide * kImageSide;
constexpr std::int64_t kPad = 4;
constexpr std::uint64_t kCropStream = 2;  // apart from the streams of epoch_order and text windows
// Of CIFAR-10's 50,000 training images, values from 0 to 1.
constexpr std::array<float, 3> kMean = {0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, 3> kDeviation = {0.2470F, 0.2435F, 0.2616F};

// By channel: what each of the 256 values becomes.
using Tables = std::array<std::array<float, 256>, kImageChannels>;
const Tables& normalized() {
  static const Tables tables = [] {
    Tables all{};
    for (std::size_t c = 0; c < all.size(); ++c)
      for (std::size_t v = 0; v < 256; ++v)
        all[c][v] = (static_cast<float>(v) / 255 - kMean[c]) / kDeviation[c];
    return all;
  }();
  return tables;
}

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "data", .advice = advice});
}

std::string read_records(const std::string& path) {
  std::string records = format::read_gzip(path, kMostBytes);
  const auto bytes = static_cast<std::int64_t>(records.size());
  const std::string advice = "data.path takes CIFAR-10's binary version.";
  if (bytes == 0 || bytes % kImageRecord != 0)
    refuse(path + " has " + std::to_string(bytes) + " bytes, no whole number of records of " +
               std::to_string(kImageRecord),
           advice);
  for (std::int64_t at = 0; at < bytes; at += kImageRecord) {
    const auto label = static_cast<unsigned char>(records[static_cast<std::size_t>(at)]);
    if (label >= kImageClasses)
      refuse(path + ": record " + std::to_string(at / kImageRecord) + " has the label " +
                 std::to_string(label),
             advice);
  }
  return records;
}

bool is_records(const std::string& name) {
  return name.ends_with(".bin") || name.ends_with(".bin.gz");
}

void read_folder(const std::string& path, Corpus& corpus) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(path, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure))
    if (is_records(entry->path().filename().string()))
      names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const bool train = name.starts_with("data_batch"), test = name.starts_with("test");
    if (!train && !test) continue;
    (train ? corpus.train : corpus.validation) += read_records(path + "/" + name);
    ++corpus.num_files;
  }
  if (corpus.train.empty() || corpus.validation.empty())
    refuse(path + " lacks " + (corpus.train.empty() ? "data_batch*.bin" : "test*.bin"),
           "data.path takes the folder of CIFAR-10's binary version (.bin or .bin.gz).");
}

void read_file(const std::string& path, Corpus& corpus) {
  const std::string records = read_records(path);
  const auto count = static_cast<std::int64_t>(records.size()) / kImageRecord;
  if (count < 2) refuse(path + " has one record", "Give a file with more.");
  const auto train = static_cast<std::size_t>((count - (count + 9) / 10) * kImageRecord);
  corpus.train = records.substr(0, train);
  corpus.validation = records.substr(train);
  corpus.num_files = 1;
}

}  // namespace

Corpus load_images(const std::string& path) {
  if (path.empty())
    refuse("no images were given", "Set data.path (--data) to a folder or file of CIFAR-10.");
  Corpus corpus;
  corpus.source = path;
  std::error_code failure;
  if (!fs::exists(path, failure)) refuse("there is no file or folder " + path, "Check data.path.");
  fs::is_directory(path, failure) ? read_folder(path, corpus) : read_file(path, corpus);
  set_hash(corpus);
  return corpus;
}

ImageDataset::ImageDataset(std::string_view records, std::shared_ptr<const void> owner,
                           Options options)
    : records_(records),
      owner_(std::move(owner)),
      options_(options),
      count_(static_cast<std::int64_t>(records.size()) / kImageRecord),
      order_(count_, options.seed) {
  TRIREME_CHECK(count_ > 0);
  TRIREME_CHECK(static_cast<std::int64_t>(records.size()) % kImageRecord == 0);
}

std::int64_t ImageDataset::record(std::int64_t sample) const {
  if (options_.endless) return order_.record(sample);
  TRIREME_CHECK(sample >= 0);
  TRIREME_CHECK(sample < count_);
  return sample;
}

// The picture moved by (down, right) and mirrored or not; what comes in from outside is black.
void ImageDataset::write_image(std::int64_t sample, const unsigned char* pixels, float* out) const {
  std::int64_t down = 0, right = 0;
  bool mirrored = false;
  if (options_.augment) {
    const auto number = static_cast<std::uint64_t>(sample);
    const auto drawn = static_cast<std::int64_t>(
        random_below(2 * (2 * kPad + 1) * (2 * kPad + 1), options_.seed, kCropStream, number));
    mirrored = drawn % 2 == 1;
    down = drawn / 2 % (2 * kPad + 1) - kPad;
    right = drawn / 2 / (2 * kPad + 1) - kPad;
  }
  for (std::int64_t channel = 0; channel < kImageChannels; ++channel) {
    const auto& scaled = normalized()[static_cast<std::size_t>(channel)];
    for (std::int64_t y = 0; y < kImageSide; ++y) {
      for (std::int64_t x = 0; x < kImageSide; ++x) {
        const std::int64_t from_y = y + down;
        const std::int64_t from_x = (mirrored ? kImageSide - 1 - x : x) + right;
        const bool inside =
            from_y >= 0 && from_y < kImageSide && from_x >= 0 && from_x < kImageSide;
        *out++ = scaled[inside ? pixels[channel * kPlane + from_y * kImageSide + from_x] : 0];
      }
    }
  }
}

Fields ImageDataset::read(std::span<const std::int64_t> samples) const {
  const auto rows = static_cast<std::int64_t>(samples.size());
  at::Tensor images =
      at::empty({rows, kImageChannels, kImageSide, kImageSide}, at::TensorOptions(at::kFloat));
  at::Tensor targets = at::empty({rows}, at::TensorOptions(at::kLong));
  const auto* bytes = reinterpret_cast<const unsigned char*>(records_.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    const unsigned char* record_at = bytes + record(sample) * kImageRecord;
    targets.data_ptr<std::int64_t>()[row] = record_at[0];
    write_image(sample, record_at + 1, images.data_ptr<float>() + row * kImageChannels * kPlane);
  }
  return {{"images", std::move(images)}, {"targets", std::move(targets)}};
}

}  // namespace input
}  // namespace v0
}  // namespace trireme
