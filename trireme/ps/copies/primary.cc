#include "trireme/ps/copies/primary.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::inline v0::ps {
namespace {

constexpr Duration kTellAgain = std::chrono::seconds(1);

}  // namespace

Primary::Primary(std::shared_ptr<Waiter> waiter, Service& service, Position& at,
                 const ServerContacts& contacts, const rendezvous::ServerView& view,
                 Options options)
    : waiter_(std::move(waiter)),
      service_(service),
      at_(at),
      contacts_(contacts),
      options_(options),
      term_(view.shards[static_cast<std::size_t>(options.shard)].term),
      log_{.before = at, .entries = {}},
      whole_(service.settings() != nullptr) {
  adopt(view);
  for (const int client : service_.clients()) lose(client);
}

void Primary::submit(int client, const Request& request, std::span<const std::byte> memory,
                     std::shared_ptr<const void> keeps) {
  if (!changes_state(request.ask)) return service_.handle(client, request, memory);
  append({.at = next(),
          .client = client,
          .request = request,
          .memory = memory,
          .keeps = std::move(keeps)});
}

void Primary::lose(int client) { append({.at = next(), .client = client}); }

// The backups get the entry first, so that all copies work at the same time.
void Primary::append(LogEntry entry) {
  log_.entries.push_back(std::move(entry));
  const LogEntry& own = log_.entries.back();
  for (const Backup& backup : backups_) backup.follower->send(own);
  at_ = own.at;
  if (own.request) {
    service_.handle(own.client, *own.request, own.memory);
  } else {
    service_.lost(own.client);
  }
  recruit();
  settle();
}

void Primary::adopt(const rendezvous::ServerView& view) {
  view_ = view;
  std::erase_if(backups_, [&](const Backup& one) {
    return !view_.lives(one.follower->server(), one.follower->incarnation());
  });
  for (const int server : view_.shards[static_cast<std::size_t>(options_.shard)].copies)
    if (server != options_.server) add(server, /*required=*/true);
  recruit();
  settle();
}

// Shard k has copies on those of servers k, k + 1, ... that live.
bool Primary::is_wanted(int server) const {
  const Settings* settings = service_.settings();
  if (settings == nullptr || server == options_.server) return false;
  const int servers = static_cast<int>(view_.servers.size());
  return (server - options_.shard + servers) % servers < settings->server.replicas &&
         view_.servers[static_cast<std::size_t>(server)].up;
}

void Primary::add(int server, bool required) {
  const auto is_it = [&](const Backup& one) { return one.follower->server() == server; };
  if (std::any_of(backups_.begin(), backups_.end(), is_it)) return;
  backups_.emplace_back().follower = std::make_unique<Follower>(
      waiter_,
      Follower::Options{
          .shard = options_.shard,
          .term = term_,
          .server = server,
          .incarnation = view_.servers[static_cast<std::size_t>(server)].incarnation,
          .dial = [this, server](auto to) { return contacts_.dial(server, std::move(to)); }});
  if (required) backups_.back().follower->require();
}

void Primary::recruit() {
  for (int server = 0; server < static_cast<int>(view_.servers.size()); ++server)
    if (is_wanted(server)) add(server, /*required=*/false);
}

bool Primary::work_waits() const {
  return !deposed_ && std::any_of(backups_.begin(), backups_.end(),
                                  [](const Backup& one) { return one.follower->work_waits(); });
}

// Whether workers wait for this follower.
bool Primary::is_awaited(const Follower& follower) const noexcept {
  return (follower.required() || !whole_) && follower.owes_since() != TimePoint::max();
}

// Whether the authority does not know yet that this follower has all that was ever answered.
bool Primary::is_unknown(const Follower& follower) const noexcept {
  return follower.required() && follower.acknowledged() >= committed_ &&
         !view_.has_copy(options_.shard, follower.server());
}

TimePoint Primary::wake_at() const noexcept {
  TimePoint first = TimePoint::max();
  if (deposed_) return first;
  for (const Backup& backup : backups_) {
    const Follower& follower = *backup.follower;
    first = std::min(first, follower.wake_at());
    if (is_awaited(follower)) first = std::min(first, follower.owes_since() + options_.patience);
    if (is_unknown(follower)) first = std::min(first, backup.told + kTellAgain);
  }
  return first;
}

void Primary::poll() {
  for (Backup& backup : backups_) {
    if (deposed_) return;
    Follower& follower = *backup.follower;
    const std::uint64_t before = follower.acknowledged();
    follower.poll(log_, service_);
    deposed_ = follower.refused();
    // From its first acknowledgement on every answer waits for it, so it catches up.
    if (follower.acknowledged() > before) follower.require();
    report(backup);
  }
  settle();
}

void Primary::report(Backup& backup) {
  Follower& follower = *backup.follower;
  const TimePoint now = waiter_->now();
  if (is_awaited(follower) && now >= follower.owes_since() + options_.patience) {
    follower.forgive();  // reports again after another `patience`
    contacts_.unreachable(follower.server(), follower.incarnation());
  }
  if (!is_unknown(follower) || now < backup.told + kTellAgain) return;
  backup.told = now;
  contacts_.has_copy(options_.shard, term_, follower.server(), follower.incarnation());
}

void Primary::settle() {
  if (deposed_) return;
  std::uint64_t all = at_.index;
  bool wants = false;
  for (const Backup& backup : backups_) {
    const Follower& follower = *backup.follower;
    if (follower.required()) all = std::min(all, follower.acknowledged());
    wants = wants || !follower.required();
  }
  committed_ = std::max(committed_, all);
  const bool begun = service_.settings() != nullptr;
  whole_ = whole_ || (begun && !wants);
  if (begun && !whole_)
    return;  // the first backups begin with the first request, without a snapshot
  while (!log_.entries.empty() && log_.entries.front().at.index <= committed_) {
    log_.before = log_.entries.front().at;
    log_.entries.pop_front();
  }
}

}  // namespace trireme::inline v0::ps
