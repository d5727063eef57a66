#include "trireme/net/sim/sim_channels.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/work_source.h"

namespace trireme::inline v0::net {
namespace {

std::exception_ptr lost(int peer, const char* why) {
  return std::make_exception_ptr(PeerLost(std::string("the other end of a channel is gone: ") + why,
                                          {.operation = "channel", .peer = peer}));
}

// One end of a connection. It needs no lock, because the scheduler runs one thread or progress
// context at a time.
struct End {
  Identity other;
  int rank = 0;
  std::exception_ptr failure;  // nothing more can be received or sent
  std::deque<ChannelFrame> arrived;
  std::deque<std::pair<ChannelFrame*, WorkSource>> receiving;
  std::deque<WorkSource> sending;  // of frames that a socket does not take at once
  std::vector<SharedArea> areas;   // that this end shares
  TimePoint last_sent{};           // when its last frame arrives

  void fail(const std::exception_ptr& error) {
    if (failure) return;
    failure = error;
    end_works();
  }
  void end_works() {
    for (auto& [frame, source] : std::exchange(receiving, {})) source.fail(failure);
    for (auto& source : std::exchange(sending, {})) source.fail(failure);
  }
  void match() {
    while (!arrived.empty() && !receiving.empty()) {
      const auto [frame, source] = receiving.front();
      receiving.pop_front();
      *frame = std::move(arrived.front());
      arrived.pop_front();
      source.complete();
    }
  }
};

struct Pair : std::array<End, 2> {
  bool lossy = false;  // something was lost on it
};
using Ends = std::shared_ptr<Pair>;

}  // namespace

struct SimChannels::State {
  struct Listening {
    std::deque<std::shared_ptr<Channel>> callers;
    std::shared_ptr<Channel>* to = nullptr;
    std::optional<WorkSource> source;
    void match() {
      if (!source || callers.empty()) return;
      *to = std::move(callers.front());
      callers.pop_front();
      std::exchange(source, std::nullopt)->complete();
    }
  };
  State(SimNetwork& its_network, const SimChannelOptions& its_options)
      : network(its_network),
        options(its_options),
        ways(scheduler(),
             {options.alpha, options.bytes_per_second, options.jitter, options.one_link}) {}

  SimNetwork& network;
  const SimChannelOptions options;
  SimWays ways;
  std::map<std::string, std::shared_ptr<Listening>> listening;
  std::vector<std::weak_ptr<Pair>> pairs;
  std::set<std::pair<int, int>> cuts;  // the lower rank first

  Scheduler& scheduler() const { return network.scheduler(); }
  bool is_cut(int one, int other) const { return cuts.count(std::minmax(one, other)) > 0; }
  // Calls `call` for every channel of a rank, with the rank's side of it.
  void for_each(int rank, const std::function<void(const Ends&, std::size_t side)>& call) {
    std::erase_if(pairs, [](const auto& one) { return one.expired(); });
    for (const auto& one : pairs) {
      const Ends ends = one.lock();
      for (const std::size_t side : {0u, 1u})
        if ((*ends)[side].rank == rank) call(ends, side);
    }
  }
  // Fails the end once everything that the other end has sent has arrived.
  void fail_later(const Ends& ends, std::size_t side, const char* why) {
    End& other = (*ends)[1 - side];
    if (is_cut(other.rank, (*ends)[side].rank)) {
      ends->lossy = true;
      return;
    }
    scheduler().at((*ends)[side].rank, arrival(other, (*ends)[side].rank, 0),
                   [ends, side, error = lost(other.rank, why)] { (*ends)[side].fail(error); },
                   true);
  }
  // When `bytes` that `from` sends now arrive at rank `to`.
  TimePoint arrival(End& from, int to, std::size_t bytes) {
    return from.last_sent = std::max(from.last_sent, ways.arrival(from.rank, to, bytes));
  }
};

namespace {

class SimChannel final : public Channel {
 public:
  SimChannel(std::shared_ptr<SimChannels::State> state, Ends ends, int side)
      : state_(std::move(state)),
        ends_(std::move(ends)),
        side_(static_cast<std::size_t>(side)),
        waiter_(state_->network.waiter(own().rank)) {}
  ~SimChannel() override { close(); }

  const Identity& peer() const noexcept override { return own().other; }

  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    TRIREME_CHECK(head.size() <= kMostHeadBytes);
    if (own().failure) return Work::failed(own().failure);
    Scheduler& scheduler = state_->scheduler();
    if (scheduler.random().draw(1'000'000) <
        static_cast<std::uint64_t>(state_->options.broken_per_million)) {
      break_off();
      return Work::failed(own().failure);
    }
    if (state_->is_cut(own().rank, other().rank)) {
      ends_->lossy = true;
      return {};
    }
    auto frame = std::make_shared<ChannelFrame>();
    frame->resize(head.size(), payload.size());
    std::copy(head.begin(), head.end(), frame->writable_head().begin());
    std::copy(payload.begin(), payload.end(), frame->payload().begin());
    const TimePoint when = state_->arrival(own(), other().rank, head.size() + payload.size());
    scheduler.at(
        other().rank, when,
        [ends = ends_, side = 1 - side_, frame] {
          End& end = (*ends)[side];
          if (end.failure) return;
          end.arrived.push_back(std::move(*frame));
          end.match();
        },
        true);
    if (head.size() + payload.size() <= state_->options.socket_bytes) return {};
    own().sending.emplace_back(waiter_, nullptr, "channel send");
    scheduler.at(
        own().rank, when,
        [ends = ends_, side = side_] {
          std::deque<WorkSource>& sending = (*ends)[side].sending;
          if (sending.empty()) return;  // it has failed
          sending.front().complete();
          sending.pop_front();
        },
        true);
    return own().sending.back().work();
  }

