#include "trireme/ps/copies/follower.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::ps {
namespace {

constexpr Duration kRetryAfter = std::chrono::milliseconds(20);  // between two attempts to connect

}  // namespace

Follower::Follower(std::shared_ptr<Waiter> waiter, Options options)
    : waiter_(std::move(waiter)), options_(std::move(options)), owes_since_(waiter_->now()) {}

Follower::~Follower() { lose(); }

bool Follower::work_waits() const {
  if (state_ == State::Away) return waiter_->now() >= next_try_;
  if (sending_ && outgoing_.front().sent.done()) return true;
  return state_ == State::Dialled ? dialled_.done() : received_.done();
}

TimePoint Follower::wake_at() const noexcept {
  return state_ == State::Away ? next_try_ : TimePoint::max();
}

void Follower::poll(const Log& log, Service& service) {
  if (refused_) return;
  try {
    if (state_ == State::Away && waiter_->now() >= next_try_) dial();
    if (state_ == State::Dialled && dialled_.done()) greet();
    while (state_ >= State::Greeted && !refused_ && received_.done()) take(log, service);
  } catch (const PeerLost&) {  // it is not there
    lose();
  } catch (const TimeoutError&) {
    lose();
  } catch (const Error& error) {  // it speaks another protocol
    if (!std::exchange(warned_, true))
      observe::warning("shard " + std::to_string(options_.shard) + " has no copy on server " +
                       std::to_string(options_.server) + ": " + error.what());
    lose();
  }
  drop_sent();
}

// The time for an answer begins when the message has left, which may take long.
void Follower::drop_sent() {
  const std::size_t before = outgoing_.size();
  while (!outgoing_.empty() && outgoing_.front().sent.done()) {
    if (outgoing_.front().entry.request) behind_bytes_ -= outgoing_.front().own.size();
    outgoing_.pop_front();
  }
  if (sending_ && outgoing_.size() < before && owes_since_ != TimePoint::max())
    owes_since_ = waiter_->now();
  sending_ = !outgoing_.empty();
}

void Follower::dial() {
  arriving_ = std::make_shared<std::shared_ptr<net::Channel>>();
  dialled_ = options_.dial(arriving_);
  state_ = State::Dialled;
}

void Follower::greet() {
  dialled_.wait();
  channel_ = std::move(*arriving_);
  state_ = State::Greeted;
  put({.kind = Relay::Kind::Hello, .shard = options_.shard, .term = options_.term}, {}, {});
  listen();
}

void Follower::take(const Log& log, Service& service) {
  received_.wait();
  const Heard heard = heard_from(frame_.head());
  listen();
  if (heard.refused) {
    refused_ = true;
    return;
  }
  if (state_ == State::Greeted) return catch_up(heard.at, log, service);
  acknowledged_ = std::max(acknowledged_, heard.at.index);
  owes_since_ = acknowledged_ < sent_ ? waiter_->now() : TimePoint::max();
}

void Follower::catch_up(Position from, const Log& log, Service& service) {
  state_ = State::Following;
  const auto& entries = log.entries;
  const auto next = std::find_if(entries.begin(), entries.end(),
                                 [&](const LogEntry& one) { return one.at == from; });
  if (next == entries.end() && from != log.before) return send_snapshot(log.end(), service);
  acknowledged_ = std::max(acknowledged_, from.index);
  sent_ = from.index;
  owes_since_ = TimePoint::max();
  for (auto entry = next == entries.end() ? entries.begin() : next + 1; entry != entries.end();
       ++entry)
    send(*entry);
}

void Follower::send_snapshot(Position at, Service& service) {
  Saved saved = service.snapshot();
  const auto text = std::as_bytes(std::span(saved.text));
  saved.memory.insert(saved.memory.begin(), text.begin(), text.end());
  put({.kind = Relay::Kind::Snapshot,
       .shard = options_.shard,
       .term = options_.term,
       .at = at,
       .text_bytes = text.size()},
      {}, std::move(saved.memory));
  sent_ = at.index;
}

void Follower::send(const LogEntry& entry) {
  if (state_ != State::Following) return;
  Relay relay{.kind = entry.request ? Relay::Kind::Request : Relay::Kind::Lost,
              .shard = options_.shard,
              .term = options_.term,
              .at = entry.at,
              .client = entry.client};
  if (entry.request) relay.request = *entry.request;
  // The worker may get its answer, and change the memory, before this backup has the entry. If the
  // backup falls too far behind, workers wait for it.
  std::vector<std::byte> own;
  if (!required_) own.assign(entry.memory.begin(), entry.memory.end());
  behind_bytes_ += own.size();
  required_ = required_ || behind_bytes_ > options_.most_behind_bytes;
  sent_ = entry.at.index;
  put(relay, entry, std::move(own));
}

void Follower::put(const Relay& relay, LogEntry entry, std::vector<std::byte> own) {
  if (owes_since_ == TimePoint::max()) owes_since_ = waiter_->now();
  outgoing_.push_back({to_text(relay), std::move(entry), std::move(own), {}});
  Outgoing& one = outgoing_.back();
  try {
    one.sent = channel_->send(std::as_bytes(std::span(one.head)),
                              one.own.empty() ? one.entry.memory : one.own);
  } catch (const Error&) {  // the next receive tells
  }
}

void Follower::lose() {
  if (std::exchange(sending_, false) || owes_since_ == TimePoint::max())
    owes_since_ = waiter_->now();
  state_ = State::Away;
  received_ = Work();
  if (channel_) channel_->close();
  channel_.reset();  // before the memory that it sends
  outgoing_.clear();
  behind_bytes_ = 0;
  next_try_ = waiter_->now() + kRetryAfter;
}

}  // namespace trireme::inline v0::ps
