// ParameterServer: one server of a job. It accepts workers at any time, and serves their requests
// (service.h) in the thread of run(), one after the other.
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
#include "trireme/ps/service.h"
#include "trireme/ps/team.h"

namespace trireme::inline v0::ps {

class ParameterServer {
 public:
  /// `acceptor` outlives it. `threads`: of which it goes over large memory (team.h).
  ParameterServer(std::shared_ptr<Waiter> waiter, net::Acceptor& acceptor, int number,
                  Service::OnUpdate on_update = {}, int threads = 1);
  ~ParameterServer();

  /// Serves until `ended` returns true; it is asked whenever the waiter wakes.
  void run(const std::function<bool()>& ended);
  const Service& service() const noexcept { return service_; }

 private:
  struct Connection;

  bool work_waits() const;
  void accept_next();
  void take_channel();
  void take_request(int client, Connection& connection);
  void drop(int client);
  void answer(int client, const Reply& reply, std::span<const std::byte> memory);

  const std::shared_ptr<Waiter> waiter_;
  net::Acceptor& acceptor_;
  Team team_;
  Service service_;
  std::map<int, std::unique_ptr<Connection>> connections_;
  int next_client_ = 0;
  std::shared_ptr<net::Channel> arriving_;
  Work accepted_;
};

}  // namespace trireme::inline v0::ps
