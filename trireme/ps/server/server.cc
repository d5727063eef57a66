#include "trireme/ps/server/server.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::ps {
namespace {

constexpr Duration kAcceptPause = std::chrono::milliseconds(100);  // while no descriptor is left

// The view of a server that nobody replicates: each server has its own shard.
std::shared_ptr<const rendezvous::ServerView> view_of_one(int number) {
  rendezvous::ServerAuthority authority(number + 1);
  for (int server = 0; server <= number; ++server) authority.up(server, "");
  return std::make_shared<rendezvous::ServerView>(authority.view());
}

// The memory that a frame refers to.
std::span<const std::byte> memory_of(net::Channel& channel, net::ChannelFrame& frame,
                                     const Memory& sent) {
  std::span<const std::byte> memory = frame.payload();
  if (sent.area >= 0) memory = channel.area_of_peer(static_cast<std::uint32_t>(sent.area));
  if (sent.bytes > memory.size()) throw RefusedError("a message of less memory than it says");
  return memory.first(sent.bytes);
}

}  // namespace

// A worker, or another server that is a shard's primary.
struct ParameterServer::Connection {
  explicit Connection(std::shared_ptr<net::Channel> own) : channel(std::move(own)) {}

  void listen() {
    serving = false;
    try {
      received = channel->receive(frame);
    } catch (const Error&) {
      received = Work::failed(std::current_exception());
    }
  }

  // Memory that the client shares for the reply to its request. Empty if it has less than `bytes`.
  std::span<std::byte> area(std::size_t bytes) {
    if (request.into.area < 0 || bytes == 0 || bytes > request.into.bytes) return {};
    const auto all = channel->area_of_peer(static_cast<std::uint32_t>(request.into.area));
    return all.size() < bytes ? std::span<std::byte>() : all.first(bytes);
  }

  // Memory of its own for a reply.
  std::span<std::byte> own(std::size_t bytes) {
    if (memory.size() < bytes) {
      release();
      memory.resize(bytes);
    }
    return std::span(memory).first(bytes);
  }
  void release() { std::vector<std::byte>().swap(memory); }

  net::ChannelFrame frame;             // that is being received or served
  std::vector<std::byte> memory;       // of replies; kept for the next one
  std::span<const std::byte> payload;  // of the reply that is being sent
  std::string head;
  std::deque<std::pair<std::string, Work>> heard;  // being sent to a primary
  std::shared_ptr<net::Channel> channel;           // ends before what it uses
  Request request;
  Work received, sent;
  int shard = -1;                // that it is about
  std::int64_t weights = -1;     // the area of its weights, if this end shares them
  bool relays = false;           // it is a primary
  bool serving = false;          // a request is not answered yet
  bool answered = false;         // its reply waits for the backups
  std::uint64_t depends_on = 0;  // the position that the backups must have
};

struct ParameterServer::ServedShard {
  template <class... OfService>
  explicit ServedShard(OfService&&... of_service)
      : service(std::forward<OfService>(of_service)...) {}

  std::optional<net::SharedArea> weights;  // of the service; outlives it
  Service service;
  Position at;                            // of the last request
  std::unique_ptr<Primary> primary;       // null: a backup
  std::uint64_t term = 0;                 // the newest that a primary has told
  int source = -1;                        // a backup's connection from its primary
  std::map<int, net::ChannelFrame> kept;  // a backup's: by client, memory of requests not answered
};

ParameterServer::ParameterServer(std::shared_ptr<Waiter> waiter, net::Acceptor& acceptor,
                                 ServingOptions options)
    : waiter_(std::move(waiter)),
      acceptor_(acceptor),
      options_(std::move(options)),
      team_(waiter_, options_.threads),
      contacts_(options_.contacts) {
  if (!contacts_.view) contacts_.view = [view = view_of_one(options_.number)] { return view; };
  adopt_view();
}

ParameterServer::~ParameterServer() {
  for (const auto& [client, connection] : connections_) connection->channel->close();
}

const Service& ParameterServer::service() const {
  const auto own = places_.find(options_.number);
  TRIREME_CHECK((own != places_.end()));
  return own->second->service;
}

