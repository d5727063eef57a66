#include "trireme/input/image_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/format/gzip.h"

namespace trireme::inline v0::input {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;

std::string read_records(const std::string& path) {
  std::string records = format::read_gzip(path, kMostBytes);
  const auto bytes = static_cast<std::int64_t>(records.size());
  const std::string advice = "data.path takes CIFAR-10's binary version.";
  if (bytes == 0 || bytes % kImageRecord != 0)
    refuse("data",
           path + " has " + std::to_string(bytes) + " bytes, no whole number of records of " +
               std::to_string(kImageRecord),
           advice);
  for (std::int64_t at = 0; at < bytes; at += kImageRecord) {
    const auto label = static_cast<unsigned char>(records[static_cast<std::size_t>(at)]);
    if (label >= kImageClasses)
      refuse("data",
             path + ": record " + std::to_string(at / kImageRecord) + " has the label " +
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
  if (failure)
    refuse("data", "cannot read the folder " + path + ": " + failure.message(),
           "Check data.path and its permissions.");
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const bool train = name.starts_with("data_batch"), test = name.starts_with("test");
    if (!train && !test) continue;
    // `gzip -k` leaves the unpacked file beside the packed one: the same records.
    if (name.ends_with(".gz") &&
        std::binary_search(names.begin(), names.end(), name.substr(0, name.size() - 3)))
      continue;
    (train ? corpus.train : corpus.validation) += read_records(path + "/" + name);
    ++corpus.num_files;
  }
  if (corpus.train.empty() || corpus.validation.empty())
    refuse("data", path + " lacks " + (corpus.train.empty() ? "data_batch*.bin" : "test*.bin"),
           "data.path takes the folder of CIFAR-10's binary version (.bin or .bin.gz).");
}

void read_file(const std::string& path, Corpus& corpus) {
  const std::string records = read_records(path);
  const auto count = static_cast<std::int64_t>(records.size()) / kImageRecord;
  if (count < 2) refuse("data", path + " has one record", "Give a file with more.");
  const auto train = static_cast<std::size_t>((count - (count + 9) / 10) * kImageRecord);
  corpus.train = records.substr(0, train);
  corpus.validation = records.substr(train);
  corpus.num_files = 1;
}

}  // namespace

Corpus load_images(const std::string& path) {
  if (path.empty())
    refuse("data", "no images were given",
           "Set data.path (--data) to a folder or file of CIFAR-10.");
  Corpus corpus;
  corpus.source = path;
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found)
    refuse("data", "there is no file or folder " + path, "Check data.path.");
  fs::is_directory(status) ? read_folder(path, corpus) : read_file(path, corpus);
  set_hash(corpus);
  return corpus;
}

}  // namespace trireme::inline v0::input
