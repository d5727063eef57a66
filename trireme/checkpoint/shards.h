// Writes the tensors of Saveables to the two safetensors files of a checkpoint, and restores them
// on any number of ranks.
//
// Tensors of the part "train" whose names have no '/' go to model.safetensors under these names, so
// that Python reads it as a state dict. All others go to state.safetensors as "PART/NAME".
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "trireme/checkpoint/folder.h"
#include "trireme/comm/communicator.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::checkpoint {

inline constexpr const char* kModelPart = "train";

/// The parts of a checkpoint by name. Does not own them.
using Parts = std::map<std::string, Saveable*>;

/// Collects the shards of all ranks into one checkpoint, which rank 0 writes. Shards that rank 0
/// has are not moved. The others are sent to it one at a time, in the order in which they are
/// written, so rank 0 never holds more than one of them.
class CheckpointContent {
 public:
  /// Calls state() now; the tensors must not change until they have been written, unless
  /// snapshot() has copied them. Collective if `world` is given; null: this rank alone. Throws
  /// CheckpointError on all ranks if a tensor's shards do not cover it, or ranks differ in its type
  /// or shape. With `to_write` false, only has() may be called, and shards need not cover their
  /// tensors.
  CheckpointContent(const Parts& parts, comm::Communicator* world, bool to_write = true);
  ~CheckpointContent();

  /// Copies this rank's shards that are part of the checkpoint, and lets go of the others. Returns the
  /// bytes of the copies.
  std::int64_t snapshot();
  /// From now on the shards travel over `group`, a group of the same ranks, and this object may be
  /// used on another thread. Its waits say nothing to the watch of peers: the rank's main thread
  /// is what they watch.
  void use_group(std::shared_ptr<comm::Communicator> group);

  /// Breaks the group, so that its waits end. Any thread.
  void abort() noexcept;

  /// Rank 0: writers for both files. Call each once, in the order of the file names.
  std::map<std::string, FileWriter> writers();
  /// Rank 0, after writers(): receives and drops the remaining shards, so that no rank waits.
  void drain();
  /// Rank 0, after drain(): tells the other ranks whether it will write once more.
  void announce(bool again);
  /// Whether some rank has a shard of tensor `key` of a file.
  bool has(const std::string& file, const std::string& key) const;
  /// Other ranks: sends the shards that rank 0 needs; returns when it has received them.
  void send();
  /// Other ranks, after send(): whether rank 0 will write once more.
  bool again();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Fills every shard of every part and calls restored(). Ignores parts of the checkpoint that are
/// not in `parts`. Throws CheckpointError if a tensor is missing, if no rank has a shard of a saved
/// tensor, if a shape or type differs (with both), or if weights are NaN. Collective if `world` is
/// given.
void restore(const Parts& parts, const Manifest& manifest, const CheckpointFolder& folder,
             comm::Communicator* world = nullptr);

}  // namespace trireme::inline v0::checkpoint
