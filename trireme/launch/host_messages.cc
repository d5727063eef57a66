#include "trireme/launch/host_messages.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

constexpr std::size_t kLongestHeader = 1 << 20;
constexpr std::size_t kLongestField = 1 << 24;
constexpr int kMessageReadsAtOnce = 16;

[[noreturn]] void refuse_message(const std::string& what) {
  throw ConfigError("a message between launchers " + what,
                    {.operation = "launch", .advice = "Use the same version on all hosts."});
}

long to_number(const std::string& text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse_message("has no number where one belongs");
  return value;
}

// Nanoseconds, as text.
std::string text_of(Duration duration) { return std::to_string(duration.count()); }

}  // namespace

const std::string& HostMessage::field(std::size_t index) const {
  if (index >= fields.size()) refuse_message(kind + " is too short");
  return fields[index];
}

long HostMessage::number(std::size_t index) const { return to_number(field(index)); }

std::string encode(const HostMessage& message) {
  std::string text = message.kind + " " + std::to_string(message.process);
  for (const std::string& field : message.fields) text += " " + std::to_string(field.size());
  text += "\n";
  for (const std::string& field : message.fields) text += field;
  return text;
}

bool take_message(std::string& bytes, HostMessage& message) {
  const std::size_t end = bytes.find('\n');
  if (end == bytes.npos) {
    if (bytes.size() > kLongestHeader) refuse_message("has no end");
    return false;
  }
  std::istringstream header(bytes.substr(0, end));
  std::string process;
  HostMessage read;
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

HostMessage message_of(const HostSetup& setup) {
  return {"setup",
          -1,
          {setup.version, setup.folder, setup.secret, setup.coordinator, setup.fallback,
           setup.connection, setup.shared_file, setup.shared_proof, std::to_string(setup.processes),
           std::to_string(setup.bind)}};
}

HostSetup setup_from(const HostMessage& message) {
  return {.version = message.field(0),
          .folder = message.field(1),
          .secret = message.field(2),
          .coordinator = message.field(3),
          .fallback = message.field(4),
          .connection = message.field(5),
          .shared_file = message.field(6),
          .shared_proof = message.field(7),
          .processes = static_cast<int>(message.number(8)),
          .bind = static_cast<int>(message.number(9))};
}

HostMessage message_of(int process, const StartOptions& options) {
  HostMessage message{"start", process, {std::to_string(options.command.size())}};
  for (const auto* list : {&options.command, &options.environment})
    message.fields.insert(message.fields.end(), list->begin(), list->end());
  return message;
}

StartOptions start_from(const HostMessage& message) {
  const long words = message.number(0);
  if (words < 1 || static_cast<std::size_t>(words) >= message.fields.size())
    refuse_message("starts no program");
  const auto first = message.fields.begin() + 1, end = first + words;
  return {.command = {first, end}, .environment = {end, message.fields.end()}};
}

HostMessage message_of(int process, const Ending& ending) {
  const rendezvous::Activity& activity = ending.activity;
  return {"ended",
          process,
          {std::to_string(ending.exit.code), std::to_string(ending.exit.signal),
           activity.waiting ? "1" : "0", activity.operation, activity.last_call,
           text_of(activity.since), std::to_string(activity.step), ending.last_words}};
}

Ending ending_from(const HostMessage& message) {
  return {.exit = {static_cast<int>(message.number(0)), static_cast<int>(message.number(1))},
          .activity = {.waiting = message.number(2) != 0,
                       .operation = message.field(3),
                       .last_call = message.field(4),
                       .since = Duration(message.number(5)),
                       .step = message.number(6)},
          .last_words = message.field(7)};
}

MessageSource::MessageSource(int descriptor, std::string_view hello,
                             std::function<void(const HostMessage&)> on_message)
    : DescriptorSource(descriptor), hello_(hello), on_message_(std::move(on_message)) {
  fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

bool MessageSource::poll() {
  bool moved = false;
  char bytes[16384];
  for (int reads = 0; reads < kMessageReadsAtOnce && !finished_; ++reads) {
    const ssize_t got = read(descriptor_, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    moved = true;
    if (got <= 0) {
      finish();
      break;
    }
    bytes_.append(bytes, static_cast<std::size_t>(got));
    take_all();
  }
  return moved;
}

void MessageSource::take_all() {
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
    for (HostMessage message; take_message(bytes_, message);) on_message_(message);
  } catch (const ConfigError& error) {
    fault_ = error.message();
    finish();
  }
}

MessageSink::MessageSink(net::Descriptor descriptor)
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
  pipe_ = net::Descriptor();
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
