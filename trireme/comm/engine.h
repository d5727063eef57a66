// Engine: what stands behind a Communicator. It runs one collective at a time, in the order of the
// calls: header exchange (fingerprints, and the data itself where it fits), then the algorithm.
//
// submit, allocate, abort and the accessors may be called from any thread; everything else runs in
// the progress context of the transport's Waiter. The first error breaks the engine: it aborts the
// transport, after which no buffer is touched any more, and fails every open and later call.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/route.h"
#include "trireme/comm/scratch.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// What a message is for; with the pair of ranks it is the whole tag, since operations follow one
/// another in the same order everywhere.
enum class Channel : std::uint32_t { Header, Data, Locations, Done, Staged };
net::Tag tag_of(Channel channel, std::uint32_t lane = 0) noexcept;

class ProgramRun;
struct Call {
  Operation operation;
  WorkSource source;
  Header own = {};
  std::vector<Header> headers = {};   // of all ranks, once agreed
  std::shared_ptr<ProgramRun> run = nullptr;
};

class Engine final : public WorkOwner, public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options);
  ~Engine() override;

  Work submit(Operation operation, Deadline deadline);
  Arena allocate(std::size_t bytes, Device device);
  void abort(std::exception_ptr error) noexcept;
  std::exception_ptr failure() const noexcept;
  Duration time_waited() const noexcept { return Duration(waited_.load()); }
  const CommunicatorOptions& options() const noexcept { return options_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// True where ranks reach one another's arenas.
  bool can_map() const noexcept { return can_map_; }

  // In the progress context:
  net::Transport& transport() noexcept { return *transport_; }
  Scratch& scratch() noexcept { return scratch_; }
  const net::Region& staging() const noexcept { return staging_; }
  /// The arena that holds [data, data + bytes), with the offset in it; null if none does.
  const net::Region* arena_of(const void* data, std::size_t bytes, std::uint64_t* offset);
  const Route& route_of(const Operation& operation);
  void finish(const std::shared_ptr<Call>& call);
  /// Breaks the engine. Adds what the running call knows (rank, operation, label) to the error.
  void fail(std::exception_ptr error) noexcept;
  bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  void expect(int peer, int change) noexcept { expected_[peer] += change; }

  // WorkOwner:
  Deadline timeout() const noexcept override { return Deadline::in(options_.timeout); }
  TimePoint on_deadline(TimePoint now, Duration waited) override;
  void on_unseen_failure(std::exception_ptr error) noexcept override { abort(std::move(error)); }
  void on_wait_begin(std::string_view description) noexcept override;
  void on_wait_end(std::string_view description, Duration waited) noexcept override;

 private:
  void enqueue(std::shared_ptr<Call> call);
  void pump();
  void begin(const std::shared_ptr<Call>& call);
  void on_agreed(const std::shared_ptr<Call>& call);
  bool check_headers(const Call& call);
  void run_point_to_point(const std::shared_ptr<Call>& call);
  std::exception_ptr timeout_error(Duration waited, int lost_rank) const;
  std::exception_ptr with_context(std::exception_ptr error) const noexcept;
  std::string running_title() const;

  const std::shared_ptr<net::Transport> transport_;
  const CommunicatorOptions options_;
  const std::shared_ptr<Waiter> waiter_;
  const int rank_, size_;
  net::Region staging_;
  bool can_map_ = false;

  struct Known {
    net::Region region;              // without its owner
    std::weak_ptr<void> owner;
  };
  std::vector<Known> arenas_;
  Scratch scratch_;
  std::map<std::string, std::unique_ptr<Route>> routes_;
  std::deque<std::shared_ptr<Call>> queue_;   // front: running
  bool running_ = false, pumping_ = false;
  std::uint64_t calls_ = 0;
  std::vector<int> expected_;                 // messages that each peer still owes

  mutable std::mutex mutex_;                  // failure_, title_
  std::exception_ptr failure_;
  std::string title_;                         // of the running call
  std::atomic<bool> broken_{false};
  std::atomic<std::int64_t> waited_{0};
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
