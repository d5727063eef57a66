// The state of the fake GPUs: memory, events, streams. One process-wide object, one lock.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_gpu.h"

namespace trireme::test {

/// Returns true when it has been carried out.
using FakeOp = std::function<bool()>;

struct FakeStream {
  std::deque<FakeOp> ops;
};
/// The point where an event was last recorded; true once reached.
using FakeMark = std::shared_ptr<bool>;
struct FakeEvent {
  FakeMark mark;
};

struct FakeState {
  static FakeState& get();

  void violate(const std::string& what) {
    if (violation.empty()) violation = what;
  }
  void touch(const void* at, std::size_t bytes, const std::string& who);
  /// The stream of a handle; null stands for the current context's default stream.
  FakeStream& stream(void* handle);
  void push(void* handle, FakeOp op) { stream(handle).ops.push_back(std::move(op)); }
  /// Carries out every operation that can run.
  void pump();
  /// The GPU whose context is current in this thread; -1 and a violation if there is none.
  int current();
  void* context() const;

  std::recursive_mutex mutex;
  std::string violation;
  int num_gpus = 8;
  int latency = 3;
  std::uint64_t looks = 0;  // event queries
  bool frozen = false, frozen_for_good = false, gates_open = true, takes_kernels = true;
  std::set<int> broken, refused;
  std::map<int, int> async_errors;
  std::map<std::string, int> calls;
  std::map<const std::byte*, std::size_t> memory;  // live blocks
  std::map<void*, std::unique_ptr<FakeStream>> streams;
  std::map<void*, FakeStream> default_streams;  // by context
  std::set<void*> comms;
  int aborting = 0;  // calls of ncclCommAbort that have not returned
};

inline std::unique_lock<std::recursive_mutex> locked() {
  return std::unique_lock(FakeState::get().mutex);
}

}  // namespace trireme::test
