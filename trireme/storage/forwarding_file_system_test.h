// ForwardingFileSystem: this machine's file system, for tests that change one of its calls; and
// AskedFileSystem, which calls a function before each of them.
#pragma once

#include <functional>
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

class AskedFileSystem final : public ForwardingFileSystem {
 public:
  std::function<void()> asked = [] {};

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    asked();
    return std::make_unique<File>(asked, ForwardingFileSystem::create(path));
  }
  std::unique_ptr<InputFile> open(const std::string& path) override {
    asked();
    return ForwardingFileSystem::open(path);
  }
  void make_directory(const std::string& path) override {
    asked();
    ForwardingFileSystem::make_directory(path);
  }
  void rename(const std::string& a, const std::string& b) override {
    asked();
    ForwardingFileSystem::rename(a, b);
  }
  bool link(const std::string& a, const std::string& b) override {
    asked();
    return ForwardingFileSystem::link(a, b);
  }
  void remove(const std::string& path) override {
    asked();
    ForwardingFileSystem::remove(path);
  }
  std::vector<std::string> list(const std::string& path) override {
    asked();
    return ForwardingFileSystem::list(path);
  }
  void sync(const std::string& path) override {
    asked();
    ForwardingFileSystem::sync(path);
  }

 private:
  class File final : public OutputFile {
   public:
    File(std::function<void()>& asked, std::unique_ptr<OutputFile> inner)
        : asked_(asked), inner_(std::move(inner)) {}
    void write(std::span<const std::byte> bytes) override {
      asked_();
      inner_->write(bytes);
    }
    void finish() override {
      asked_();
      inner_->finish();
    }

   private:
    std::function<void()>& asked_;
    const std::unique_ptr<OutputFile> inner_;
  };
};

}  // namespace trireme::inline v0::storage
