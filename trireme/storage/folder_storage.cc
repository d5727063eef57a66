// Folders of a file system: a draft is a folder ".tmp-NAME-MARK", which publish() renames to NAME.
#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/storage/folder.h"

namespace trireme::inline v0::storage {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kDying = "old-";

struct Split {
  std::string folder, name;
};

Split split_path(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string temporary_of(const std::string& path, std::string_view kind = "") {
  const auto [folder, name] = split_path(path);
  return folder + "/" + std::string(kTemporary) + std::string(kind) + name;
}

// The name without ".tmp-" if an unfinished draft or removal has left it; nullopt for all other
// names, which are not ours. Earlier versions wrote no marks.
std::optional<std::string_view> leftover(std::string_view name) {
  if (!name.starts_with(kTemporary)) return std::nullopt;
  name.remove_prefix(kTemporary.size());
  std::string_view step = name;
  if (step.starts_with(kDying)) step.remove_prefix(kDying.size());
  const auto dash = step.rfind('-');
  const bool marked = is_mark(step.substr(dash + 1));
  return step_of_folder(marked ? step.substr(0, dash) : step) ? std::optional(name) : std::nullopt;
}

void write_text(FileSystem& files, const std::string& path, const std::string& text) {
  const auto file = files.create(path);
  file->write(std::as_bytes(std::span(text)));
  file->finish();
}

class FolderDraft final : public Draft {
 public:
  FolderDraft(std::shared_ptr<FileSystem> files, const std::string& path, const std::string& mark,
              bool joined)
      : files_(std::move(files)),
        path_(path),
        temporary_(temporary_of(path + "-" + mark)),
        joined_(joined) {
    if (!joined_) files_->make_directory(temporary_);
  }
  ~FolderDraft() override {
    if (published_ || joined_) return;
    try {
      files_->remove(temporary_);  // also frees the space
    } catch (...) {                // the next draft removes it
    }
  }

  std::unique_ptr<OutputFile> create(const std::string& name) override {
    return files_->create(temporary_ + "/" + name);
  }
  bool reuse(const std::string& name, const std::string& path) override {
    return files_->link(path, temporary_ + "/" + name);
  }
  void publish(const std::string& manifest) override {
    write_text(*files_, temporary_ + "/" + kManifestFile, manifest);
    files_->sync(temporary_);
    files_->rename(temporary_, path_);
    published_ = true;
    files_->sync(split_path(path_).folder);
  }

 private:
  const std::shared_ptr<FileSystem> files_;
  const std::string path_, temporary_;
  const bool joined_;
  bool published_ = false;
};

class FolderStorage final : public Storage {
 public:
  explicit FolderStorage(std::shared_ptr<FileSystem> files) : files_(std::move(files)) {}

  std::unique_ptr<Draft> begin(const std::string& path, const std::string& mark) override {
    const std::string folder = split_path(path).folder;
    files_->make_directory(folder);
    for (const std::string& name : files_->list(folder))
      if (const auto rest = leftover(name)) remove_leftover(folder + "/" + std::string(*rest));
    return std::make_unique<FolderDraft>(files_, path, mark, /*joined=*/false);
  }
  std::unique_ptr<Draft> join(const std::string& path, const std::string& mark) override {
    return std::make_unique<FolderDraft>(files_, path, mark, /*joined=*/true);
  }
  std::unique_ptr<InputFile> open(const std::string& path) override { return files_->open(path); }
  void put(const std::string& path, const std::string& text) override {
    const std::string temporary = temporary_of(path);
    files_->make_directory(split_path(path).folder);
    write_text(*files_, temporary, text);
    files_->rename(temporary, path);
    files_->sync(split_path(path).folder);
  }
  std::vector<std::string> list(const std::string& path) override {
    std::vector<std::string> names = files_->list(path);
    std::erase_if(names, [](const auto& name) { return name.starts_with(kTemporary); });
    return names;
  }
  // The new name is on the disk before a file is removed: a crash leaves no incomplete folder.
  void remove(const std::string& path) override {
    const auto [folder, name] = split_path(path);
    const std::vector<std::string> names = files_->list(folder);
    if (std::find(names.begin(), names.end(), name) == names.end()) return;
    const std::string dying = temporary_of(path, kDying);
    files_->rename(path, dying);
    files_->sync(folder);
    files_->remove(dying);
  }
  std::shared_ptr<void> lock(const std::string& path) override { return files_->lock(path); }
  bool is_remote() const noexcept override { return false; }

 private:
  // Renamed first: a process that still writes there must not publish what is left of its files.
  void remove_leftover(const std::string& path) {
    const bool dies = split_path(path).name.starts_with(kDying);
    const std::string dying = temporary_of(path, dies ? "" : kDying);
    try {
      if (!dies) files_->rename(temporary_of(path), dying);
      files_->remove(dying);
    } catch (const ResourceError&) {  // NFS keeps a file that another process has open
    }
  }

  const std::shared_ptr<FileSystem> files_;
};

}  // namespace

std::shared_ptr<Storage> folder_storage(std::shared_ptr<FileSystem> files) {
  return std::make_shared<FolderStorage>(std::move(files));
}

}  // namespace trireme::inline v0::storage
