// Inbox: what a Messenger has to receive from one peer. It holds the receives that were posted, the
// messages that came before their receives, and the receives whose large messages are arriving. The
// oldest receive with a tag gets the oldest message with that tag. The Messenger ends the Works.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/base/work_source.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// Limit of the eager messages from one peer that are not taken yet. The cost of a message is its
/// bytes plus kMessageCost for bookkeeping.
inline constexpr std::size_t kUnexpectedLimit = std::size_t{64} << 20;
inline constexpr std::size_t kMessageCost = 64;
constexpr std::size_t cost_of(std::size_t bytes) { return bytes + kMessageCost; }

class Inbox {
 public:
  struct Receive {
    Tag tag;
    std::span<std::byte> bytes;
    WorkSource source;
  };
  struct Message {
    Tag tag;
    std::size_t length = 0;
    std::vector<std::byte> bytes = {};
    std::optional<std::uint32_t> send_id = {};  // the sender has the bytes and waits for an answer
  };

  std::optional<Message> take_message(Tag tag) {
    std::optional<Message> message = take(messages_, tag);
    if (message && !message->send_id) cost_ -= cost_of(message->length);
    return message;
  }
  /// For a receive that take_message() has no message for.
  void post(Receive receive) { posted_.push_back(std::move(receive)); }
  std::optional<Receive> take_receive(Tag tag) { return take(posted_, tag); }
  /// For a message that take_receive() has no receive for. False if there is no room for it.
  bool keep(Tag tag, std::span<const std::byte> bytes) {
    const std::size_t cost = cost_of(bytes.size());
    if (cost > kUnexpectedLimit - cost_) return false;
    messages_.push_back({tag, bytes.size(), {bytes.begin(), bytes.end()}});
    cost_ += cost;
    return true;
  }
  void keep(Tag tag, std::size_t length, std::uint32_t send_id) {
    messages_.push_back({tag, length, {}, send_id});
  }

  /// The bytes of a large message come next. Returns the receive id, under which they come.
  std::uint32_t begin(const Receive& receive) {
    arriving_.emplace(next_id_, Arriving{receive.bytes, 0, receive.source});
    return next_id_++;
  }
  /// As Messenger::destination().
  std::byte* destination(std::uint32_t id, std::optional<std::size_t> offset, std::size_t length) {
    const auto found = arriving_.find(id);
    if (found == arriving_.end()) return nullptr;
    const Arriving& one = found->second;
    const std::size_t size = one.bytes.size(), begin = offset.value_or(one.done);
    if (length > size - one.done || begin > size || length > size - begin) return nullptr;
    return one.bytes.data() + begin;
  }
  /// `length` bytes are at their destination. Returns the receive's Work if they were the last.
  std::optional<WorkSource> arrived(std::uint32_t id, std::size_t length) {
    const auto found = arriving_.find(id);
    if (found == arriving_.end()) return std::nullopt;
    Arriving& one = found->second;
    one.done += length;
    if (one.done < one.bytes.size()) return std::nullopt;
    std::optional<WorkSource> source = std::move(one.source);
    arriving_.erase(found);
    return source;
  }

  /// Takes out all receives and returns their Works. Drops the messages, except, if
  /// `keep_messages`, those whose bytes are here.
  std::vector<WorkSource> close(bool keep_messages) {
    std::vector<WorkSource> sources;
    for (auto& [id, one] : std::exchange(arriving_, {})) sources.push_back(one.source);
    for (auto& one : std::exchange(posted_, {})) sources.push_back(one.source);
    std::erase_if(messages_, [&](const Message& one) { return !keep_messages || one.send_id; });
    return sources;
  }

 private:
  struct Arriving {
    std::span<std::byte> bytes;
    std::size_t done = 0;
    WorkSource source;
  };
  template <typename Item>
  static std::optional<Item> take(std::deque<Item>& queue, Tag tag) {
    const auto found = std::ranges::find(queue, tag, &Item::tag);
    if (found == queue.end()) return std::nullopt;
    std::optional<Item> item = std::move(*found);
    queue.erase(found);
    return item;
  }

  std::deque<Receive> posted_;
  std::deque<Message> messages_;
  std::size_t cost_ = 0;  // of the messages whose bytes are here
  std::unordered_map<std::uint32_t, Arriving> arriving_;
  std::uint32_t next_id_ = 0;
};

}  // namespace trireme::inline v0::net
