#include "trireme/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {

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

bool write_until(int interrupt, int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    pollfd either[2] = {{descriptor, POLLOUT, 0}, {interrupt, POLLIN, 0}};
    if (::poll(either, 2, -1) > 0 && either[0].revents == 0) return false;
    const std::string_view part = text.substr(0, PIPE_BUF);  // a writable pipe takes this
    write_all(descriptor, part);
    text.remove_prefix(part.size());
  }
  return true;
}

Output::Output(const LaunchOptions& options) : options_(options) {
  if (options.log_dir.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::string path = options.log_dir + "/rank-" + std::to_string(rank) + ".log";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) {
      throw ResourceError("cannot write " + path + ": " + std::strerror(errno),
                          {.operation = "launch", .advice = "Give another --log-dir."});
    }
    files_.push_back(file);
  }
}

Output::~Output() {
  for (const int file : files_) close(file);
}

void Output::line(int rank, bool error, std::string_view text) {
  if (!files_.empty()) write_all(files_[rank], std::string(text) + "\n");
  if (options_.on_line) return options_.on_line(rank, error, text);
  if (options_.only_rank && *options_.only_rank != rank) return;
  if (options_.rank0_direct && files_.empty() && !error) return;
  std::string whole = "[" + std::to_string(rank) + "] ";
  whole.append(text);
  whole += '\n';
  const int descriptor = error ? STDERR_FILENO : STDOUT_FILENO;
  if (signals_ < 0) return write_all(descriptor, whole);
  pollfd room{descriptor, POLLOUT, 0};
  if (in_a_hurry_ && ::poll(&room, 1, 0) == 0) return;
  in_a_hurry_ = !write_until(signals_, descriptor, whole) || in_a_hurry_;
}

}  // namespace trireme::inline v0::launch
