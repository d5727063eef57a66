#include "trireme/cli/launch/own_run.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"
#include "trireme/cli/light.h"
#include "trireme/launch/hosts/spawn.h"

namespace trireme::inline v0::cli {

std::vector<std::string> coordinator_command() { return {own_program(), "launch-coordinator"}; }

TemporaryFolder::TemporaryFolder(std::string operation) : operation_(std::move(operation)) {
  std::error_code error;
  std::string name = std::filesystem::temp_directory_path(error) / "trireme-XXXXXX";
  if (error || mkdtemp(name.data()) == nullptr)
    throw ResourceError(
        "cannot make a temporary folder" +
            (error ? ": TMPDIR names none" : " " + name + ": " + std::strerror(errno)),
        {.operation = operation_, .advice = "Set TMPDIR to one with room."});
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

OwnRuns::OwnRuns(std::string operation)
    : signals_(std::make_shared<launch::SignalSource>(blocked_,
                                                      [this](int signal) { pass_on(signal); })),
      waiter_(RealWaiter::make(Duration::zero())),
      folder_(std::move(operation)) {
  waiter_->add(signals_);
}

OwnRuns::~OwnRuns() { waiter_->remove(signals_.get()); }

int OwnRuns::run(const std::vector<std::string>& arguments, const std::string& log) {
  const std::string path = folder_.file(log);
  const Descriptor output(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!output)
    throw ResourceError("cannot write " + path, {.operation = folder_.operation(),
                                                 .advice = "Set TMPDIR to one with room."});
  std::vector<std::string> words = {own_program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const launch::Process process = launch::spawn({.command = words,
                                                 .environment = launch::own_environment(),
                                                 .output = output.get(),
                                                 .error = output.get()});
  std::optional<launch::Exit> end;
  const auto exit = std::make_shared<launch::ExitSource>(
      process.pid, process.descriptor, [](pid_t) {},
      [&](launch::Exit own) {
        end = own;
        child_ = -1;
      });
  waiter_->run([&] {
    child_ = process.pid;
    if (stop_ != 0) pass_on(stop_);
  });
  waiter_->add(exit);
  waiter_->wait_until([&] { return end.has_value(); }, TimePoint::max());
  waiter_->remove(exit.get());
  check_stop();
  return end->code;
}

void OwnRuns::check_stop() {
  waiter_->wait_until([&] { return stop_ != 0; }, waiter_->now() + std::chrono::milliseconds(1));
  if (stop_ != 0)
    throw_error(static_cast<ExitCode>(128 + stop_), "stopped before all runs had ended",
                {.operation = folder_.operation(), .advice = "Start it again; nothing was kept."});
}

void OwnRuns::pass_on(int signal) {
  const bool suspends = signal == SIGTSTP;
  if (!suspends) stop_ = launch::stop_signal_for(signal);
  if (child_ > 0) kill(child_, suspends ? signal : stop_);
  if (!suspends) return;
  raise(SIGSTOP);
  if (child_ > 0) kill(child_, SIGCONT);
}

}  // namespace trireme::inline v0::cli
