// FaultyFileSystem: a FileSystem that fails from its n-th operation on, like a full disk or a power cut.
// For tests only; it is here because testing/ may not include checkpoint/ (layers.txt).
//
// DiskFull: every write from then on throws ResourceError; renames and removals still work. Crash:
// every operation from then on throws Crashed, and the folder `root` has what a disk may hold then
// (Loss). It tracks what is on the disk for sure: a file's content at finish(), a folder's names at
// sync(). A file that is being rewritten has its old content, or half of the new one.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/storage/file_system.h"

namespace trireme::inline v0::storage {

struct Crashed {};

class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault { None, DiskFull, Crash };
  /// The part of all unsynced data that a crash loses. All: everything. Ends: the second half of each
  /// unfinished file. Some: each name and each content by chance.
  enum class Loss { All, Ends, Some };

  explicit FaultyFileSystem(Fault fault = Fault::None, int fail_at = 0, std::string root = "",
                            Loss loss = Loss::Ends)
      : inner_(local_file_system()),
        fault_(fault),
        fail_at_(fail_at),
        root_(std::move(root)),
        loss_(loss),
        random_(static_cast<unsigned>(fail_at)) {
    if (!root_.empty()) tree_ = read(root_);
  }

  /// Operations so far (creates, writes, finishes, renames, ...).
  int num_acts() const noexcept { return acts_; }

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    act(true);
    auto inner = inner_->create(path);
    if (auto [folder, name] = find(path); folder) {
      auto& node = folder->names[name];
      if (!node || node->is_folder) node = std::make_shared<Node>();
      node->content.clear();
      node->finished = false;
    }
    return std::make_unique<File>(*this, std::move(inner), path);
  }
  std::unique_ptr<InputFile> open(const std::string& path) override { return inner_->open(path); }
  void make_directory(const std::string& path) override {
    act(true);
    inner_->make_directory(path);
    if (path.starts_with(root_) && path != root_) make_nodes(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    act(false);
    inner_->rename(from, to);
    const auto [old_folder, old_name] = find(from);
    const auto [folder, name] = find(to);
    if (!old_folder || !folder) return;
    folder->names[name] = old_folder->names[old_name];
    old_folder->names.erase(old_name);
  }
  bool link(const std::string& from, const std::string& to) override {
    act(true);
    if (!inner_->link(from, to)) return false;
    const auto [folder, name] = find(to);
    if (folder) folder->names[name] = node_of(from);
    return true;
  }
  void remove(const std::string& path) override {
    act(false);
    inner_->remove(path);
    if (const auto [folder, name] = find(path); folder && folder->names.contains(name)) {
      folder->names[name]->names.clear();  // of a folder, all that is in it
      folder->names.erase(name);
    }
  }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  void sync(const std::string& directory) override {
    act(false);
    inner_->sync(directory);
    if (const auto node = directory == root_ ? tree_ : node_of(directory)) node->kept = node->names;
  }
  std::shared_ptr<void> lock(const std::string& directory) override {
    return inner_->lock(directory);
  }

 private:
  // A file or a folder: as programs see it, and as the disk has it (`kept`).
  struct Node {
    bool is_folder = false;
    std::map<std::string, std::shared_ptr<Node>> names, kept;
    std::string content, kept_content;
    bool finished = true;
  };

  class File final : public OutputFile {
   public:
    File(FaultyFileSystem& owner, std::unique_ptr<OutputFile> inner, const std::string& path)
        : owner_(owner), inner_(std::move(inner)), node_(owner.node_of(path)) {}
    void write(std::span<const std::byte> bytes) override {
      owner_.act(true);
      inner_->write(bytes);
      if (node_) node_->content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void finish() override {
      owner_.act(true);
      inner_->finish();
      if (!node_) return;
      node_->kept_content = node_->content;
      node_->finished = true;
    }

   private:
    FaultyFileSystem& owner_;
    std::unique_ptr<OutputFile> inner_;
    const std::shared_ptr<Node> node_;
  };

  void act(bool writes) {
    const bool now = acts_++ >= fail_at_;
    if (!now || fault_ == Fault::None) return;
    if (fault_ == Fault::DiskFull) {
      if (writes) throw ResourceError("the disk is full", {.operation = "test"});
      return;
    }
    if (!std::exchange(crashed_, true) && tree_) {
      std::filesystem::remove_all(root_);
      write_out(*tree_, root_);
    }
    throw Crashed{};
  }

  static std::shared_ptr<Node> read(const std::filesystem::path& path) {
    auto node = std::make_shared<Node>();
    node->is_folder = std::filesystem::is_directory(path);
    if (node->is_folder) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        node->names[entry.path().filename().string()] = read(entry.path());
      node->kept = node->names;
    } else {
      std::ostringstream text;
      text << std::ifstream(path, std::ios::binary).rdbuf();
      node->content = node->kept_content = text.str();
    }
    return node;
  }

  // The folder that holds `path`, and its name there; null outside `root`.
  std::pair<std::shared_ptr<Node>, std::string> find(const std::string& path) const {
    if (!tree_ || !path.starts_with(root_ + "/")) return {};
    std::istringstream parts(path.substr(root_.size() + 1));
    std::shared_ptr<Node> folder = tree_;
    std::string name, next;
    std::getline(parts, name, '/');
    while (std::getline(parts, next, '/')) {
      const auto found = folder->names.find(name);
      if (found == folder->names.end()) return {};
      folder = found->second;
      name = next;
    }
    return {folder, name};
  }
  std::shared_ptr<Node> node_of(const std::string& path) const {
    const auto [folder, name] = find(path);
    if (!folder) return nullptr;
    const auto found = folder->names.find(name);
    return found == folder->names.end() ? nullptr : found->second;
  }

  // make_directory() syncs these names.
  void make_nodes(const std::string& path) {
    if (!tree_ || path.size() <= root_.size() || node_of(path)) return;
    make_nodes(path.substr(0, path.rfind('/')));
    const auto [folder, name] = find(path);
    auto node = std::make_shared<Node>();
    node->is_folder = true;
    folder->names[name] = folder->kept[name] = node;
  }

  bool by_chance() { return random_() % 2 == 0; }

  void write_out(const Node& node, const std::filesystem::path& path) {
    if (!node.is_folder) {
      const bool lost = loss_ == Loss::All || (loss_ == Loss::Some && by_chance());
      std::ofstream(path, std::ios::binary)
          << (node.finished || lost ? node.kept_content
                                    : node.content.substr(0, node.content.size() / 2));
      return;
    }
    std::filesystem::create_directory(path);
    auto names = loss_ == Loss::All ? node.kept : node.names;
    if (loss_ == Loss::Some) {
      names = node.kept;
      for (const auto& [name, child] : node.kept)
        if (!node.names.contains(name) && by_chance()) names.erase(name);
      for (const auto& [name, child] : node.names)
        if (by_chance()) names[name] = child;
    }
    for (const auto& [name, child] : names) write_out(*child, path / name);
  }

  const std::shared_ptr<FileSystem> inner_;
  const Fault fault_;
  const int fail_at_;
  const std::string root_;
  const Loss loss_;
  std::mt19937 random_;
  std::shared_ptr<Node> tree_;  // of `root`; null if there is none
  int acts_ = 0;
  bool crashed_ = false;
};

}  // namespace trireme::inline v0::storage
