// Between Saveables and the two safetensors files of a checkpoint: which tensor lies where, writing
// them, and filling them again on any number of ranks.
//
// Part "train": names without a '/' go to model.safetensors under their own names, so that Python
// reads it as a state dict. Everything else goes to state.safetensors as "PART/NAME".
#pragma once

#include <map>
#include <span>
#include <string>

#include "trireme/checkpoint/folder.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace checkpoint {

inline constexpr const char* kModelPart = "train";

/// The parts of a checkpoint by name. Does not own them.
using Parts = std::map<std::string, Saveable*>;

/// Writers for both files. Takes state() now; the tensors must not change until they were written.
/// Shards must be whole tensors (CheckFailure): this release has only replicated state.
std::map<std::string, FileWriter> file_writers(const Parts& parts);

/// Fills every shard of every part and calls restored(). Parts of the checkpoint that are not asked
/// for are left alone. Throws CheckpointError where a tensor is missing, left over, or of another
/// shape or type, with both.
void restore(const Parts& parts, const Manifest& manifest, const CheckpointFolder& folder);

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