  Work receive(ChannelFrame& frame) override {
    const WorkSource source(waiter_, nullptr, "channel receive");
    waiter_->run([ends = ends_, side = side_, &frame, source] {
      End& end = (*ends)[side];
      if (end.failure) return source.fail(end.failure);
      end.receiving.emplace_back(&frame, source);
      end.match();
    });
    return source.work();
  }

  std::optional<SharedArea> share(std::size_t bytes) override {
    if (!state_->options.shared_memory) return std::nullopt;
    const Region region = private_region(bytes);
    own().areas.push_back(
        {static_cast<std::uint32_t>(own().areas.size()), region.bytes, region.owner});
    return own().areas.back();
  }

  bool share(SharedArea& area) override {
    if (!state_->options.shared_memory) return false;
    area.id = static_cast<std::uint32_t>(own().areas.size());
    own().areas.push_back(area);
    return true;
  }

  std::span<std::byte> area_of_peer(std::uint32_t id) override {
    return id < other().areas.size() ? other().areas[id].bytes : std::span<std::byte>();
  }

  void close() override {
    if (own().failure) return;
    tell_other("it closed the connection");
    fail_own(lost(other().rank, "this end of the channel was closed"));
  }

 private:
  End& own() const { return (*ends_)[side_]; }
  End& other() const { return (*ends_)[1 - side_]; }

  void fail_own(const std::exception_ptr& error) {
    waiter_->run([ends = ends_, side = side_, error] { (*ends)[side].fail(error); });
  }
  void tell_other(const char* why) { state_->fail_later(ends_, 1 - side_, why); }
  void break_off() {
    tell_other("the connection broke");
    own().failure = lost(other().rank, "the connection broke");
    waiter_->run([ends = ends_, side = side_] { (*ends)[side].end_works(); });
  }

  const std::shared_ptr<SimChannels::State> state_;
  const Ends ends_;
  const std::size_t side_;
  const std::shared_ptr<Waiter> waiter_;
};

class SimAcceptor final : public Acceptor {
 public:
  SimAcceptor(std::shared_ptr<SimChannels::State> state, int rank)
      : state_(std::move(state)), rank_(rank), address_("sim:" + std::to_string(rank)) {
    TRIREME_CHECK(state_->listening.emplace(address_, listening_).second);
  }
  ~SimAcceptor() override {
    const auto found = state_->listening.find(address_);
    if (found != state_->listening.end() && found->second == listening_)
      state_->listening.erase(found);
    listening_->callers.clear();
    if (listening_->source) listening_->source->fail(lost(rank_, "nobody listens any more"));
  }
  const std::string& address() const noexcept override { return address_; }
  Work accept(std::shared_ptr<Channel>& to) override {
    const auto waiter = state_->network.waiter(rank_);
    const WorkSource source(waiter, nullptr, "channel accept");
    waiter->run([listening = listening_, source, &to] {
      TRIREME_CHECK(!listening->source);
      listening->source = source;
      listening->to = &to;
      listening->match();
    });
    return source.work();
  }

 private:
  const std::shared_ptr<SimChannels::State> state_;
  const int rank_;
  const std::string address_;
  const std::shared_ptr<SimChannels::State::Listening> listening_ =
      std::make_shared<SimChannels::State::Listening>();
};

}  // namespace

SimChannels::SimChannels(SimNetwork& network, SimChannelOptions options)
    : state_(std::make_shared<State>(network, options)) {}

std::unique_ptr<Acceptor> SimChannels::listen(int rank) {
  return std::make_unique<SimAcceptor>(state_, rank);
}

std::shared_ptr<Channel> SimChannels::dial(int rank, const std::string& address) {
  const auto found = state_->listening.find(address);
  const int to = std::stoi(address.substr(address.find(':') + 1));
  if (state_->is_cut(rank, to))
    throw TimeoutError("nobody answers", {.operation = "channel", .peer = to});
  if (found == state_->listening.end()) std::rethrow_exception(lost(to, "nobody listens there"));
  auto ends = std::make_shared<Pair>();
  state_->pairs.push_back(ends);
  (*ends)[0].rank = (*ends)[1].other.rank = rank;
  (*ends)[1].rank = (*ends)[0].other.rank = to;
  auto theirs = std::make_shared<SimChannel>(state_, ends, 1);
  state_->scheduler().at(
      to, state_->arrival((*ends)[0], to, 0),
      [listening = found->second, theirs]() mutable {
        listening->callers.push_back(std::move(theirs));
        listening->match();
      },
      true);
  return std::make_shared<SimChannel>(state_, ends, 0);
}

void SimChannels::kill(int rank) {
  state_->listening.erase("sim:" + std::to_string(rank));
  state_->for_each(rank, [&](const Ends& ends, std::size_t side) {
    if ((*ends)[side].failure) return;
    state_->fail_later(ends, 1 - side, "its process was killed");
    (*ends)[side].fail(lost(rank, "this process was killed"));
  });
}

void SimChannels::cut(int one, int other) { state_->cuts.insert(std::minmax(one, other)); }

void SimChannels::mend(int one, int other) {
  if (state_->cuts.erase(std::minmax(one, other)) == 0) return;
  state_->for_each(one, [&](const Ends& ends, std::size_t side) {
    if (!ends->lossy || (*ends)[1 - side].rank != other) return;
    state_->fail_later(ends, side, "the connection broke");
    state_->fail_later(ends, 1 - side, "the connection broke");
  });
}

}  // namespace trireme::inline v0::net
