#include "trireme/launch/hosts/remote_host.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "trireme/base/joined.h"
#include "trireme/base/shell_word.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/launch/output.h"

namespace trireme::inline v0::launch {
namespace {

constexpr std::size_t kMostWords = 4;  // lines of ssh that an error shows
constexpr Duration kLastOutput = std::chrono::milliseconds(500);
constexpr int kLost = static_cast<int>(ExitCode::PeerLost);

std::int64_t whole_seconds(Duration duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

}  // namespace

std::vector<std::string> ssh_command(const std::string& host,
                                     const std::vector<std::string>& command, Duration patience) {
  const char* const given = std::getenv("TRIREME_SSH");
  std::istringstream words(given != nullptr && *given != '\0' ? given : "ssh");
  std::vector<std::string> ssh;
  for (std::string word; words >> word;) ssh.push_back(word);
  // ssh takes the first value of an option, so those of TRIREME_SSH come first.
  ssh.insert(ssh.end(), {"-T", "-o", "BatchMode=yes", "-o",
                         "ConnectTimeout=" + std::to_string(whole_seconds(patience)), "-o",
                         "ServerAliveInterval=10", "-o", "ClearAllForwardings=yes"});
  ssh.insert(ssh.end(), {host, "exec " + joined(command, shell_word, " ")});  // for a login shell
  return ssh;
}

RemoteHost::RemoteHost(Waiter& waiter, Guard& guard, RemoteHostOptions options, HostEvents events)
    : waiter_(waiter), guard_(guard), options_(std::move(options)), events_(std::move(events)) {
  connect();
}

// Messages that are sent before the agent has answered wait in the pipe.
void RemoteHost::connect() {
  Pipe input = make_pipe(), output = make_pipe(), error = make_pipe();
  sink_ = std::make_shared<MessageSink>(std::move(input.in));
  messages_ = std::make_shared<MessageSource>(
      output.out.release(), kAgentHello, [this](const Message& message) { on_message(message); });
  words_ = std::make_shared<LineSource>(error.out.release(),
                                        [this](std::string_view line) { on_words(line); });
  const Process process =
      spawn({.command = ssh_command(options_.name, options_.agent, options_.patience),
             .environment = own_environment(),
             .input = input.out.get(),
             .output = output.in.get(),
             .error = error.in.get()});
  ssh_ = process.pid;
  guard_.watch(ssh_);
  waiter_.add(sink_);
  add(messages_);
  add(words_);
  add(std::make_shared<ExitSource>(
      ssh_, process.descriptor, [this](pid_t group) { guard_.forget(group); },
      [this](Exit exit) {
        exit_ = exit;
        ssh_ = -1;
        waiter_.run_at(waiter_.now() + kLastOutput, [this, connection = connections_] {
          if (connection == connections_) check_end(true);
        });
      }));
  sink_->send(message_of(options_.setup));
}

// A child of ssh may still hold its pipes open.
void RemoteHost::forget_connection() {
  waiter_.remove(sink_.get());
  waiter_.remove(messages_.get());
  waiter_.remove(words_.get());
  said_.clear();
  exit_.reset();
  refusal_.reset();
  ready_ = ended_ = false;
  ++connections_;
}

void RemoteHost::add(std::shared_ptr<DescriptorSource> source) {
  source->when_finished([this, raw = source.get()] {
    waiter_.remove(raw);
    waiter_.run([this] { check_end(); });
  });
  waiter_.add(source);
}

// If it fails, nothing runs there, and the next start tries again.
void RemoteHost::connect_again(int process) {
  forget_connection();
  try {
    connect();
  } catch (...) {
    ended_ = true;
    running_.erase(process);
    throw;
  }
  waiter_.run_at(waiter_.now() + options_.patience, [this, connection = connections_] {
    if (connection == connections_) end_attempt();
  });
}

void RemoteHost::start(int process, const StartOptions& options) {
  known_.insert(process);
  running_.insert(process);
  if (ended_) connect_again(process);
  sink_->send(message_of(process, options));
  if (events_.on_start) events_.on_start(process, -1);
}

void RemoteHost::signal(int process, int signal, bool group) {
  if (running_.count(process) == 0) return;
  sink_->send({"signal", process, {std::to_string(signal), group ? "1" : "0"}});
}

void RemoteHost::close() {
  sink_->close();
  end_attempt();
}

void RemoteHost::end_attempt() {
  if (!ready_) kill_connection();
}

void RemoteHost::kill_connection() {
  if (ssh_ > 0) kill(-ssh_, SIGKILL);
}

void RemoteHost::on_message(const Message& message) {
  if (message.kind == "ready") {
    coordinator_ = message.field(0);
    ready_ = true;
    waiter_.wake();
  } else if (message.kind == "refused") {
    refusal_ = ErrorReport{static_cast<int>(message.number(0)), message.field(1)};
    waiter_.wake();
    if (connections_ > 0) kill_connection();  // the host is not yet usable again
  } else if (refusal_) {
    return;  // a refused host starts nothing
  } else if (known_.count(message.process) == 0) {
    throw ConfigError("a message of a process that was not started");
  } else if (message.kind == "out" || message.kind == "err") {
    events_.on_line(message.process, message.kind == "err", message.field(0));
  } else if (message.kind == "ended") {
    const Ending ending = ending_from(message);
    if (running_.erase(message.process) > 0) events_.on_end(message.process, ending);
  } else if (message.kind == "failed" && running_.erase(message.process) > 0) {
    const std::string words = "on host " + options_.name + ": " + message.field(1);
    events_.on_end(message.process,
                   {.exit = {static_cast<int>(message.number(0)), 0}, .last_words = words});
  }
}

void RemoteHost::on_words(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) return;
  if (ready_ && !ended_) say_line("[" + options_.name + "] " + std::string(line));
  said_.emplace_back(line);
  if (said_.size() > kMostWords) said_.erase(said_.begin());
}

// Output that ssh wrote before its end is read first, unless `surely`.
void RemoteHost::check_end(bool surely) {
  if (!messages_->fault().empty()) kill_connection();
  if (ended_ || !exit_) return;
  if (!surely && (!messages_->finished() || !words_->finished())) return;
  ended_ = true;
  sink_->close();
  for (const int process : std::set<int>(running_)) lose(process);
  waiter_.wake();
}

void RemoteHost::lose(int process) {
  running_.erase(process);
  Ending ending{.exit = {kLost, 0}, .host = ready_ ? HostLoss::Lost : HostLoss::NotReached};
  ending.last_words =
      ready_ ? "The connection to host " + options_.name + " has ended" + words_text() +
                   ". Its processes end there, too; resume from the last checkpoint."
             : "Host " + options_.name + " cannot be reached" + words_text() + ".";
  events_.on_end(process, ending);
}

std::string RemoteHost::words_text() const {
  if (!messages_->fault().empty()) return ": " + messages_->fault();
  if (refusal_) return ": it " + refusal_->sentence;
  std::string text = said_.empty() ? "" : ": " + joined(said_, {}, "; ");
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

std::optional<ErrorReport> RemoteHost::refusal() const {
  if (ready_ && !ended_) return std::nullopt;
  const std::string name = "host " + options_.name + " ";
  if (refusal_) return ErrorReport{refusal_->exit_code, name + refusal_->sentence};
  if (!ended_) {
    return ErrorReport{2, name + "did not answer within " +
                              std::to_string(whole_seconds(options_.patience)) + " s" +
                              words_text()};
  }
  if (exit_ && (exit_->code == 126 || exit_->code == 127))
    return ErrorReport{2, name + "cannot run " + options_.agent.front() + words_text()};
  return ErrorReport{2, name + "cannot be reached (ssh ended with exit code " +
                            std::to_string(exit_ ? exit_->code : -1) + ")" + words_text()};
}

}  // namespace trireme::inline v0::launch
