#include "trireme/ps/copies/copy.h"

namespace trireme::inline v0::ps {

Copy::Copy(int shard, Service::Answer answer, OnApplied on_applied, Spread spread, Rooms rooms)
    : shard_(shard),
      on_applied_(std::move(on_applied)),
      service_(
          shard, std::move(answer),
          [this](int worker, std::int64_t version, std::int64_t staleness) {
            if (on_applied_) on_applied_({shard_, at_, worker, sequence_, version, staleness});
          },
          std::move(spread), std::move(rooms)) {}

void Copy::apply(Position at, int client, const Request& request,
                 std::span<const std::byte> memory) {
  at_ = at;
  sequence_ = request.sequence;
  service_.handle(client, request, memory);
}

void Copy::lose(Position at, int client) {
  at_ = at;
  service_.lost(client);
}

void Copy::restore(Position at, std::string_view text, std::span<const std::byte> memory) {
  service_.restore(text, memory);
  at_ = at;
}

}  // namespace trireme::inline v0::ps
