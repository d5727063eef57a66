// NewestCheckpoint: finds the newest checkpoint and loads it on all ranks together.
//
// A job that only reads may find that the training has removed the checkpoint meanwhile; then all
// ranks take a newer one. Each rank asks the storage through the function `ask`, which may call its
// argument again, so that a storage that is away can be waited for while the other ranks wait for
// this one.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/storage/checkpoint_reader.h"

namespace trireme::inline v0::checkpoint {

class NewestCheckpoint {
 public:
  using Ask = std::function<void(const std::function<void()>&)>;
  /// The arguments must outlive this object.
  NewestCheckpoint(Job& job, const CheckpointerOptions& options,
                   const storage::CheckpointReader& folder, Ask ask)
      : job_(job), options_(options), folder_(folder), ask_(std::move(ask)) {}

  /// Its step; 0: none. Of this rank alone.
  std::int64_t step() const;
  /// Collective, while this job saves nothing. Returns the step; 0: no checkpoint. Throws
  /// CheckpointError if it is damaged, or if it was removed and there is no newer one.
  std::int64_t load(const Parts& parts);

 private:
  // Rank 0 broadcasts the step and the manifest's SHA-256: finds a folder that hosts do not share.
  struct Choice {
    std::int64_t step = 0;
    std::array<char, 64> digest{};
  };
  std::int64_t load_agreed(const Parts& parts);
  Deadline deadline() const;
  storage::Manifest find() const;
  Choice agree(const storage::Manifest& found);
  storage::Manifest manifest_of(const Choice& choice) const;
  bool try_load(const Choice& choice, storage::Manifest manifest, const Parts& parts);
  bool read_together(std::int64_t step, const std::function<void()>& read);
  [[noreturn]] void end_without(std::int64_t step);

  Job& job_;
  const CheckpointerOptions& options_;
  const storage::CheckpointReader& folder_;
  const Ask ask_;
  std::exception_ptr removed_;  // why the last try failed, if it did on this rank
};

}  // namespace trireme::inline v0::checkpoint
