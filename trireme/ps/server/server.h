// ParameterServer: one server of a job, with a copy of its own shard and, with replicas, of those
// of others. It accepts workers and other servers at any time. The thread of run() takes their
// requests one by one: from workers where it is a shard's primary, from the primary where it is a
// backup. Pushes that come while others are being applied join them (sweep.h). A reply leaves once
// all backups have what it depends on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/net/channel.h"
#include "trireme/ps/copies/primary.h"
#include "trireme/ps/server/team.h"

namespace trireme::inline v0::ps {

struct ServingOptions {
  int number = 0;
  std::uint32_t incarnation = 1;  // from ServerAuthority::up()
  ServerContacts contacts = {};   // no view: this server is alone with its shard, and has no backup
  OnApplied on_applied = {};
  int threads = 1;  // with which it goes over large memory (team.h)
  /// How long a backup may owe an answer before the authority is told that it is unreachable.
  Duration patience = std::chrono::seconds(30);
};

class ParameterServer {
 public:
  /// `acceptor` outlives it.
  ParameterServer(std::shared_ptr<Waiter> waiter, net::Acceptor& acceptor, ServingOptions options);
  ~ParameterServer();

  /// Serves until `ended` returns true; it is asked whenever the waiter wakes. Returns early if the
  /// authority has taken this server for dead: then is_fenced().
  void run(const std::function<bool()>& ended);
  bool is_fenced() const noexcept { return fenced_; }
  /// The service of its own shard.
  const Service& service() const;

 private:
  struct Connection;
  struct ServedShard;  // what it has of one shard

  bool work_waits() const;
  TimePoint wake_at() const;
  void adopt_view();
  ServedShard& place(int shard);
  void accept_next();
  void take_channel();
  void take_frame(int client, Connection& connection);
  void take_request(int client, Connection& connection);
  void take_relay(int client, Connection& connection);
  bool follow(int client, const Relay& relay, Connection& connection);
  void send(Connection& connection, const std::string& head);
  void refuse(int client, Connection& connection, const Error& error);
  void drop(int client);
  void answer(int shard, int client, const Reply& reply, std::span<const std::byte> memory);
  std::span<std::byte> room(int shard, int client, std::size_t bytes);
  std::span<std::byte> shared(int shard, int client, std::size_t bytes);
  bool reads(int shard, int client);
  void send_settled();

  const std::shared_ptr<Waiter> waiter_;
  net::Acceptor& acceptor_;
  const ServingOptions options_;
  Team team_;
  ServerContacts contacts_;
  std::shared_ptr<const rendezvous::ServerView> view_;  // adopted
  bool fenced_ = false;
  std::map<int, std::shared_ptr<Connection>> connections_;
  std::map<int, std::unique_ptr<ServedShard>> places_;  // by shard
  int next_client_ = 0;
  std::shared_ptr<std::shared_ptr<net::Channel>> arriving_;  // the acceptor may outlive this
  Work accepted_;
  TimePoint accept_at_ = TimePoint::max();  // the next try
  bool warned_ = false;                     // that no connection can be taken
  bool warned_of_refusal_ = false;
};

}  // namespace trireme::inline v0::ps
