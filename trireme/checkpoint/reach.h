// Reach: which ranks see the storage that rank 0 writes to. Rank 0 writes a mark there, and the
// others look for it. A rank without a shared folder or a network does not find it.
//
// One per Checkpointer; one save at a time uses it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/shards.h"

namespace trireme::inline v0::checkpoint {

class Reach {
 public:
  /// Ranks with at least `least` bytes of shards write them themselves if they see the storage.
  explicit Reach(std::size_t least, std::optional<std::vector<bool>> sees = std::nullopt)
      : least_(least), sees_(std::move(sees)) {}

  /// Whether find() must be called before ranks can share this checkpoint.
  bool is_needed(const CheckpointContent& content) const {
    return !sees_ && content.may_share(least_);
  }
  /// Rank 0: asks the others, and logs the answer. Throws ResourceError if it cannot write the mark
  /// (then nobody was asked) or cannot remove it (then it need not be called again).
  void find(CheckpointContent& content, storage::CheckpointFolder& folder);
  /// Other ranks, after hear() has returned Look.
  void answer(CheckpointContent& content, storage::CheckpointFolder& folder);
  /// If it is known who sees the storage: chooses the writers, and gives the folder rank 0's mark.
  void share(CheckpointContent& content, storage::CheckpointFolder& folder) const;

 private:
  const std::size_t least_;
  std::optional<std::vector<bool>> sees_;  // by rank; equal on all ranks
  std::string mark_;                       // other ranks: the mark of rank 0's folder
};

}  // namespace trireme::inline v0::checkpoint
