// CheckpointFolder: a run's checkpoints on disk, one folder each, either complete or absent.
//
//     DIR/step-00000500/{model.safetensors, state.safetensors, manifest.json}    DIR/latest
//
// A checkpoint is written under a temporary name, synced, and renamed. Then `latest` (a text file
// with the newest checkpoint's name, for people and scripts) is replaced, and old checkpoints are
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
#include "trireme/checkpoint/storage.h"

namespace trireme::inline v0::checkpoint {

/// The file with the weights, and the file with everything else.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kStateFile = "state.safetensors";

/// Writes one file's bytes, piece by piece, to its argument.
using FileWriter = std::function<void(const std::function<void(std::span<const std::byte>)>&)>;

class CheckpointFolder {
 public:
  CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory);

  /// Writes a checkpoint of a step that has none, and fills in `manifest.files`. Then removes all
  /// but the `keep` newest. If it throws ResourceError, older checkpoints are unchanged.
  void write(Manifest manifest, const std::map<std::string, FileWriter>& files, int keep);
  /// Takes over a checkpoint of another folder: its files get second names here (copies where the
  /// file system has no links), so they stay whatever happens there. Older checkpoints stay, too.
  /// False, and nothing has changed, if the other folder has removed it meanwhile.
  bool adopt(const CheckpointFolder& other, std::int64_t step);
  /// Removes a checkpoint. After a crash it is either complete or absent.
  void remove(std::int64_t step) const;
  /// The steps of the complete checkpoints, ascending.
  std::vector<std::int64_t> steps() const;
  /// "DIR/step-00000500".
  std::string path_of(std::int64_t step) const;

  /// Reads the manifest and compares every file's size and SHA-256. Throws CheckpointError naming
  /// the file and the damage, and the newest older step that is intact.
  Manifest verify(std::int64_t step) const;
  /// Reads the manifest without comparing the files.
  Manifest read_manifest(std::int64_t step) const;
  format::MappedFile map(std::int64_t step, const std::string& file) const;

 private:
  void compare_files(std::int64_t step, const Manifest& manifest) const;
  std::string temporary_of(std::int64_t step) const;
  void publish(std::int64_t step) const;
  void remove_leftovers() const;
  void remove_all_but(int keep) const;
  void point_latest(std::int64_t step) const;

  const std::shared_ptr<Storage> storage_;
  const std::string directory_;
};

}  // namespace trireme::inline v0::checkpoint
