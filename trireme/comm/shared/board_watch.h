// BoardWatch: the part of an engine that uses the board (board.h), if the ranks can map one
// another's memory. It posts this rank's header of the running call and polls what the call waits
// for: the peers' headers, then its run. It notices peers that have left. Progress context only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "trireme/base/waiter.h"
#include "trireme/comm/calls/call.h"

namespace trireme::inline v0::comm {

class Engine;

class BoardWatch final : public ProgressSource {
 public:
  explicit BoardWatch(Engine& engine) : engine_(engine) {}

  /// Posts the running call's header; Engine::on_agreed follows when all ranks have posted theirs.
  void post(const std::shared_ptr<Call>& call);
  /// Polls the running call's run.
  void await_run() noexcept { wait_for(Waits::Run); }
  /// Nothing is waited for any more.
  void stop() noexcept { wait_for(Waits::No); }
  /// Looks for the peers' flags for some microseconds, or until `call` has ended.
  void look_briefly(const Call& call);
  /// True if the running call waits for `peer`.
  bool owes(int peer);
  /// If something is waited for: goes on with what the peers have posted. Returns whether it did.
  bool look();
  /// A transfer failed: fails the engine with a mismatch or peer error on the board, else `error`.
  void transfer_failed(const std::exception_ptr& error) noexcept;

  // ProgressSource:
  bool poll() override;
  bool pending() const noexcept override { return pending_.load(std::memory_order_acquire); }
  int descriptor() const noexcept override { return -1; }  // peers notify through the transport
  void arm(bool) noexcept override {}

 private:
  enum class Waits { No, Headers, Run };
  void wait_for(Waits what) noexcept;
  bool has_posted(int peer, std::uint64_t number) const noexcept;
  int headers_here(std::uint64_t number) const noexcept;
  int check_headers_here(const Call& call);
  bool poll_headers(const std::shared_ptr<Call>& call);
  bool look_for_given_up();

  Engine& engine_;
  std::atomic<bool> pending_{false};
  Waits waits_ = Waits::No;
  std::uint64_t number_ = 0;  // of the last call
  int headers_seen_ = 0;      // of the running call
};

}  // namespace trireme::inline v0::comm
