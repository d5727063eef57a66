// The MPI messages that carry the frames of the mpi transport: rank 0 has a transport, and rank 1
// reads the messages themselves.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "suite.h"
#include "trireme/net/link.h"

namespace trireme::conformance::mpi_messages_test {
namespace {

using net::Frame;
using net::FrameKind;
constexpr FrameKind kLeave{0x40};
constexpr std::size_t kSmall = 100;
const Bytes small(kSmall, std::byte{9}), full(net::kEagerLimit, std::byte{9});

void send_raw(net::MpiGroup& group, const Frame& frame) {
  const TriremeMpi& functions = group.functions();
  functions.send(group.get(), 0, &frame, sizeof frame, nullptr, 0);
  functions.flush(group.get());
}

// Reads messages of `bytes` bytes together, and answers the first one with `answer`. If rank 0 leaves
// with the last frame, so does rank 1.
std::vector<Bytes> read_raw(net::MpiGroup& group, std::size_t bytes, const Frame* answer) {
  const TriremeMpi& functions = group.functions();
  const TimePoint deadline = kSoon.from(steady_now());
  std::vector<Bytes> messages;
  for (std::size_t got = 0; got < bytes;) {
    int peer = 0;
    const void* data = nullptr;
    std::size_t size = 0;
    const int status = functions.receive(group.get(), &peer, &data, &size);
    if (status < 0 || steady_now() > deadline) throw std::runtime_error("rank 0 sent less");
    if (status == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(data);
    messages.emplace_back(begin, begin + size);
    functions.release(group.get(), peer);
    got += size;
    if (answer) send_raw(group, *std::exchange(answer, nullptr));
  }
  Frame last;
  std::memcpy(&last, messages.back().data() + messages.back().size() - sizeof last, sizeof last);
  if (last.kind == kLeave) {
    send_raw(group, last);
    while (functions.unsent(group.get()) > 0) {
    }
    group.set_clean();
  }
  return messages;
}

// Runs `body` on rank 0. Returns what rank 1 reads, and nothing on other ranks.
std::vector<Bytes> messages_of(const Body& body, std::size_t bytes, const Frame* answer = nullptr) {
  auto group = std::make_unique<net::MpiGroup>(nullptr, 2);
  if (!group->member()) return {};
  if (group->rank() == 1) return read_raw(*group, bytes, answer);
  Rank rank{0, 2, RealWaiter::make(), nullptr};
  rank.transport = net::connect_mpi(rank.waiter, std::move(group));
  body(rank);
  return {};
}

void send_eager(Rank& rank, std::uint64_t tag, const Bytes& bytes) {
  EXPECT_TRUE(rank.transport->send(1, {tag}, bytes).done());
}

std::vector<std::size_t> sizes_of(const std::vector<Bytes>& messages) {
  std::vector<std::size_t> sizes;
  for (const Bytes& one : messages) sizes.push_back(one.size());
  return sizes;
}

TEST(MpiMessages, TheFramesOfOneTurnShareMessages) {
  struct Case {
    const Bytes& bytes;
    std::vector<std::uint64_t> frames;  // of each message
  };
  for (const Case& one : {Case{small, {100}}, Case{full, {8, 8, 4}}}) {
    const std::uint64_t frames = std::accumulate(one.frames.begin(), one.frames.end(), 0ull);
    std::vector<std::size_t> sizes;
    for (const std::uint64_t each : one.frames)
      sizes.push_back(each * (sizeof(Frame) + one.bytes.size()));
    sizes.push_back(sizeof(Frame));  // it leaves in a later turn
    const auto got = messages_of(
        [&](Rank& rank) {
          rank.in_context([&] {
            for (std::uint64_t i = 0; i < frames; ++i) send_eager(rank, i, one.bytes);
          });
        },
        std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    if (!got.empty()) {
      EXPECT_EQ(sizes_of(got), sizes);
    }
  }
}

// Expects the kinds of the frames, and their order in the tags of eager ones.
void expect_frames(const std::vector<Bytes>& messages, const std::vector<FrameKind>& expected) {
  Bytes all;
  for (const Bytes& one : messages) all.insert(all.end(), one.begin(), one.end());
  std::vector<FrameKind> kinds;
  for (std::size_t at = 0; at < all.size(); at += sizeof(Frame)) {
    Frame frame;
    std::memcpy(&frame, all.data() + at, sizeof frame);
    if (frame.kind == FrameKind::Eager) {
      EXPECT_EQ(frame.tag, kinds.size());
      at += frame.length;
    }
    kinds.push_back(frame.kind);
  }
  EXPECT_EQ(kinds, expected);
}

void send_two_and_leave(Rank& rank, std::uint64_t tag) {
  for (int i = 0; i < 2; ++i) send_eager(rank, tag++, small);
  rank.transport.reset();
}

TEST(MpiMessages, LeavingInTheTurnOfASendSendsItFirst) {
  const auto got =
      messages_of([](Rank& rank) { rank.in_context([&] { send_two_and_leave(rank, 0); }); },
                  2 * (sizeof(Frame) + kSmall) + sizeof(Frame));
  if (!got.empty()) expect_frames(got, {FrameKind::Eager, FrameKind::Eager, kLeave});
}

TEST(MpiMessages, LeavingInAContinuationSendsFirst) {
  const Frame answer{FrameKind::Eager, 0, 5, 0};
  const auto got = messages_of(
      [](Rank& rank) {
        std::atomic<bool> left{false};
        rank.in_context([&] {
          rank.transport->recv(1, {5}, {}).on_settled([&](const std::exception_ptr&) {
            send_two_and_leave(rank, 1);
            left = true;
            rank.waiter->wake();
          });
          send_eager(rank, 0, small);
        });
        EXPECT_TRUE(rank.waiter->wait_until([&] { return left.load(); }, kSoon.from(steady_now())));
      },
      3 * (sizeof(Frame) + kSmall), &answer);
  if (!got.empty()) expect_frames(got, std::vector(3, FrameKind::Eager));
}

}  // namespace
}  // namespace trireme::conformance::mpi_messages_test
