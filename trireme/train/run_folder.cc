#include "trireme/train/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/format/sha256.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_make(const std::string& path, const std::string& reason) {
  throw ResourceError("cannot make the run's folder " + path + ": " + reason,
                      {.operation = "run folder", .advice = "Give another place with --out DIR."});
}

void make_parents(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) cannot_make(path, error.message());
}

}  // namespace

void RunFolder::check_free(const std::string& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return;
  if (!fs::is_directory(out, error)) {
    throw ConfigError("--out " + out + " is a file, not a folder",
                      {.operation = "run folder", .advice = "Give the path of a new folder."});
  }
  if (fs::exists(out + "/config.toml") || fs::exists(out + "/checkpoint")) {
    throw ConfigError("--out " + out + " already holds a run",
                      {.operation = "run folder",
                       .advice = "Continue it with --resume " + out + ", or give another --out."});
  }
  if (!fs::is_empty(out, error)) {
    throw ConfigError("--out " + out + " is not empty",
                      {.operation = "run folder", .advice = "Give the path of a new folder."});
  }
}

RunFolder RunFolder::claim(const std::string& out, const std::string& name) {
  if (!out.empty()) {
    check_free(out);
    make_parents(out);
    if (mkdir(out.c_str(), 0777) != 0 && errno != EEXIST) cannot_make(out, std::strerror(errno));
    return RunFolder(out);
  }
  const std::string first = "runs/" + name;
  make_parents(first);
  for (int number = 1;; ++number) {
    const std::string path = number == 1 ? first : first + "-" + std::to_string(number);
    if (mkdir(path.c_str(), 0777) == 0) return RunFolder(path);
    if (errno != EEXIST) cannot_make(path, std::strerror(errno));
  }
}

RunFolder RunFolder::existing(const std::string& path) {
  std::string clean = path;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  RunFolder folder(clean);
  if (!fs::exists(folder.config())) {
    throw ConfigError(clean + " is not the folder of a run: it has no config.toml",
                      {.operation = "run folder",
                       .advice = "Give the folder that `trireme train` printed, such as "
                                 "runs/gpt-nano."});
  }
  return folder;
}

bool RunFolder::has_checkpoint() const { return fs::exists(checkpoint() + "/latest"); }

void RunFolder::write_config(const config::Config& config) const {
  const std::string identity = config.identity();
  write_whole(this->config(),
              "# The resolved configuration of this run; each value with where it came from.\n"
              "# identity " +
                  format::sha256_hex(std::as_bytes(std::span(identity.data(), identity.size()))) +
                  "\n\n" + config.to_toml());
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  {
    std::ofstream file(next, std::ios::binary | std::ios::trunc);
    file << text;
    if (!file.flush()) {
      throw ResourceError("cannot write " + next + ": " + std::strerror(errno),
                          {.operation = "run folder", .advice = "Free some space there."});
    }
  }
  std::error_code error;
  fs::rename(next, path, error);
  if (error) {
    throw ResourceError("cannot write " + path + ": " + error.message(),
                        {.operation = "run folder"});
  }
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