ParameterServer::ServedShard& ParameterServer::place(int shard) {
  std::unique_ptr<ServedShard>& found = places_[shard];
  if (!found) {
    found = std::make_unique<ServedShard>(
        shard,
        [this, shard](int client, const Reply& reply, std::span<const std::byte> memory) {
          answer(shard, client, reply, memory);
        },
        [this, shard](Applied one) {
          one.at = place(shard).at;
          if (options_.on_applied) options_.on_applied(one);
        },
        team_.spread(),
        Rooms{.reply = [this, shard](int client,
                                     std::size_t bytes) { return room(shard, client, bytes); },
              .shard = [this, shard](int client,
                                     std::size_t bytes) { return shared(shard, client, bytes); },
              .reads = [this, shard](int client) { return reads(shard, client); }});
  }
  return *found;
}

void ParameterServer::adopt_view() {
  auto view = contacts_.view();
  if (view_ && view->number == view_->number) return;
  view_ = std::move(view);
  fenced_ = !view_->lives(options_.number, options_.incarnation);
  if (fenced_) return;
  for (int shard = 0; shard < static_cast<int>(view_->shards.size()); ++shard) {
    if (view_->primary(shard) != options_.number) continue;
    ServedShard& own = place(shard);
    if (own.primary) {
      own.primary->adopt(*view_);
      continue;
    }
    own.primary = std::make_unique<Primary>(
        waiter_, own.service, own.at, contacts_, *view_,
        Primary::Options{.shard = shard, .server = options_.number, .patience = options_.patience});
    own.kept.clear();
    if (own.source >= 0) drop(std::exchange(own.source, -1));
  }
}

void ParameterServer::accept_next() {
  accept_at_ = TimePoint::max();
  arriving_ = std::make_shared<std::shared_ptr<net::Channel>>();
  accepted_ = acceptor_.accept(*arriving_);
  accepted_.on_settled([kept = arriving_](const std::exception_ptr&) {});
}

bool ParameterServer::work_waits() const {
  const bool pausing = accept_at_ != TimePoint::max();
  return (pausing ? waiter_->now() >= accept_at_ : accepted_.done()) ||
         contacts_.view()->number != view_->number ||
         std::any_of(
             connections_.begin(), connections_.end(),
             [](const auto& one) { return !one.second->serving && one.second->received.done(); }) ||
         std::any_of(places_.begin(), places_.end(), [](const auto& one) {
           return one.second->primary && one.second->primary->work_waits();
         });
}

// While updates are being made, the network is looked at after each part of them.
TimePoint ParameterServer::wake_at() const {
  TimePoint first = accept_at_;
  for (const auto& [shard, own] : places_) {
    if (own->service.under_way()) return waiter_->now();
    if (own->primary) first = std::min(first, own->primary->wake_at());
  }
  return first;
}

void ParameterServer::run(const std::function<bool()>& ended) {
  accept_next();
  while (!ended() && !fenced_) {
    waiter_->wait_until([&] { return ended() || work_waits(); }, wake_at());
    adopt_view();
    if (fenced_) return;
    if (waiter_->now() >= accept_at_) accept_next();
    if (accept_at_ == TimePoint::max() && accepted_.done()) take_channel();
    std::vector<int> ready;
    for (const auto& [client, connection] : connections_)
      if (!connection->serving && connection->received.done()) ready.push_back(client);
    for (const int client : ready) {
      const auto found = connections_.find(client);
      if (found == connections_.end()) continue;
      const std::shared_ptr<Connection> keep = found->second;
      take_frame(client, *keep);
    }
    for (const auto& [shard, own] : places_) {
      if (own->service.under_way()) own->service.advance();
      if (own->primary) own->primary->poll();
    }
    send_settled();
  }
}

