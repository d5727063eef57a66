// Message: what a launcher and the processes that help it say to each other through pipes and sockets: its
// part on another host (host_messages.h), and a coordinator of its own (coordinator_messages.h).
//
// A message is a line "KIND PROCESS LENGTH..." followed by fields of these lengths. A malformed message
// is a ConfigError.
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

/// Throws the ConfigError about a message that `what` says more of.
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
/// A field: nanoseconds.
inline std::string text_of(Duration duration) { return std::to_string(duration.count()); }

/// Takes a message from the front of `bytes` if a whole one is there.
bool take_message(std::string& bytes, Message& message);

/// /dev/null, to be a process's standard input.
Descriptor empty_input();
/// A copy, close-on-exec, that is none of the standard streams.
Descriptor copy_of(int descriptor);
/// For a process that helps: the pipe or socket to the launcher, which was its standard input. From now on that
/// one is empty.
Descriptor take_standard_input();

/// Reads messages. `on_message` may throw ConfigError, which ends the stream as a malformed message
/// does; when_finished() tells of the end.
class MessageSource final : public PipeSource {
 public:
  /// `hello`: ignore everything before it.
  MessageSource(int descriptor, std::string_view hello,
                std::function<void(const Message&)> on_message)
      : PipeSource(descriptor), hello_(hello), on_message_(std::move(on_message)) {}
  /// Why the stream ended, if it was not its other end; empty otherwise.
  const std::string& fault() const noexcept { return fault_; }

 private:
  void take() override;
  std::string hello_, fault_;
  std::function<void(const Message&)> on_message_;
};

/// Sends messages without blocking: what the pipe does not take waits in memory.
class MessageSink final : public ProgressSource {
 public:
  explicit MessageSink(Descriptor descriptor);
  void send(const Message& message) { send_bytes(encode(message)); }
  void send_bytes(std::string_view bytes);
  /// Closes the pipe, and drops what waits.
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
  const Descriptor ready_;  // epoll: readable when the pipe takes bytes that wait
  bool watched_ = false;
  std::string bytes_;
};

}  // namespace trireme::inline v0::launch
