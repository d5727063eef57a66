#include "trireme/launch/message.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/parse_number.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::launch {
namespace {

constexpr std::size_t kLongestHeader = 1 << 20;
constexpr std::size_t kLongestField = 1 << 24;

long to_number(const std::string& text) {
  if (const auto value = parse_number<long>(text)) return *value;
  refuse_message("has text in place of a number");
}

}  // namespace

void refuse_message(const std::string& what) {
  throw ConfigError("a message between the launcher and its helper " + what,
                    {.operation = "launch", .advice = "Use the same version on all hosts."});
}

const std::string& Message::field(std::size_t index) const {
  if (index >= fields.size()) refuse_message("of kind " + kind + " lacks a field");
  return fields[index];
}

long Message::number(std::size_t index) const { return to_number(field(index)); }

std::string encode(const Message& message) {
  std::string text = message.kind + " " + std::to_string(message.process);
  for (const std::string& field : message.fields) text += " " + std::to_string(field.size());
  text += "\n";
  for (const std::string& field : message.fields) text += field;
  return text;
}

bool take_message(std::string& bytes, Message& message) {
  const std::size_t end = bytes.find('\n');
  if (end == bytes.npos) {
    if (bytes.size() > kLongestHeader) refuse_message("has no end");
    return false;
  }
  std::istringstream header(bytes.substr(0, end));
  std::string process;
  Message read;
  if (!(header >> read.kind >> process)) refuse_message("has no kind");
  read.process = static_cast<int>(to_number(process));
  std::vector<std::size_t> lengths;
  std::size_t all = 0;
  for (std::string word; header >> word;) {
    const long length = to_number(word);
    if (length < 0 || static_cast<std::size_t>(length) > kLongestField)
      refuse_message("has a field of " + word + " bytes");
    lengths.push_back(static_cast<std::size_t>(length));
    all += lengths.back();
  }
  if (bytes.size() - end - 1 < all) return false;
  std::size_t at = end + 1;
  for (const std::size_t length : lengths) {
    read.fields.push_back(bytes.substr(at, length));
    at += length;
  }
  bytes.erase(0, at);
  message = std::move(read);
  return true;
}

Descriptor empty_input() {
  Descriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!file) net::throw_system_error("opening /dev/null");
  return file;
}

Descriptor copy_of(int descriptor) {
  Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) net::throw_system_error("dup");
  return copy;
}

Descriptor take_standard_input() {
  Descriptor input = copy_of(STDIN_FILENO);
  dup2(empty_input().get(), STDIN_FILENO);
  return input;
}

void MessageSource::take() {
  try {
    if (!hello_.empty()) {
      const std::size_t at = bytes_.find(hello_);
      if (at == bytes_.npos) {  // its beginning may be at the end
        if (bytes_.size() > hello_.size()) bytes_.erase(0, bytes_.size() - hello_.size());
        return;
      }
      bytes_.erase(0, at + hello_.size());
      hello_.clear();
    }
    for (Message message; take_message(bytes_, message);) on_message_(message);
  } catch (const ConfigError& error) {
    fault_ = error.message();
    finish();
  }
}

MessageSink::MessageSink(Descriptor descriptor)
    : pipe_(std::move(descriptor)), ready_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!ready_) net::throw_system_error("epoll_create1");
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

void MessageSink::send_bytes(std::string_view bytes) {
  if (!pipe_) return;
  bytes_.append(bytes);
  poll();
}

void MessageSink::close() {
  watch(false);
  bytes_.clear();
  pipe_ = Descriptor();
}

void MessageSink::watch(bool on) {
  if (on == watched_ || !pipe_) return;
  epoll_event event{};
  event.events = EPOLLOUT;
  epoll_ctl(ready_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, pipe_.get(), &event);
  watched_ = on;
}

bool MessageSink::poll() {
  std::size_t put = 0;
  while (pipe_ && put < bytes_.size()) {
    const ssize_t now = write(pipe_.get(), bytes_.data() + put, bytes_.size() - put);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && errno == EAGAIN) break;
    if (now < 0) {  // nobody reads any more; the end of ssh says so
      close();
      return true;
    }
    put += static_cast<std::size_t>(now);
  }
  bytes_.erase(0, put);
  watch(!bytes_.empty());
  return put > 0;
}

}  // namespace trireme::inline v0::launch
