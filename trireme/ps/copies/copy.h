// Copy: one server's copy of a shard: a Service, and its place in the order of requests that the
// shard's primary decides. All copies at one position are equal, because a Service is deterministic.
// Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "trireme/ps/copies/relay.h"
#include "trireme/ps/server/service.h"

namespace trireme::inline v0::ps {

/// An update of a copy: a push, or the commit of a round (worker -1).
struct Applied {
  int shard = 0;
  Position at;
  int worker = -1;
  std::uint64_t sequence = 0;  // of the push
  std::int64_t version = 0;    // after it
  std::int64_t staleness = 0;  // of the push
};
using OnApplied = std::function<void(const Applied&)>;

class Copy {
 public:
  /// As Service's.
  Copy(int shard, Service::Answer answer, OnApplied on_applied = {}, Spread spread = in_one_part,
       Rooms rooms = {})
      : shard_(shard),
        on_applied_(std::move(on_applied)),
        service_(
            shard, std::move(answer),
            [this](int worker, std::int64_t version, std::int64_t staleness) {
              if (on_applied_) on_applied_({shard_, at_, worker, sequence_, version, staleness});
            },
            std::move(spread), std::move(rooms)) {}
  Copy(const Copy&) = delete;

  int shard() const noexcept { return shard_; }
  Service& service() noexcept { return service_; }
  const Service& service() const noexcept { return service_; }
  Position at() const noexcept { return at_; }

  /// The next request in the order. `memory` as Service::handle()'s.
  void apply(Position at, int client, const Request& request, std::span<const std::byte> memory) {
    at_ = at;
    sequence_ = request.sequence;
    service_.handle(client, request, memory);
  }
  /// The same for a client that is lost.
  void lose(Position at, int client) {
    at_ = at;
    service_.lost(client);
  }
  /// All of another copy, at its position.
  void restore(Position at, std::string_view text, std::span<const std::byte> memory) {
    service_.restore(text, memory);
    at_ = at;
  }

 private:
  const int shard_;
  const OnApplied on_applied_;
  Position at_;
  std::uint64_t sequence_ = 0;  // of the request that is applied
  Service service_;
};

}  // namespace trireme::inline v0::ps