void ParameterServer::take_channel() {
  try {
    accepted_.wait();
  } catch (const ResourceError& error) {
    // Connected clients go on; new callers wait in the system's queue.
    if (!std::exchange(warned_, true))
      observe::warning("server " + std::to_string(options_.number) +
                       " takes no more connections for now: " + error.what());
    accept_at_ = waiter_->now() + kAcceptPause;
    return;
  }
  const int client = next_client_++;
  auto connection = std::make_shared<Connection>(std::move(*arriving_));
  connection->listen();
  connections_.emplace(client, std::move(connection));
  accept_next();
}

void ParameterServer::take_frame(int client, Connection& connection) {
  try {
    connection.received.wait();
    is_relay(connection.frame.head()) ? take_relay(client, connection)
                                      : take_request(client, connection);
  } catch (const PeerLost&) {
    drop(client);
  } catch (const Error& error) {
    refuse(client, connection, error);
  }
}

// The other end may be of another version, which reads only this. A server expects no Reply.
void ParameterServer::refuse(int client, Connection& connection, const Error& error) {
  if (!std::exchange(warned_of_refusal_, true))
    observe::warning("server " + std::to_string(options_.number) +
                     " ends a connection: " + error.what());
  connection.payload = {};
  if (!is_relay(connection.frame.head()) && connection.sent.done())
    send(connection, to_text(Reply{.exit_code = error.exit_code(), .text = error.what()}));
  drop(client);
}

void ParameterServer::take_request(int client, Connection& connection) {
  Request request = request_from(connection.frame.head());
  const auto memory = memory_of(*connection.channel, connection.frame, request.memory);
  if (connection.shard >= 0 && connection.shard != request.shard)
    throw RefusedError("a connection for two shards");
  // All weights and state, which are rarely read.
  if (connection.request.ask == Ask::Read && connection.sent.done()) connection.release();
  connection.request = std::move(request);
  connection.serving = true;
  const auto found = places_.find(connection.request.shard);
  if (found == places_.end() || !found->second->primary) {
    connection.payload = {};  // the worker then looks for the primary again
    return send(connection, to_text(Reply{.ask = connection.request.ask, .elsewhere = true}));
  }
  connection.shard = connection.request.shard;
  found->second->primary->submit(client, connection.request, memory, connections_.at(client));
}

void ParameterServer::take_relay(int client, Connection& connection) {
  const Relay relay = relay_from(connection.frame.head());
  Heard heard;
  if (relay.shard < 0 || relay.shard >= static_cast<int>(view_->shards.size()))
    throw RefusedError("a copy of a shard that does not exist");
  ServedShard& own = place(relay.shard);
  own.term = std::max(own.term, view_->shards[static_cast<std::size_t>(relay.shard)].term);
  heard.term = own.term;
  heard.refused = relay.term < own.term;
  if (!heard.refused && !follow(client, relay, connection)) return drop(client);
  heard.at = own.at;
  while (!connection.heard.empty() && connection.heard.front().second.done())
    connection.heard.pop_front();
  auto& [head, sent] = connection.heard.emplace_back(to_text(heard), Work());
  sent = connection.channel->send(std::as_bytes(std::span(head)));
  connection.listen();
}

// Does what the primary says. False: this connection may not say that.
bool ParameterServer::follow(int client, const Relay& relay, Connection& connection) {
  ServedShard& own = place(relay.shard);
  if (own.primary) return false;
  own.term = relay.term;
  if (relay.kind == Relay::Kind::Hello) {
    connection.relays = true;
    connection.shard = relay.shard;
    if (own.source >= 0 && own.source != client) drop(own.source);
    own.source = client;
    return true;
  }
  if (own.source != client) return false;
  if (relay.kind == Relay::Kind::Snapshot) {
    const auto all = connection.frame.payload();
    if (relay.text_bytes > all.size()) return false;
    own.kept.clear();
    try {
      own.service.restore({reinterpret_cast<const char*>(all.data()), relay.text_bytes},
                          all.subspan(relay.text_bytes));
    } catch (const Error&) {
      places_.erase(relay.shard);  // perhaps half of it is there
      throw;
    }
    own.at = relay.at;
    return true;
  }
  if (relay.at.index != own.at.index + 1) return false;
  if (relay.kind == Relay::Kind::Lost) {
    own.at = relay.at;
    own.service.lost(relay.client);
    own.kept.erase(relay.client);
    return true;
  }
  net::ChannelFrame* frame = &connection.frame;
  if (relay.request.ask == Ask::Terms) {  // its memory is needed until the round is complete
    frame = &own.kept[relay.client];
    std::swap(*frame, connection.frame);
  }
  Memory sent = relay.request.memory;
  sent.area = -1;
  const auto memory = memory_of(*connection.channel, *frame, sent);
  own.at = relay.at;
  own.service.handle(relay.client, relay.request, memory);
  return true;
}

