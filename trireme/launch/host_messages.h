// What a launcher and its part on another host (host_agent.h) say to each other, through the
// standard input and output of ssh:
//
//   launcher                                     other host
//   setup  folder, secret, meeting place    ->
//                                           <-   ready (the coordinator's address as seen there), or
//                                                refused (exit code, sentence)
//   start p  command, environment           ->
//                                           <-   failed p (exit code, sentence), if it cannot
//   signal p  signal, whole group           ->
//                                           <-   out p, err p  line
//                                           <-   ended p  exit, activity, last words
//   end of the stream: kill all, end        ->
//
// A message is a line "KIND PROCESS LENGTH..." followed by fields of these lengths. Before its
// first message the other host sends kAgentHello, so that what a login shell prints is not taken
// for one. A malformed message is a ConfigError.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/host.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::launch {

inline constexpr std::string_view kAgentHello = "trireme launch-host 1\n";

struct HostMessage {
  std::string kind;
  int process = -1;
  std::vector<std::string> fields = {};
  /// Throws ConfigError if there is none.
  const std::string& field(std::size_t index) const;
  long number(std::size_t index) const;
};
std::string encode(const HostMessage& message);

/// Takes a message from the front of `bytes` if a whole one is there.
bool take_message(std::string& bytes, HostMessage& message);

/// The first message to another host.
struct HostSetup {
  std::string version;      // rendezvous::kWireVersion
  std::string folder;       // in which the processes run
  std::string secret;       // of the job
  std::string coordinator;  // "host:port" as that host reaches it; "ssh:port": ssh's other end
  std::string fallback;     // "host:port" if ssh does not tell its ends
  std::string connection;   // SSH_CONNECTION of the launcher itself
  std::string shared_file;  // must have the same content there; may be empty
  std::string shared_proof;
  int processes = 1;
  int bind = 0;
};
HostMessage message_of(const HostSetup& setup);
HostSetup setup_from(const HostMessage& message);
HostMessage message_of(int process, const StartOptions& options);
StartOptions start_from(const HostMessage& message);
HostMessage message_of(int process, const Ending& ending);
Ending ending_from(const HostMessage& message);

/// Reads messages. `on_message` may throw ConfigError, which ends the stream as a malformed message
/// does; when_finished() tells of the end.
class MessageSource final : public DescriptorSource {
 public:
  /// `hello`: ignore everything before it.
  MessageSource(int descriptor, std::string_view hello,
                std::function<void(const HostMessage&)> on_message);
  bool poll() override;
  /// Why the stream ended, if it was not its other end; empty otherwise.
  const std::string& fault() const noexcept { return fault_; }

 private:
  void take_all();
  std::string hello_, bytes_, fault_;
  std::function<void(const HostMessage&)> on_message_;
};

/// Sends messages without blocking: what the pipe does not take waits in memory.
class MessageSink final : public ProgressSource {
 public:
  explicit MessageSink(net::Descriptor descriptor);
  void send(const HostMessage& message) { send_bytes(encode(message)); }
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
  net::Descriptor pipe_;
  const net::Descriptor ready_;  // epoll: readable when the pipe takes bytes that wait
  bool watched_ = false;
  std::string bytes_;
};

}  // namespace trireme::inline v0::launch
