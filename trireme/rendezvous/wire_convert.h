// Converts messages from and to membership.h's types. Only for .cc files of rendezvous.
#pragma once

#include <optional>

#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator.pb.h"
#include "trireme/rendezvous/epoch.h"
#include "trireme/rendezvous/membership.h"

namespace trireme::inline v0::rendezvous {

namespace wire = ::trireme_wire;

inline std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}
void fill(const Activity& activity, wire::Activity& message);
Activity activity_from(const wire::Activity& message);
void fill(const Failure& failure, wire::Failure& message);
Failure failure_from(const wire::Failure& message);
void fill(const Table& table, wire::HeartbeatReply& message);
Table table_from(const wire::HeartbeatReply& message);
void fill(const Epoch& epoch, wire::Epoch& message);
Epoch epoch_from(const wire::Epoch& message);
/// nullopt: it tells nothing, as the first message of a stream.
std::optional<News> news_from(const wire::News& message);

}  // namespace trireme::inline v0::rendezvous
