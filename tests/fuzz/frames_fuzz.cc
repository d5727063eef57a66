// The frames of a tcp connection whose peer sends anything: nothing outside a posted buffer is
// written, no receive completes with a wrong length, and a broken frame ends the link.
//
// The first byte chooses between raw bytes and frames made from the input, so that most are whole.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/poll_waiter.h"
#include "trireme/base/error.h"
#include "trireme/net/tcp/tcp_link.h"

namespace {

using namespace trireme;

struct Head {
  std::uint8_t kind = 0;
  char magic[3] = {'T', 'R', '1'};
  std::uint32_t id = 0;
  std::uint64_t tag = 0;
  std::uint64_t length = 0;
};

// Mostly small numbers, so that ids and tags match; sometimes any.
std::uint64_t number(fuzz::Bytes& input) {
  const std::uint8_t first = input.byte();
  if (first < 0xf0) return first % 8;
  std::uint64_t value = 0;
  const auto bytes = input.take(sizeof value);
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

std::vector<std::byte> frames(fuzz::Bytes& input) {
  std::vector<std::byte> stream;
  const auto append = [&](const void* data, std::size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    stream.insert(stream.end(), bytes, bytes + size);
  };
  while (!input.empty() && stream.size() < 1 << 17) {
    Head head;
    head.kind = static_cast<std::uint8_t>(number(input));
    head.id = static_cast<std::uint32_t>(number(input));
    head.tag = number(input);
    const std::size_t size = std::size_t{input.byte()} * input.byte();
    head.length = size + (input.byte() < 0xf8 ? 0 : number(input));
    append(&head, sizeof head);
    const auto payload = input.take(size);
    append(payload.data(), payload.size());
    stream.resize(stream.size() + (size - payload.size()));
  }
  return stream;
}

struct Posted {
  std::vector<std::byte> memory;  // the buffer between two guard areas
  std::span<std::byte> bytes;
  Work work;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  const bool structured = (input.byte() & 1) != 0;
  std::vector<std::byte> stream = structured ? frames(input) : std::vector<std::byte>();
  if (!structured) {
    const auto bytes = input.take(size);
    stream.assign(bytes.begin(), bytes.end());
  }
  const auto waiter = std::make_shared<fuzz::PollWaiter>();
  net::Messenger messenger(0, 2, waiter);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  const Descriptor other(ends[1]);
  const std::vector<std::byte> outgoing(40000, std::byte{3});
  std::array<Posted, 6> posted;
  const char* ended = nullptr;
  {
    std::atomic<bool> unsent{false};
    net::TcpLink link(messenger, 1, Descriptor(ends[0]), unsent);
    messenger.attach(1, &link);
    const std::size_t sizes[] = {0, 7, 100, 20000, 70000, 16384};
    for (std::size_t i = 0; i < posted.size(); ++i) {
      posted[i].memory.assign(sizes[i] + 128, std::byte{0x5a});
      posted[i].bytes = std::span(posted[i].memory).subspan(64, sizes[i]);
      posted[i].work = messenger.recv(1, {i}, posted[i].bytes);
    }
    const Work sends[] = {messenger.send(1, {1}, outgoing), messenger.send(1, {2}, outgoing)};
    for (std::size_t at = 0; at < stream.size() && ended == nullptr;) {
      const ssize_t count = send(other.get(), stream.data() + at, stream.size() - at, MSG_NOSIGNAL);
      if (count > 0) at += static_cast<std::size_t>(count);
      while (link.read(ended) && ended == nullptr) {
      }
      link.flush();
      std::array<std::byte, 4096> answer;  // discards the link's output
      while (recv(other.get(), answer.data(), answer.size(), 0) > 0) {
      }
    }
    messenger.lose(1, ended != nullptr ? ended : "the end of the input");
  }
  for (const Posted& one : posted) {
    if (!one.work.done()) std::abort();
    for (std::size_t i = 0; i < 64; ++i) {
      if (one.memory[i] != std::byte{0x5a}) std::abort();
      if (one.memory[one.memory.size() - 1 - i] != std::byte{0x5a}) std::abort();
    }
  }
  return 0;
}
