// CheckpointFolder: a run's checkpoints in a storage, one folder each, either complete or absent.
//
//     DIR/step-00000500/{model.safetensors, state.safetensors, manifest.json}    DIR/latest
//
// A checkpoint is complete when its manifest is there (storage.h). Then `latest` (a text file with
// the newest checkpoint's name, for people and scripts) is replaced, and old checkpoints are
// removed. After a crash at any point, the checkpoint before is valid. One writer; any number of
// readers. No LibTorch.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/retention.h"
#include "trireme/checkpoint/storage.h"

namespace trireme::inline v0::checkpoint {

/// The file with the weights, and the file with everything else.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kStateFile = "state.safetensors";

/// Writes one file's bytes, piece by piece, to its argument.
using FileWriter = std::function<void(const std::function<void(std::span<const std::byte>)>&)>;

/// 500 for "step-00000500"; nullopt for any other name.
std::optional<std::int64_t> step_of_folder(std::string_view name);

class CheckpointFolder {
 public:
  CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory);
  explicit CheckpointFolder(const Location& location);
  CheckpointFolder(std::shared_ptr<FileSystem> files, std::string directory)
      : CheckpointFolder(folder_storage(std::move(files)), std::move(directory)) {}

  /// Writes a checkpoint of a step that has none, and fills in `manifest.files`. Then removes the
  /// checkpoints that `keep` does not name. If it throws ResourceError, there is no checkpoint of
  /// that step, and the older ones are unchanged. The result says what could not be done once the
  /// checkpoint was complete (replace `latest`, remove old ones); empty if all was.
  std::string write(Manifest manifest, const std::map<std::string, FileWriter>& files,
                    const Retention& keep);
  /// Takes over a checkpoint of another folder: its files get second names here (copies where the
  /// file system has no links, or the storages differ), so they stay whatever happens there. Older
  /// checkpoints stay, too. False, and nothing has changed, if the other folder has removed it
  /// meanwhile.
  bool adopt(const CheckpointFolder& other, std::int64_t step);
  /// Removes a checkpoint. After a crash it is either complete or absent.
  void remove(std::int64_t step) const;
  /// Removes the checkpoints that `keep` does not name.
  void remove_outdated(const Retention& keep) const;
  /// Removes all checkpoints, the newest last, and `latest`.
  void remove_all() const;
  /// The steps of the complete checkpoints, ascending.
  std::vector<std::int64_t> steps() const;
  /// "DIR/step-00000500".
  std::string path_of(std::int64_t step) const;

  /// Reads the manifest and compares every file's size and SHA-256. Throws CheckpointError naming
  /// the file and the damage, and the newest older step that is intact.
  Manifest verify(std::int64_t step) const;
  /// Reads the manifest without comparing the files.
  Manifest read_manifest(std::int64_t step) const;
  /// Compares every file's size and SHA-256 with the manifest. Throws CheckpointError.
  void compare_files(std::int64_t step, const Manifest& manifest) const;
  format::MappedFile map(std::int64_t step, const std::string& file) const;
  bool is_remote() const noexcept { return storage_->is_remote(); }

 private:
  bool take(Draft& draft, const CheckpointFolder& other, std::int64_t step,
            const std::string& name) const;
  void finish_save(std::int64_t step, const Retention& keep) const;

  const std::shared_ptr<Storage> storage_;
  const std::string directory_;
};

}  // namespace trireme::inline v0::checkpoint
