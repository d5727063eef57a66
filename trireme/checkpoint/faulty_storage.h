// FaultyStorage: a Storage that fails at its n-th act, as a full disk or as a power cut would.
//
// DiskFull: that act and every later write throws ResourceError; names and removals still work.
// Crash: that act and all after it throw Crashed; files that were not finished keep half of their
// bytes, and folders renamed without a sync of their parent have their old names again. For tests
// only; it lies here because testing/ may not include checkpoint/ (layers.txt).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/storage.h"

namespace trireme {
inline namespace v0 {
namespace checkpoint {

struct Crashed {};

class FaultyStorage final : public Storage {
 public:
  enum class Fault { None, DiskFull, Crash };

  explicit FaultyStorage(Fault fault = Fault::None, int fail_at = 0)
      : inner_(local_storage()), fault_(fault), fail_at_(fail_at) {}

  /// Acts (creates, writes, finishes, renames, …) so far.
  int num_acts() const noexcept { return acts_; }

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    act(true);
    open_.push_back(path);
    return std::make_unique<File>(*this, inner_->create(path), path);
  }
  format::MappedFile map(const std::string& path) override { return inner_->map(path); }
  void make_directory(const std::string& path) override {
    act(true);
    inner_->make_directory(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    act(false);
    inner_->rename(from, to);
    if (std::filesystem::is_directory(to)) renamed_.emplace_back(from, to);
  }
  void remove(const std::string& path) override {
    act(false);
    std::erase_if(renamed_, [&](const auto& pair) { return pair.second == path; });
    inner_->remove(path);
  }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  void sync(const std::string& directory) override {
    act(false);
    inner_->sync(directory);
    renamed_.clear();
  }

 private:
  class File final : public OutputFile {
   public:
    File(FaultyStorage& owner, std::unique_ptr<OutputFile> inner, std::string path)
        : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}
    void write(std::span<const std::byte> bytes) override {
      owner_.act(true);
      inner_->write(bytes);
    }
    void finish() override {
      owner_.act(true);
      inner_->finish();
      std::erase(owner_.open_, path_);
    }

   private:
    FaultyStorage& owner_;
    std::unique_ptr<OutputFile> inner_;
    const std::string path_;
  };

  void act(bool writes) {
    const bool now = acts_++ >= fail_at_;
    if (!now || fault_ == Fault::None) return;
    if (fault_ == Fault::DiskFull) {
      if (writes) throw ResourceError("the disk is full", {.operation = "test"});
      return;
    }
    if (!std::exchange(crashed_, true)) lose_what_was_not_synced();
    throw Crashed{};
  }

  void lose_what_was_not_synced() {
    for (const std::string& path : open_) {
      std::error_code gone;
      const auto size = std::filesystem::file_size(path, gone);
      if (!gone) std::filesystem::resize_file(path, size / 2);
    }
    for (auto pair = renamed_.rbegin(); pair != renamed_.rend(); ++pair) {
      std::filesystem::rename(pair->second, pair->first);
    }
  }

  const std::shared_ptr<Storage> inner_;
  const Fault fault_;
  const int fail_at_;
  int acts_ = 0;
  bool crashed_ = false;
  std::vector<std::string> open_;
  std::vector<std::pair<std::string, std::string>> renamed_;
};

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
