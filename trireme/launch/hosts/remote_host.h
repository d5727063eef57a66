// RemoteHost: the processes of a job on another host, through one `ssh HOST trireme launch-host`
// (host_messages.h). The job's secret goes through the standard input of ssh. If the connection
// ends, the agent kills all processes there, and each counts as lost here (160). Starting a process
// afterwards makes a new connection: the host may be back.
//
// Used in the progress context of `waiter`, which must be destroyed first. The guard outlives it.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/hosts/guard.h"
#include "trireme/launch/hosts/host_messages.h"

namespace trireme::inline v0::launch {

struct RemoteHostOptions {
  std::string name;                // of the host
  std::vector<std::string> agent;  // the program there, which calls run_host_agent()
  HostSetup setup;
  Duration patience = std::chrono::seconds(30);  // within which the host must answer
};

class RemoteHost final : public Host {
 public:
  /// Starts ssh and does not wait. Throws ConfigError or ResourceError.
  RemoteHost(Waiter& waiter, Guard& guard, RemoteHostOptions options, HostEvents events);
  void start(int process, const StartOptions& options) override;
  void signal(int process, int signal, bool group) override;

  /// The coordinator's address as that host reaches it; empty until the host is ready.
  const std::string& coordinator() const noexcept { return coordinator_; }
  /// Whether the other host is ready, or will never be.
  bool decided() const noexcept { return ready_ || ended_ || refusal_.has_value(); }
  /// Why the host is not ready: a sentence and an exit code.
  std::optional<ErrorReport> refusal() const;
  /// The agent kills what still runs there, and ends; then ssh ends.
  void close();
  bool ended() const noexcept { return ended_; }
  /// Ends ssh if the other side has not answered yet.
  void end_attempt();
  /// Ends ssh itself.
  void kill_connection();

 private:
  void connect();
  void connect_again(int process);
  void forget_connection();
  void add(std::shared_ptr<DescriptorSource> source);
  void on_message(const Message& message);
  void on_words(std::string_view line);
  void check_end(bool surely = false);
  void lose(int process);
  std::string words_text() const;

  Waiter& waiter_;
  Guard& guard_;
  const RemoteHostOptions options_;
  const HostEvents events_;
  pid_t ssh_ = -1;
  std::optional<Exit> exit_;  // of ssh
  std::shared_ptr<MessageSink> sink_;
  std::shared_ptr<MessageSource> messages_;
  std::shared_ptr<LineSource> words_;
  int connections_ = 0;
  std::vector<std::string> said_;  // the latest lines of ssh's standard error
  bool ready_ = false, ended_ = false;
  std::string coordinator_;
  std::optional<ErrorReport> refusal_;
  std::set<int> known_, running_;
};

/// The words of TRIREME_SSH, or "ssh", with a launcher's options and the command for `host`.
std::vector<std::string> ssh_command(const std::string& host,
                                     const std::vector<std::string>& command, Duration patience);

}  // namespace trireme::inline v0::launch
