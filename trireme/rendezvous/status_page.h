// StatusPage: what a rank does now, in one page of shared memory.
//
// The rank writes it at every wait (about 30 ns). The launcher made the page and passed it by
// descriptor, so it can read it even after the rank was killed: an error can name the step and the
// operation in which the rank died, or the message with which it ended. Writers of the activity use
// a mutex outside of the page; readers use the sequence number and never block.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"

namespace trireme::inline v0 {
namespace net {
class Transport;
}
namespace rendezvous {

/// A rank is in user code or waits in an operation; `since` is the time since it changed.
struct Activity {
  bool waiting = false;
  std::string operation;  // the operation that it waits in
  std::string last_call;  // the last operation or activity before
  Duration since{};
  long step = -1;
  std::optional<Duration> moved = {};  // time since bytes last moved from or to a peer
};

struct StatusWords {
  static constexpr std::size_t kTextWords = 8;  // 64 bytes of text; longer texts are cut
  using Text = std::array<std::atomic<std::uint64_t>, kTextWords>;
  std::atomic<std::uint32_t> sequence{0};  // odd during a write
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<std::int64_t> since{0};  // steady clock, ns; one clock for the whole host
  std::atomic<std::int64_t> step{-1};
  Text operation{}, last_call{};
  std::array<std::atomic<std::uint64_t>, 128> last_words{};  // the message of a failed rank
};

class StatusPage {
 public:
  /// Takes ownership of `descriptor`; -1: uses private memory.
  explicit StatusPage(int descriptor = -1);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;

  /// Makes a memory file for one page, close-on-exec. The caller closes it.
  static int make_descriptor();

  void set_wait(std::string_view operation, bool waiting, TimePoint now) noexcept;
  void set_activity(std::string_view what, TimePoint now) noexcept;
  void set_step(long step) noexcept;
  /// Sets the transport that read() asks when bytes last moved, while it lives. It is not in the
  /// page, so the launcher does not see it.
  void set_transport(std::weak_ptr<net::Transport> transport);
  Activity read(TimePoint now) const;
  /// The message that this rank ends with; cut at 1 KiB.
  void set_last_words(std::string_view sentence) noexcept;
  std::string last_words() const;

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<net::Transport> transport_;
  StatusWords* words_ = nullptr;
};

}  // namespace rendezvous
}  // namespace trireme::inline v0
