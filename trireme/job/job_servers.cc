#include "trireme/job/job_servers.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/work_source.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/client.h"

namespace trireme::inline v0 {
namespace {

constexpr Duration kServersTimeout = std::chrono::seconds(2);
constexpr int kMostCarriers = 3;  // they share one memory

}  // namespace

void JobServers::open(std::shared_ptr<Waiter> waiter, rendezvous::CoordinatorClient* client,
                      net::ChannelOptions channels, bool serves) {
  waiter_ = std::move(waiter);
  client_ = client;
  channels_ = std::move(channels);
  serves_ = serves;
}

void JobServers::listen(const std::string& host) {
  net::ChannelOptions options = channels_;
  options.host = host;
  options.patience = options.timeout;  // a worker whose host is gone is no longer waited for
  options.carriers = std::min(observe::usable_cores().usable - 1, kMostCarriers);
  acceptor_ = net::listen_channels(waiter_, options);
  auto [newer, number] = client_->listen_at(acceptor_->address(), channels_.timeout);
  incarnation_ = number;
  adopt(std::move(newer));
}

void JobServers::adopt(rendezvous::ServerView newer) {
  {
    const std::lock_guard lock(mutex_);
    if (newer.number <= view_->number) return;
    view_ = std::make_shared<rendezvous::ServerView>(std::move(newer));
  }
  waiter_->wake();
}

void JobServers::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
}

std::exception_ptr JobServers::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<const rendezvous::ServerView> JobServers::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::shared_ptr<net::Channel> JobServers::connect(int server) const {
  const auto now = view();
  if (server < 0 || server >= static_cast<int>(now->servers.size()) ||
      !now->servers[static_cast<std::size_t>(server)].up)
    throw PeerLost(
        "no such server is there",
        {.rank = channels_.identity.rank, .operation = "parameter server", .peer = server});
  net::ChannelOptions options = channels_;
  // Another process may come in place of a server that hangs.
  if (serves_) {
    options.patience = options.timeout;
    options.timeout = std::min(options.timeout, kServersTimeout);
  }
  return net::dial_channel(waiter_, now->servers[static_cast<std::size_t>(server)].address,
                           options);
}

void JobServers::train_alone(int needed) const {
  const auto other = client_ != nullptr ? client_->tell_alone(needed) : std::nullopt;
  if (!other) return;
  const std::string own = std::to_string(channels_.identity.rank), its = std::to_string(*other);
  throw MismatchError("worker " + (needed > 0 ? own : its) +
                          " trains on its own, by its staleness or backup, and worker " +
                          (needed > 0 ? its : own) + " together with the others",
                      {.rank = channels_.identity.rank,
                       .operation = "parameter server",
                       .peer = *other,
                       .advice = "Give all workers the same options of servers."});
}

void JobServers::tell_stop(int signal) const noexcept {
  if (client_ != nullptr) client_->tell_stop(signal);
}

net::Acceptor& JobServers::acceptor() const {
  TRIREME_CHECK(acceptor_ != nullptr);
  return *acceptor_;
}

Work JobServers::dial(int server, std::shared_ptr<std::shared_ptr<net::Channel>> to) {
  const WorkSource source(waiter_, nullptr, "dial server " + std::to_string(server));
  const std::lock_guard lock(mutex_);
  diallers_[server].post([this, server, to = std::move(to), source] {
    std::exception_ptr error;
    try {
      *to = connect(server);
    } catch (...) {
      error = std::current_exception();
    }
    waiter_->run([source, error] { source.settle(error); });
  });
  return source.work();
}

void JobServers::tell(const Claim& claim, std::function<void()> say) {
  const std::lock_guard lock(mutex_);
  if (!untold_.insert(claim).second) return;
  if (!teller_) teller_.emplace();
  teller_->post([this, claim, say = std::move(say)] {
    say();
    const std::lock_guard told(mutex_);
    untold_.erase(claim);
  });
}

void JobServers::tell_copy(int shard, std::uint64_t term, int server, std::uint32_t incarnation) {
  tell({shard, term, server, incarnation},
       [=, this] { client_->tell_copy(shard, term, server, incarnation); });
}

void JobServers::tell_unreachable(int server, std::uint32_t incarnation) {
  tell({-1, 0, server, incarnation}, [=, this] { client_->tell_unreachable(server, incarnation); });
}

}  // namespace trireme::inline v0
