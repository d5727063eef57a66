#include "trireme/checkpoint/newest.h"

#include <algorithm>
#include <span>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer_options.h"
#include "trireme/job/job.h"

namespace trireme::inline v0::checkpoint {

std::int64_t NewestCheckpoint::step() const {
  const std::vector<std::int64_t> steps = folder_.steps();
  return steps.empty() ? 0 : steps.back();
}

// A rank that refuses a checkpoint says why and ends. The others lose it, and must not be told to
// resume from the last checkpoint.
std::int64_t NewestCheckpoint::load(const Parts& parts) {
  try {
    return load_agreed(parts);
  } catch (const PeerLost& error) {
    ErrorContext context = error.context();
    const bool server = context.operation == "parameter server" || context.operation == "channel";
    if (context.peer < 0 || server) throw;
    context.advice = "See that rank's own last lines: it may have refused the checkpoint.";
    throw PeerLost(error.code(), error.message(), context);
  }
}

std::int64_t NewestCheckpoint::load_agreed(const Parts& parts) {
  for (std::int64_t tried = 0;;) {
    storage::Manifest found;
    if (job_.rank() == 0) ask_([&] { found = find(); });
    const Choice choice = agree(found);
    if (choice.step == 0 && tried == 0) return 0;
    try {
      if (choice.step == 0 || choice.step == tried) end_without(tried);
      if (try_load(choice, std::move(found), parts)) return choice.step;
    } catch (const CheckpointError& error) {
      ErrorContext context = error.context();
      context.rank = job_.rank(), context.host = job_.host_name();
      throw CheckpointError(error.message(), context);
    }
    tried = choice.step;
  }
}

// The manifest of the newest one; step 0 if none. try_load() verifies its bytes.
storage::Manifest NewestCheckpoint::find() const {
  for (;;) {
    const std::int64_t newest = step();
    if (newest == 0) return {};
    try {
      storage::Manifest manifest = folder_.look(newest);
      compare_identity(manifest.identity, options_, folder_.path_of(newest));
      return manifest;
    } catch (const CheckpointError&) {
      if (step() == newest) throw;  // else a running job has removed that one
    }
  }
}

// Other ranks may wait for their storage up to `patience`.
Deadline NewestCheckpoint::deadline() const {
  return Deadline::in(std::max(job_.options().timeout_user_code, 2 * options_.patience));
}

NewestCheckpoint::Choice NewestCheckpoint::agree(const storage::Manifest& found) {
  Choice choice{.step = found.step};
  std::ranges::copy(storage::digest(found), choice.digest.begin());
  const std::span bytes(reinterpret_cast<std::uint8_t*>(&choice), sizeof choice);
  job_.world().broadcast(Buffer::of(bytes), 0, {.label = "checkpoint.resume"}).wait(deadline());
  return choice;
}

storage::Manifest NewestCheckpoint::manifest_of(const Choice& choice) const {
  storage::Manifest manifest = folder_.read_manifest(choice.step);
  if (std::ranges::equal(storage::digest(manifest), choice.digest)) return manifest;
  throw CheckpointError(
      folder_.path_of(choice.step) + " differs from rank 0's",
      {.operation = "resume", .advice = "Put the checkpoint on a disk that all hosts share."});
}

// False on all ranks if the checkpoint was removed meanwhile.
bool NewestCheckpoint::try_load(const Choice& choice, storage::Manifest manifest,
                                const Parts& parts) {
  const auto read_manifest = [&] {
    if (job_.rank() != 0) manifest = manifest_of(choice);
  };
  if (!read_together(choice.step, read_manifest)) return false;
  return restore(parts, manifest, folder_, &job_.world(),
                 [&](const auto& read) { return read_together(choice.step, read); });
}

// Collective: calls `read` on each rank. False on all ranks if the checkpoint was removed meanwhile
// on one of them. An error of another kind is this rank's alone: the others lose this rank.
bool NewestCheckpoint::read_together(std::int64_t step, const std::function<void()>& read) {
  removed_ = nullptr;
  try {
    ask_(read);
  } catch (const CheckpointError&) {
    if (folder_.has(step)) throw;
    removed_ = std::current_exception();
  }
  std::array<std::int64_t, 1> removed{removed_ ? 1 : 0};
  job_.world()
      .all_reduce(Buffer::of(std::span<std::int64_t>(removed)), Max, {.label = "checkpoint.read"})
      .wait(deadline());
  return removed[0] == 0;
}

// The ranks that have seen it say why; the others wait for their end.
void NewestCheckpoint::end_without(std::int64_t step) {
  if (removed_) std::rethrow_exception(removed_);
  job_.world().barrier().wait();
  throw CheckpointError(folder_.path_of(step) + " was removed while it was read",
                        {.operation = "resume"});
}

}  // namespace trireme::inline v0::checkpoint
