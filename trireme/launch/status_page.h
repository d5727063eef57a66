// StatusPage: what a rank does right now, in one page of shared memory.
//
// The rank writes it at every wait (some 30 ns) and the launcher, which made the page and passed it
// by descriptor, can still read it after the rank was killed: so an error names the step and the
// operation in which the rank died, or the sentence with which it ended. Writers of one process
// take turns by a mutex outside of the page; readers use the sequence number and never block.
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

namespace trireme {
inline namespace v0 {
namespace net {
class Transport;
}
namespace launch {

/// A rank is either in user code or waits in an operation; `since` says how long already.
struct Activity {
  bool waiting = false;
  std::string operation;  // the wait it is in
  std::string last_call;  // the last operation or activity before
  Duration since{};
  long step = -1;
  std::optional<Duration> moved = {};  // how long ago bytes went to or came from a peer
};

struct StatusWords {
  static constexpr std::size_t kTextWords = 8;  // 64 bytes of text, cut
  using Text = std::array<std::atomic<std::uint64_t>, kTextWords>;
  std::atomic<std::uint32_t> sequence{0};  // odd while it is being written
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<std::int64_t> since{0};  // steady clock, ns: one clock for all of a host
  std::atomic<std::int64_t> step{-1};
  Text operation{}, last_call{};
  std::array<std::atomic<std::uint64_t>, 128> last_words{};  // of a rank that fails, and why
};

class StatusPage {
 public:
  /// Private memory where `descriptor` is -1; takes the descriptor over otherwise.
  explicit StatusPage(int descriptor = -1);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;

  /// A new memory file for one page, close-on-exec. The caller closes it.
  static int make_descriptor();

  void set_wait(std::string_view operation, bool waiting, TimePoint now) noexcept;
  void set_activity(std::string_view what, TimePoint now) noexcept;
  void set_step(long step) noexcept;
  /// What moves this rank's bytes, by the steady clock: read() asks it from now on, while it lives.
  /// Not in the page: a launcher does not see it.
  void set_transport(std::weak_ptr<const net::Transport> transport);
  Activity read(TimePoint now) const;
  /// The sentence that this rank ends with; cut at 1 KiB.
  void set_last_words(std::string_view sentence) noexcept;
  std::string last_words() const;

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<const net::Transport> transport_;
  StatusWords* words_ = nullptr;
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
