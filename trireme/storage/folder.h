// CheckpointFolder: writes and removes a run's checkpoints in a storage, beside reading them.
//
// When a checkpoint is complete, `latest` (a text file with the newest checkpoint's name, for people
// and scripts) is replaced, and old checkpoints are removed. After a crash at any point, the
// checkpoint before is valid. One process writes a checkpoint, and others may add files to it
// (OtherWriters). A job that has lost the place to another one writes nothing more there (guard()).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "trireme/storage/checkpoint_reader.h"
#include "trireme/storage/claim.h"
#include "trireme/storage/retention.h"

namespace trireme::inline v0::storage {

/// Writes one file's bytes, piece by piece, to its argument.
struct FileWriter {
  using Sink = std::function<void(std::span<const std::byte>)>;
  template <class Write>
  FileWriter(Write given, bool repeatable = true)  // NOLINT: a function is one
      : write(std::move(given)), repeatable(repeatable) {}
  std::function<void(const Sink&)> write;
  bool repeatable;  // write() may be called again: first to find out whether the file has changed
};

/// The result of a save that has succeeded.
struct SaveReport {
  std::int64_t written_bytes = 0;
  std::int64_t kept_bytes = 0;  // of files taken over from the checkpoint before
  std::string undone;           // why `latest` is old or old checkpoints are left; or empty
};

/// Rank 0's handle on the other ranks that write files of the same checkpoint.
class OtherWriters {
 public:
  virtual ~OtherWriters() = default;
  /// The folder has begun: the others may join it.
  virtual void start() = 0;
  /// Waits until all others have finished. Throws ResourceError if one has failed.
  virtual WrittenFiles finish() = 0;
};

/// A mark tells drafts apart: this many letters from a to z.
inline constexpr std::size_t kMarkBytes = 16;
bool is_mark(std::string_view text);

class CheckpointFolder final : public CheckpointReader {
 public:
  CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory);
  explicit CheckpointFolder(const Location& location)
      : CheckpointFolder(location.storage, location.path) {}
  CheckpointFolder(std::shared_ptr<FileSystem> files, std::string directory)
      : CheckpointFolder(folder_storage(std::move(files)), std::move(directory)) {}

  /// Writes a checkpoint of a step after all that are there, and fills in `manifest.files`. Then
  /// removes the checkpoints that `keep` does not name. Throws ConfigError if that step or a later one
  /// is there: another job has trained the run. After a ResourceError the older ones are unchanged; the
  /// new one may exist if an answer of the storage was lost. A file of more than a chunk that has not
  /// changed since the checkpoint before is a link to the old file, or a copy in the bucket.
  SaveReport write(Manifest manifest, const std::map<std::string, FileWriter>& files,
                   const Retention& keep, OtherWriters* others = nullptr);
  /// On another rank, between start() and finish() of rank 0's OtherWriters: writes files of the
  /// same checkpoint. Throws ResourceError.
  WrittenFiles write_files(const Manifest& manifest,
                           const std::map<std::string, FileWriter>& files);
  /// From now on the methods that write or remove call `claim`->check(), unless it is null.
  void guard(std::shared_ptr<const Claim> claim) { claim_ = std::move(claim); }
  /// The mark of this object's drafts. Ranks that write files of one checkpoint use rank 0's.
  const std::string& mark() const noexcept { return mark_; }
  void set_mark(std::string mark) { mark_ = std::move(mark); }
  /// Whether this rank finds `mark` in the storage, between rank 0's show_mark() and hide_mark().
  bool sees(const std::string& mark) const;
  void show_mark();
  void hide_mark();
  /// Takes over a checkpoint of another folder: links its files, or copies them where links are
  /// impossible. Older checkpoints here stay. False, without effect, if the other folder has
  /// removed it meanwhile. Throws CheckpointError if the manifest or a file is missing there.
  bool adopt(const CheckpointFolder& other, std::int64_t step);
  /// Removes a checkpoint, if there is one. After a crash it is either complete or absent.
  void remove(std::int64_t step) const;
  /// Removes the checkpoints that `keep` does not name.
  void remove_outdated(const Retention& keep) const;
  /// Removes all checkpoints, the newest last, and `latest`.
  void remove_all() const;

 private:
  WrittenFiles write_all(Draft& draft, const Manifest& manifest,
                         const std::map<std::string, FileWriter>& files) const;
  std::int64_t complete(Draft& draft, Manifest& manifest,
                        const std::map<std::string, FileWriter>& files, OtherWriters* others) const;
  void check_claim() const {
    if (claim_) claim_->check();
  }

  std::string mark_;
  std::shared_ptr<const Claim> claim_;
};

}  // namespace trireme::inline v0::storage
