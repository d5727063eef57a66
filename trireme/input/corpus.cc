#include "trireme/input/corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/sha256.h"
#include "trireme/input/compiler_headers.h"

namespace trireme::inline v0::input {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string relative;  // path within its folder; used to sort and to hash
  std::string path;
};

std::vector<File> files_in(const std::vector<std::string>& folders) {
  std::vector<File> files;
  for (const std::string& folder : folders) {
    std::error_code failure;
    fs::recursive_directory_iterator entry(folder, failure);
    for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
      std::error_code vanished;  // set for a dangling link, which is skipped
      if (entry->is_regular_file(vanished)) {
        files.push_back(
            {fs::path(entry->path()).lexically_relative(folder).string(), entry->path().string()});
      }
    }
    if (failure) {
      refuse("data", "cannot read the folder " + folder + ": " + failure.message(),
             "Check the path and its permissions.");
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(a.relative, a.path) < std::tie(b.relative, b.path);
  });
  return files;
}

// Not mapped: this process would end if another one cut the file meanwhile (SIGBUS).
std::string bytes_of(const std::string& path) {
  const auto cannot_read = [&](const std::string& reason) {
    refuse("data", "cannot read " + path + ": " + reason, "Check the path and its permissions.");
  };
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!failure && !fs::is_regular_file(status)) cannot_read("not a regular file");
  const std::uintmax_t size = fs::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  if (failure || !file) cannot_read(failure ? failure.message() : std::strerror(errno));
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size)))
    cannot_read("it ends after " + std::to_string(file.gcount()) + " of its " +
                std::to_string(size) + " bytes");
  return bytes;
}

void split_by_length(std::string text, Corpus& corpus) {
  const std::size_t train = text.size() / 10 * 9 + text.size() % 10 * 9 / 10;
  corpus.validation = text.substr(train);
  text.resize(train);
  corpus.train = std::move(text);
}

void split_by_file(const std::vector<File>& files, Corpus& corpus) {
  std::vector<bool> held(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) held[i] = held_out(files[i].relative);
  // Few files may all fall on one side; then the last one is held out.
  const auto num_held = std::count(held.begin(), held.end(), true);
  if (num_held == 0 || num_held == static_cast<std::ptrdiff_t>(held.size())) {
    std::fill(held.begin(), held.end(), false);
    held.back() = true;
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    (held[i] ? corpus.validation : corpus.train) += bytes_of(files[i].path);
}

void require_length(const Corpus& corpus, std::int64_t block) {
  const auto check = [&](const std::string& part, const char* name) {
    if (static_cast<std::int64_t>(part.size()) > block) return;
    refuse("data",
           "the " + std::string(name) + " part of " + corpus.source +
               " is too short: " + std::to_string(part.size()) + " bytes, but a block of " +
               std::to_string(block) + " needs at least " + std::to_string(block + 1),
           "Give a longer text, or a smaller model.block.");
  };
  check(corpus.train, "training");
  check(corpus.validation, "validation");
}

Corpus read_path(const std::string& path) {
  Corpus corpus;
  corpus.source = path;
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) {
    refuse("data", "there is no file or folder " + path, "Check data.path (--data).");
  }
  if (!fs::is_directory(status)) {
    split_by_length(bytes_of(path), corpus);
    if (corpus.validation.empty())
      refuse("data", path + " is empty", "Give a file with text in it.");
    corpus.num_files = 1;
    return corpus;
  }
  const std::vector<File> files = files_in({path});
  if (files.empty())
    refuse("data", "the folder " + path + " holds no files", "Check data.path (--data).");
  corpus.num_files = static_cast<std::int64_t>(files.size());
  if (files.size() == 1) {
    split_by_length(bytes_of(files.front().path), corpus);
  } else {
    split_by_file(files, corpus);
  }
  if (corpus.train.empty() && corpus.validation.empty()) {
    refuse("data", "the files in " + path + " are empty", "Give a folder with text in it.");
  }
  return corpus;
}

Corpus read_compiler_headers() {
  Corpus corpus;
  const std::vector<std::string> folders = compiler_header_folders();
  corpus.source = "C++ library headers in " + joined(folders);
  const std::vector<File> files = files_in(folders);
  if (files.empty()) {
    refuse("data", corpus.source + ": there are none",
           "Install the C++ library's headers, or give your own text with --data FILE-or-FOLDER.");
  }
  corpus.num_files = static_cast<std::int64_t>(files.size());
  split_by_file(files, corpus);
  return corpus;
}

}  // namespace

bool held_out(const std::string& relative_path) {
  const std::string digest =
      sha256_hex(std::as_bytes(std::span(relative_path.data(), relative_path.size())));
  return std::stoul(digest.substr(0, 8), nullptr, 16) % 10 == 0;
}

Corpus load_corpus(const CorpusOptions& options) {
  Corpus corpus = options.path.empty() ? read_compiler_headers() : read_path(options.path);
  require_length(corpus, options.block);
  set_hash(corpus);
  return corpus;
}

void set_hash(Corpus& corpus) {
  Sha256 hash;
  hash.update(std::to_string(corpus.train.size()) + " ");  // the position of the cut
  hash.update(corpus.train);
  hash.update(corpus.validation);
  corpus.hash = hash.hex();
}

}  // namespace trireme::inline v0::input
