// The emulated machine behind the LibTorch backend: devices with memory and streams, events, errors
// and counts. One object a process, made by register_emulated_device() and never destroyed.
//
// Addresses are those that tensors carry. Threads: every function takes the one lock itself.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/testing/emulated_device/device_memory.h"
#include "trireme/testing/emulated_device/emulated_device.h"
#include "trireme/testing/emulated_device/race_check.h"
#include "trireme/testing/emulated_device/streams.h"

namespace trireme::inline v0::testing {

/// Work for a stream.
struct Launch {
  std::string name;
  std::vector<Access> accesses;
  std::function<void()> run;
  /// Points to wait for. The race check ignores them: a program may not rely on this order.
  std::vector<StreamPoint> after = {};
  /// Called when the work is given to a stream, also in each replay of a graph; may be empty.
  std::function<void()> given = {};
};

/// A point of a stream, and the operations that are done there.
struct RecordedEvent {
  StreamPoint point;
  VectorClock known;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;  // null: without timing
};

/// The work of a recorded stream, and the memory that was allocated for it.
struct Recording {
  std::vector<Launch> work;
  std::vector<void*> blocks;
};

class Runtime {
 public:
  static void create(const EmulatedOptions& options);
  /// Throws c10::Error before create() and in a child of fork().
  static Runtime& get();
  /// Null where get() throws.
  static Runtime* find() noexcept;

  int num_devices() const { return num_devices_; }
  std::size_t memory_bytes() const { return memory_bytes_; }
  void check_device(int device) const;

  // Streams. The default stream of a device has the device's number.
  StreamIndex default_stream(int device) const { return static_cast<StreamIndex>(device); }
  StreamIndex pool_stream(int device, bool high_priority);
  StreamIndex new_stream(int device);
  int device_of(StreamIndex stream);
  std::string name_of(StreamIndex stream);

  StreamPoint launch(StreamIndex stream, Launch work);
  /// Orders `after` behind all that was given to `before`, without an event of the program.
  void order(StreamIndex before, StreamIndex after);
  /// Waits for a point. The race check ignores this: a program may not rely on the order.
  void wait(StreamPoint point);
  /// The point after all work of the stream so far.
  StreamPoint end_of(StreamIndex stream);
  void synchronize_stream(StreamIndex stream);
  void synchronize_device(int device);
  bool query_stream(StreamIndex stream);

  // Graphs (runtime_graphs.cc).
  /// From now on the stream's work is kept and not run.
  void begin_recording(StreamIndex stream);
  std::shared_ptr<Recording> end_recording(StreamIndex stream);
  void replay(const Recording& recording, StreamIndex stream);
  /// Frees the blocks that the program has freed; the others become normal blocks.
  void forget(const Recording& recording);

  // Events.
  RecordedEvent record(StreamIndex stream, bool timing);
  void block(StreamIndex stream, const RecordedEvent& event);
  void synchronize_event(const RecordedEvent& event);
  bool query_event(const RecordedEvent& event);
  void note_event_ended_elsewhere();

  // Memory.
  /// Null if the device has no room even after all frees have taken effect.
  void* allocate(int device, std::size_t bytes, StreamIndex stream);
  void free(void* address);
  /// The block is not freed before `stream` has done the work that it has now.
  void record_stream(void* address, StreamIndex stream);
  void adopt_pinned(void* address, std::size_t bytes);
  void forget_pinned(void* address);
  bool is_pinned(const void* address);
  std::size_t pinned_bytes();
  /// Whether all operations that touch the bytes are done.
  bool is_settled(const void* begin, std::size_t bytes);
  /// -1: not on a device.
  int device_of_address(const void* address) const;
  /// The bytes of a device's address, for the executor.
  void* hidden(const void* address) const;

  EmulatedMemory memory(int device);
  void reset_peak(int device);
  std::uint64_t num_out_of_memory(int device);

  /// Throws the error of an operation of `device` that has failed since, once.
  void throw_error_of(int device);

  void reseed(std::uint64_t seed);
  void skip_wait(std::uint64_t n);
  EmulatedStats stats();
  void reset_stats();
  /// Adds to the counts of copies.
  void count_copy(std::uint64_t EmulatedStats::*copies, std::uint64_t EmulatedStats::*bytes,
                  std::uint64_t num_bytes);
  RaceHandler set_race_handler(RaceHandler handler);

 private:
  struct Block {
    std::size_t bytes = 0;
    StreamIndex stream = 0;
    std::vector<StreamIndex> other_streams;
    bool freed = false;
    bool recorded = false;  // a graph keeps it
    bool unused = false;    // the program has freed it
  };
  struct Device {
    explicit Device(std::size_t bytes) : memory(bytes) {}
    DeviceMemory memory;
    std::map<std::byte*, Block> blocks;
    EmulatedMemory counts;
    std::uint64_t num_out_of_memory = 0;
    StreamIndex frees = 0;  // the stream of all frees, so that a free delays no other work
    std::array<std::vector<StreamIndex>, 2> pools;
    std::array<std::size_t, 2> next_of_pool{};
    std::optional<std::string> error;
  };
  struct Stream {
    int device = 0;
    VectorClock known;  // what is done before the stream's next operation
    std::shared_ptr<Recording> recording = nullptr;
  };
  using Lock = Streams::Lock;

  explicit Runtime(const EmulatedOptions& options);
  StreamIndex add_stream(const Lock& lock, int device);
  std::optional<RaceReport> note_accesses(StreamIndex stream, StreamPoint point,
                                          const VectorClock& known, const Launch& work);
  const Block* block_of(const void* address) const;
  void check_not_recorded(StreamIndex stream, const char* what) const;
  void finish_free(int device, std::byte* address, std::size_t bytes);
  RaceReport describe(const Race& race, std::optional<RaceKind> kind) const;
  std::string name_of_locked(StreamIndex stream) const;
  void report(const RaceReport& race);
  void fail(StreamIndex stream, const std::string& name, const std::string& what);

  const int num_devices_;
  const std::size_t memory_bytes_;
  Streams streams_;
  std::deque<Stream> all_;
  std::deque<Device> devices_;
  RaceCheck races_;
  VectorClock host_knows_;  // what a host thread has waited for; all later work comes after that
  std::map<const void*, std::size_t> pinned_;
  std::uint64_t waits_to_skip_ = 0;
  EmulatedStats stats_;
  RaceHandler race_handler_;
};

}  // namespace trireme::inline v0::testing
