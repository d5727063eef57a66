// Messages between the servers that have copies of one shard: the primary's requests to a backup.
//
//     primary                                             backup
//        | Hello {shard, term}                              |
//        | <--------------------------- Heard {where it is} |
//        | Snapshot {all, as of a position}                 |  unless the log goes on from there
//        | <---------------------------- Heard {position}   |
//        | Request {position, client, what it asked} ---->  |  each request, in the primary's order
//        | Lost {position, client} ---------------------->  |  a client is gone
//        | <---------------------------- Heard {position}   |  one for each
//
// A backup refuses a primary whose term is older than the newest that it knows, and tells that one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/ps/messages.h"

namespace trireme::inline v0::ps {

struct Relay {
  enum class Kind : std::uint8_t { Hello, Snapshot, Request, Lost };
  Kind kind = Kind::Hello;
  int shard = 0;
  std::uint64_t term = 0;        // the sender's
  Position at = {};              // after it
  int client = -1;               // Request, Lost: the primary's number of the connection
  Request request = {};          // Request; its `memory` is the frame's payload or area
  std::uint64_t text_bytes = 0;  // Snapshot: of the text at the start of memory
};

/// A backup's answer.
struct Heard {
  Position at = {};
  std::uint64_t term = 0;  // that it knows
  bool refused = false;
};

std::string to_text(const Relay& relay);
std::string to_text(const Heard& heard);
/// Whether a frame's head is a Relay, and not a worker's Request.
bool is_relay(std::span<const std::byte> head) noexcept;
/// RefusedError if the other end does not speak this protocol.
Relay relay_from(std::span<const std::byte> head);
Heard heard_from(std::span<const std::byte> head);

}  // namespace trireme::inline v0::ps
