#include "trireme/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

constexpr Duration kRoom = std::chrono::seconds(1);

// For poll(); -1 if `end` is never.
int milliseconds_until(TimePoint end) noexcept {
  if (end == TimePoint::max()) return -1;
  const Duration rest = std::max<Duration>(end - steady_now(), Duration::zero());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(rest).count());
}

// `evaluator`, or the number of the process in its role, after `server` or `rank`.
std::string process_name(const rendezvous::Roles& roles, int process, const char* evaluator,
                         const char* server, const char* rank) {
  const Role role = roles.role_of(process);
  if (role == Role::Evaluator) return evaluator;
  return (role == Role::Server ? server : rank) + std::to_string(roles.number_of(process));
}

// The pipe `descriptor`, opened once more so that writing never blocks: another process may take
// the room that poll() saw. Empty if it is no pipe.
Descriptor never_blocking(int descriptor) noexcept {
  struct stat kind {};
  if (fstat(descriptor, &kind) != 0 || !S_ISFIFO(kind.st_mode)) return {};
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  return Descriptor(open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC));
}

}  // namespace

void say_line(const std::string& line) noexcept {
  write_until(-1, STDERR_FILENO, line + "\n", kRoom);
}

void say(const std::string& line) noexcept { say_line("trireme: " + line); }

void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t put = write(descriptor, text.data(), text.size());
    if (put > 0) {
      text.remove_prefix(static_cast<std::size_t>(put));
    } else if (put < 0 && errno == EAGAIN) {  // another process made the terminal non-blocking
      pollfd ready{descriptor, POLLOUT, 0};
      ::poll(&ready, 1, 1000);
    } else if (put < 0 && errno != EINTR) {
      return;  // nobody reads any more, but the ranks continue
    }
  }
}

bool write_until(int interrupt, int descriptor, std::string_view text, Duration patience) noexcept {
  const TimePoint end = Deadline::in(patience).from(steady_now());
  const Descriptor own = never_blocking(descriptor);
  const int out = own ? own.get() : descriptor;
  bool all = true;
  while (!text.empty() && all) {
    pollfd either[2] = {{out, POLLOUT, 0}, {interrupt, POLLIN, 0}};
    if (::poll(either, 2, milliseconds_until(end)) < 0) continue;
    all = either[0].revents != 0;
    if (!all) break;
    const ssize_t put = write(out, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (put > 0) {
      text.remove_prefix(static_cast<std::size_t>(put));
    } else if (put < 0 && errno != EINTR && errno != EAGAIN) {
      break;  // nobody reads any more, but the ranks continue
    }
  }
  return all;
}

Output::Output(const LaunchOptions& options) : options_(options) {
  if (options.log_dir.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  for (int process = 0; process < options.roles().processes(); ++process) {
    const std::string path =
        options.log_dir + "/" +
        process_name(options.roles(), process, "evaluator", "server-", "rank-") + ".log";
    files_.emplace_back(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!files_.back()) {
      throw ResourceError("cannot write " + path + ": " + std::strerror(errno),
                          {.operation = "launch", .advice = "Give another --log-dir."});
    }
  }
}

void Output::line(int rank, bool error, std::string_view text) {
  if (!files_.empty()) write_all(files_[rank].get(), std::string(text) + "\n");
  if (options_.on_line) return options_.on_line(rank, error, text);
  if (options_.only_rank && *options_.only_rank != rank) return;
  const bool plain = options_.rank0_direct && rank == 0;  // it is on another host
  if (options_.rank0_direct && files_.empty() && !error && !plain) return;
  std::string whole =
      plain ? "" : "[" + process_name(options_.roles(), rank, "eval", "ps ", "") + "] ";
  whole.append(text);
  whole += '\n';
  const int descriptor = error ? STDERR_FILENO : STDOUT_FILENO;
  if (signals_ < 0) return write_all(descriptor, whole);
  pollfd room{descriptor, POLLOUT, 0};
  if (in_a_hurry_ && ::poll(&room, 1, 0) == 0) return;
  in_a_hurry_ = !write_until(signals_, descriptor, whole) || in_a_hurry_;
}

}  // namespace trireme::inline v0::launch
