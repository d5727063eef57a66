// CheckpointReader: finds, verifies and opens a run's checkpoints in a storage, one folder each.
//
//     DIR/step-00000500/{model.safetensors, state.safetensors, ..., manifest.json}    DIR/latest
//
// A checkpoint is complete when its manifest is there (storage.h), and absent until then. Any number
// of processes may read, while one writes or removes checkpoints (folder.h). No LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/storage/manifest.h"
#include "trireme/storage/storage.h"
#include "trireme/storage/verified_file.h"

namespace trireme::inline v0::storage {

/// The file with the weights, and the file with everything else.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kStateFile = "state.safetensors";
/// The part whose weights are in kModelFile under their own names.
inline constexpr const char* kModelPart = "train";

/// Rank `rank`'s file beside rank 0's `file`: "model-3.safetensors", "model-frozen.safetensors".
std::string file_of(const std::string& file, int rank, bool frozen = false);
/// Whether `name` is `file` or one beside it.
bool is_of_file(const std::string& name, const std::string& file);
/// "step-00000500", and back: nullopt for any other name.
std::string name_of_step(std::int64_t step);
std::optional<std::int64_t> step_of_folder(std::string_view name);

class CheckpointReader {
 public:
  CheckpointReader(std::shared_ptr<Storage> storage, std::string directory)
      : storage_(std::move(storage)), directory_(std::move(directory)) {}

  /// The steps of the complete checkpoints, ascending.
  std::vector<std::int64_t> steps() const;
  bool has(std::int64_t step) const;
  const std::string& path() const noexcept { return directory_; }
  /// "DIR/step-00000500".
  std::string path_of(std::int64_t step) const;

  /// Reads the manifest and compares every byte of the files with it. Throws CheckpointError naming
  /// the file and the damage, and the newest older step that is intact.
  Manifest verify(std::int64_t step) const;
  /// Reads the manifest and compares the sizes of the files.
  Manifest look(std::int64_t step) const;
  /// Reads the manifest alone.
  Manifest read_manifest(std::int64_t step) const;
  /// Call it in the handler of `error`, which reading a checkpoint has thrown. Rethrows an error of
  /// the storage. Damage is thrown with the newest older step that is intact. A checkpoint that was
  /// removed meanwhile is a CheckpointError that says so; over NFS the storage seems to fail then.
  [[noreturn]] void refuse(std::int64_t step, const Error& error) const;
  VerifiedFile open(const Manifest& manifest, const std::string& file) const;
  std::string read_text(std::int64_t step, const std::string& file) const;
  bool is_remote() const noexcept { return storage_->is_remote(); }

 protected:
  const std::shared_ptr<Storage> storage_;
  const std::string directory_;
};

}  // namespace trireme::inline v0::storage
