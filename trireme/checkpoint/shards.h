// Between Saveables and the two safetensors files of a checkpoint: which tensor lies where, writing
// them, and filling them again on any number of ranks.
//
// Part "train": names without a '/' go to model.safetensors under their own names, so that Python
// reads it as a state dict. Everything else goes to state.safetensors as "PART/NAME".
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "trireme/checkpoint/folder.h"
#include "trireme/comm/communicator.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace checkpoint {

inline constexpr const char* kModelPart = "train";

/// The parts of a checkpoint by name. Does not own them.
using Parts = std::map<std::string, Saveable*>;

/// The shards of all ranks on their way into one checkpoint that rank 0 writes. Tensors that rank 0
/// has whole are not moved; of the others, pieces come to it one at a time, in the order in which
/// they are written, so it never holds more than one.
class CheckpointContent {
 public:
  /// Takes state() now; the tensors must not change until they were written. Collective where
  /// `world` is given; null: this rank alone. CheckpointError on all ranks where a tensor's shards
  /// leave a part out, or ranks differ in its type or shape.
  /// `to_write` false: for has() alone, and parts may be left out.
  CheckpointContent(const Parts& parts, comm::Communicator* world, bool to_write = true);
  ~CheckpointContent();

  /// Rank 0: writers for both files, to be called in the order of their names, once.
  std::map<std::string, FileWriter> writers();
  /// Rank 0: takes and drops what was not written, after a failure, so that nobody waits.
  void drain();
  /// Whether some rank has a shard of tensor `key` of a file.
  bool has(const std::string& file, const std::string& key) const;
  /// The other ranks: sends what rank 0 does not have, and returns when it was taken.
  void send();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Fills every shard of every part and calls restored(). Parts of the checkpoint that are not asked
/// for are left alone. Throws CheckpointError where a tensor is missing, left over on all ranks, or
/// of another shape or type, with both. Collective where `world` is given.
void restore(const Parts& parts, const Manifest& manifest, const CheckpointFolder& folder,
             comm::Communicator* world = nullptr);

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
