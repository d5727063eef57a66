// Message: goes between a launcher and its helpers through pipes and sockets. Helpers are agents on
// other hosts (host_messages.h) and a separate coordinator (coordinator_messages.h).
//
// A message is a line "KIND PROCESS LENGTH..." and then fields of these lengths, in bytes (16 MiB
// each at most). A malformed message is a ConfigError.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/descriptor.h"
#include "trireme/launch/hosts/sources.h"

namespace trireme::inline v0::launch {

/// Throws the ConfigError of a malformed message; `what` says what is wrong.
[[noreturn]] void refuse_message(const std::string& what);

struct Message {
  std::string kind;
  int process = -1;
  std::vector<std::string> fields = {};
  /// Throws ConfigError if there is none.
  const std::string& field(std::size_t index) const;
  long number(std::size_t index) const;
};
std::string encode(const Message& message);
/// A duration as a field, in nanoseconds.
inline std::string text_of(Duration duration) { return std::to_string(duration.count()); }

/// Takes a message from the front of `bytes` if a whole one is there.
bool take_message(std::string& bytes, Message& message);

/// /dev/null, for a process's standard input.
Descriptor empty_input();
/// A close-on-exec copy, with a number above the standard streams'.
Descriptor copy_of(int descriptor);
/// For a helper process: takes the pipe or socket to the launcher from its standard input, which is
/// empty from then on.
Descriptor take_standard_input();

/// Reads messages. `on_message` may throw ConfigError, which ends the stream as a malformed message
/// does; when_finished() tells of the end.
class MessageSource final : public PipeSource {
 public:
  /// `hello`: ignore everything before it.
  MessageSource(int descriptor, std::string_view hello,
                std::function<void(const Message&)> on_message)
      : PipeSource(descriptor), hello_(hello), on_message_(std::move(on_message)) {}
  /// Why the stream ended; empty if the other end closed it.
  const std::string& fault() const noexcept { return fault_; }

 private:
  void take() override;
  std::string hello_, fault_;
  std::function<void(const Message&)> on_message_;
};

/// Sends messages without blocking; bytes that the pipe does not take wait in memory.
class MessageSink final : public ProgressSource {
 public:
  explicit MessageSink(Descriptor descriptor);
  void send(const Message& message) { send_bytes(encode(message)); }
  void send_bytes(std::string_view bytes);
  /// Closes the pipe and drops the waiting bytes.
  void close();
  std::size_t waiting() const noexcept { return bytes_.size(); }
  int pipe() const noexcept { return pipe_.get(); }
  bool poll() override;
  bool pending() const noexcept override { return false; }
  int descriptor() const noexcept override { return ready_.get(); }
  void arm(bool) noexcept override {}

 private:
  void watch(bool on);
  Descriptor pipe_;
  const Descriptor ready_;  // epoll: readable when the pipe has room for waiting bytes
  bool watched_ = false;
  std::string bytes_;
};

}  // namespace trireme::inline v0::launch
