#include "trireme/ps/server.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::ps {

struct ParameterServer::Connection {
  explicit Connection(std::shared_ptr<net::Channel> own) : channel(std::move(own)) {}

  void listen() {
    try {
      received = channel->receive(frame);
    } catch (const Error&) {
      received = Work::failed(std::current_exception());
    }
  }

  std::shared_ptr<net::Channel> channel;
  net::ChannelFrame frame;  // of the request that is being received or served
  Request request;
  Work received, sent;
  bool serving = false;
  std::string head;
  std::vector<std::byte> memory;  // of the reply that is being sent; never made smaller
};

ParameterServer::ParameterServer(std::shared_ptr<Waiter> waiter, net::Acceptor& acceptor,
                                 int number, Service::OnUpdate on_update, int threads)
    : waiter_(std::move(waiter)),
      acceptor_(acceptor),
      team_(waiter_, threads),
      service_(
          number,
          [this](int client, const Reply& reply, std::span<const std::byte> memory) {
            answer(client, reply, memory);
          },
          std::move(on_update), team_.spread()) {}

ParameterServer::~ParameterServer() {
  for (const auto& [client, connection] : connections_) connection->channel->close();
}

void ParameterServer::accept_next() { accepted_ = acceptor_.accept(arriving_); }

bool ParameterServer::work_waits() const {
  return accepted_.done() ||
         std::any_of(connections_.begin(), connections_.end(), [](const auto& one) {
           return !one.second->serving && one.second->received.done();
         });
}

void ParameterServer::run(const std::function<bool()>& ended) {
  accept_next();
  while (!ended()) {
    waiter_->wait_until([&] { return ended() || work_waits(); }, TimePoint::max());
    if (accepted_.done()) take_channel();
    std::vector<int> ready;
    for (const auto& [client, connection] : connections_)
      if (!connection->serving && connection->received.done()) ready.push_back(client);
    for (const int client : ready) {
      const auto found = connections_.find(client);
      if (found != connections_.end()) take_request(client, *found->second);
    }
  }
}

void ParameterServer::take_channel() {
  accepted_.wait();
  const int client = next_client_++;
  auto connection = std::make_unique<Connection>(std::move(arriving_));
  connection->listen();
  connections_.emplace(client, std::move(connection));
  accept_next();
}

void ParameterServer::take_request(int client, Connection& connection) {
  std::span<const std::byte> memory;
  try {
    connection.received.wait();
    connection.request = request_from(connection.frame.head());
    const Memory& sent = connection.request.memory;
    memory = connection.frame.payload();
    if (sent.area >= 0)
      memory = connection.channel->area_of_peer(static_cast<std::uint32_t>(sent.area));
    if (sent.bytes > memory.size()) throw RefusedError("a message of less memory than it says");
    memory = memory.first(sent.bytes);
  } catch (const Error&) {  // it is gone, or no worker
    return drop(client);
  }
  connection.serving = true;
  service_.handle(client, connection.request, memory);
}

void ParameterServer::drop(int client) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  found->second->channel->close();
  connections_.erase(found);
  service_.lost(client);
}

void ParameterServer::answer(int client, const Reply& reply, std::span<const std::byte> memory) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  Reply own = reply;
  own.memory.bytes = memory.size();
  const Memory& into = connection.request.into;
  std::span<std::byte> area, payload;
  if (into.area >= 0 && !memory.empty() && memory.size() <= into.bytes)
    area = connection.channel->area_of_peer(static_cast<std::uint32_t>(into.area));
  if (!memory.empty() && area.size() >= memory.size()) {
    own.memory.area = into.area;
    team_.copy(area.data(), memory.data(), memory.size());
  } else {
    if (connection.memory.size() < memory.size()) connection.memory.resize(memory.size());
    team_.copy(connection.memory.data(), memory.data(), memory.size());
    payload = std::span(connection.memory).first(memory.size());
  }
  connection.head = to_text(own);
  try {
    connection.sent = connection.channel->send(std::as_bytes(std::span(connection.head)), payload);
  } catch (const Error&) {  // the next receive tells
  }
  connection.serving = false;
  connection.listen();
}

}  // namespace trireme::inline v0::ps