void ParameterServer::send(Connection& connection, const std::string& head) {
  connection.head = head;
  try {
    connection.sent =
        connection.channel->send(std::as_bytes(std::span(connection.head)), connection.payload);
  } catch (const Error&) {  // the next receive tells
  }
  connection.answered = false;
  connection.listen();
}

void ParameterServer::drop(int client) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  const std::shared_ptr<Connection> connection = found->second;
  connection->channel->close();
  connections_.erase(found);
  const auto about = places_.find(connection->shard);
  if (about == places_.end()) return;
  ServedShard& own = *about->second;
  if (own.source == client) own.source = -1;
  if (own.primary && !connection->relays) own.primary->lose(client);
}

// Memory for a reply of `bytes`: the area that the client has named, or else the connection's own,
// unless the reply before is still being sent from there.
std::span<std::byte> ParameterServer::room(int shard, int client, std::size_t bytes) {
  const auto found = connections_.find(client);
  if (!place(shard).primary || found == connections_.end() || bytes == 0) return {};
  Connection& connection = *found->second;
  if (const auto area = connection.area(bytes); !area.empty()) return area;
  if (!connection.sent.done()) return {};
  return connection.own(bytes);
}

// Memory for a shard's weights, which all clients on this host read. A backup has none, and goes on
// without it as a primary.
std::span<std::byte> ParameterServer::shared(int shard, int client, std::size_t bytes) {
  ServedShard& own = place(shard);
  const auto found = connections_.find(client);
  if (!own.primary || found == connections_.end() || bytes == 0) return {};
  try {
    own.weights = found->second->channel->share(bytes);
  } catch (const ResourceError&) {  // weights are sent then
    return {};
  }
  if (!own.weights) return {};
  found->second->weights = own.weights->id;
  return own.weights->bytes;
}

bool ParameterServer::reads(int shard, int client) {
  const std::optional<net::SharedArea>& weights = place(shard).weights;
  const auto found = connections_.find(client);
  if (!weights || found == connections_.end()) return false;
  Connection& connection = *found->second;
  if (net::SharedArea area = *weights; connection.weights < 0 && connection.channel->share(area))
    connection.weights = area.id;
  return connection.weights >= 0;
}

void ParameterServer::answer(int shard, int client, const Reply& reply,
                             std::span<const std::byte> memory) {
  ServedShard& own = place(shard);
  if (!own.primary) {
    own.kept.erase(client);
    return;
  }
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  Reply told = reply;
  told.memory.bytes = memory.size();
  connection.payload = {};  // not that of the reply before
  if (reply.in_place) {
    told.memory.area = connection.weights;
  } else if (const auto area = connection.area(memory.size()); !area.empty()) {
    told.memory.area = connection.request.into.area;
    if (!reply.written) team_.copy(area.data(), memory.data(), memory.size(), /*reads=*/true);
  } else {
    const auto room = connection.own(memory.size());
    if (!reply.written) team_.copy(room.data(), memory.data(), memory.size());
    connection.payload = room;
  }
  connection.head = to_text(told);
  connection.answered = true;
  connection.depends_on = own.primary->newest();
}

void ParameterServer::send_settled() {
  for (const auto& [client, connection] : connections_) {
    if (!connection->answered) continue;
    const auto& primary = places_.at(connection->shard)->primary;
    if (!primary->settled(connection->depends_on)) continue;
    send(*connection, std::string(connection->head));
  }
}

}  // namespace trireme::inline v0::ps
