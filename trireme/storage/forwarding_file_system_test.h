// ForwardingFileSystem: this machine's file system, for tests that change one of its calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/storage/file_system.h"

namespace trireme::inline v0::storage {

class ForwardingFileSystem : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return inner_->create(path);
  }
  std::unique_ptr<InputFile> open(const std::string& path) override { return inner_->open(path); }
  void make_directory(const std::string& path) override { inner_->make_directory(path); }
  void rename(const std::string& a, const std::string& b) override { inner_->rename(a, b); }
  bool link(const std::string& a, const std::string& b) override { return inner_->link(a, b); }
  void remove(const std::string& path) override { inner_->remove(path); }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  void sync(const std::string& path) override { inner_->sync(path); }
  std::shared_ptr<void> lock(const std::string& path) override { return inner_->lock(path); }

 private:
  const std::shared_ptr<FileSystem> inner_ = local_file_system();
};

}  // namespace trireme::inline v0::storage
