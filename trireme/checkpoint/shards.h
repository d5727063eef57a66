// Writes the tensors of Saveables to the safetensors files of a checkpoint, and restores them on
// any number of ranks.
//
// Tensors of the part "train" whose names have no '/' go to model.safetensors under these names, so
// that Python reads it as a state dict. All others go to state.safetensors as "PART/NAME". A rank
// that writes its own shards has its own files beside them (saved_tensors.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/storage/folder.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::checkpoint {

/// The parts of a checkpoint by name. Does not own them.
using Parts = std::map<std::string, Saveable*>;

/// The place of a shard in a checkpoint.
struct SavedPlace {
  const char* file;
  std::string key;  // the tensor's name there
};
/// CheckFailure if the shard's tensor is not as NamedShard describes it.
SavedPlace place_of(const std::string& part, const NamedShard& shard);
/// Whether a training goes on without tensor `key`, "PART/NAME" (kCompressionPrefix).
bool can_be_left_out(std::string_view key);

/// Collects the shards of all ranks into one checkpoint. A rank that share() has chosen writes its
/// own shards and reports to rank 0. Rank 0 writes all others; these are sent to it one at a time,
/// in the order in which they are written, so it never holds more than one of them. If several
/// ranks have the same shard, the lowest rank's is taken.
///
///     rank 0               Write -> | own files, shards of rank 2 | reports | Write or End ->
///     rank 1, a writer     -> hear  | own files                   | report  | -> hear
///     rank 2               -> hear  | send                                  | -> hear
class CheckpointContent {
 public:
  enum class Word : std::uint8_t { End, Write, Look };  // Write: ranks that do not write send

  /// Calls state() now; the tensors must not change until they have been written, unless snapshot()
  /// has copied them. Collective if `world` is given; null: this rank alone. Throws CheckpointError
  /// on all ranks if a tensor's shards do not cover it, or ranks differ in its type or shape. If
  /// not `to_write`, only has() may be called, and shards may leave gaps.
  CheckpointContent(const Parts& parts, comm::Communicator* world, bool to_write = true);
  ~CheckpointContent();

  /// Copies this rank's shards that the checkpoint takes. Returns the bytes of the copies.
  std::int64_t snapshot();
  /// From now on the shards travel over `group`, a group of the same ranks, and this object may be
  /// used on another thread. The watch of peers sees only the main thread's waits.
  void use_group(std::shared_ptr<comm::Communicator> group);

  /// Breaks the group, so that its waits end. Any thread.
  void abort() noexcept;

  /// Frozen weights of at least this many bytes get their own files. Call it before share().
  void split_frozen(std::size_t least);
  /// Whether a rank other than 0 has at least this many bytes to write.
  bool may_share(std::size_t least) const;
  /// Ranks that see the storage and have at least `least` bytes write them themselves. Call it on
  /// all ranks with equal arguments.
  void share(const std::vector<bool>& sees, std::size_t least);
  /// Whether this rank writes files.
  bool writes() const;

  /// Writers of this rank's files; rank 0 always has kModelFile and kStateFile. Call them in the
  /// order of the file names, each once or, if it is repeatable, more often.
  std::map<std::string, storage::FileWriter> writers();
  /// Rank 0, after writers(): receives and drops the remaining shards, so that no rank waits.
  void drain();
  /// Rank 0: tells the other ranks what to do next.
  void tell(Word word);
  /// Rank 0, after Look: tells all ranks, and returns, which ranks see the mark.
  std::vector<bool> ask(const std::string& mark);
  /// Rank 0, after drain(): waits for the ranks that write.
  std::vector<storage::WrittenFiles> reports();
  /// Whether some rank has a shard of tensor `key` of a file.
  bool has(const std::string& file, const std::string& key) const;
  /// Other ranks: what rank 0 tells.
  Word hear();
  /// Other ranks, after Look: what ask() returns.
  std::vector<bool> answer(const std::function<bool(const std::string& mark)>& sees);
  /// Ranks that do not write: sends the shards that rank 0 needs; returns when rank 0 has them.
  void send();
  /// Other ranks that write, when they have done so.
  void report(const storage::WrittenFiles& written);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Fills every shard of every part and calls restored(). Ignores parts of the checkpoint that are
/// not in `parts`. Throws CheckpointError if a tensor is missing, no rank needs a saved tensor that
/// cannot be left out, a shape or type differs, or weights are NaN. Collective if `world` is given. `reading`, unless it
/// is empty, gets the function that reads this rank's shards and may call it again. If it returns
/// false, restore() returns false and calls no restored(); it must do so on all ranks or none.
bool restore(const Parts& parts, const storage::Manifest& manifest,
             const storage::CheckpointReader& folder, comm::Communicator* world = nullptr,
             const std::function<bool(const std::function<void()>& read)>& reading = {});

}  // namespace trireme::inline v0::checkpoint
