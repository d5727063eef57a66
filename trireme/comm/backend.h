// Backend: one way to run collectives. There are
//
//     rounds/    rounds of messages over a transport; takes every call on CPU memory
//     shared/    direct access to memory that the ranks of a host share
//     native/    the network's own reduction
//     nccl/      the memory of a GPU
//
// The engine checks that all ranks make the same call and asks its backends in turn; the first that
// takes the call makes a Run of it. Progress context only; nothing blocks.
#pragma once

#include <memory>

namespace trireme::inline v0::comm {

struct Call;
class Engine;

/// A run that watches memory instead of waiting for messages. The engine polls it.
class PolledRun {
 public:
  /// True if poll() would find nothing to do. Cheap: only reads flags.
  virtual bool waits() const = 0;
  /// Goes on as far as the peers' flags allow; at the end calls Engine::finish. True if it moved.
  virtual bool poll() = 0;
  /// True if the call waits for `peer`.
  virtual bool owes(int peer) const = 0;

 protected:
  ~PolledRun() = default;
};

/// One call that a backend runs.
class Run {
 public:
  virtual ~Run() = default;
  /// Called before this rank's header goes to the board: may add to Board's slot of the call.
  virtual void announce() {}
  /// Called after the header was sent: may send ahead, before the ranks have agreed.
  virtual void announced() {}
  /// Called when all ranks have made the same call. Ends with Engine::finish.
  virtual void run() = 0;
  /// Called if the engine broke: releases what announced() opened.
  virtual void cancel() noexcept {}
  /// Null if messages drive it.
  virtual PolledRun* polled() noexcept { return nullptr; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Null if this backend does not take the call. Must decide alike on all ranks. May set the
  /// operation's algorithm.
  virtual std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) = 0;
};

/// Takes every call on CPU memory, and keeps each algorithm's resolved routes.
std::unique_ptr<Backend> make_rounds_backend(Engine& engine);
/// Takes calls of the algorithm "direct", and calls that may be direct if every rank can read every
/// other's memory. Requires Engine::arenas.
std::unique_ptr<Backend> make_shared_backend(Engine& engine);
/// mpi-native. Null if the engine's transport does not reduce.
std::unique_ptr<Backend> make_native_backend(Engine& engine);

}  // namespace trireme::inline v0::comm
