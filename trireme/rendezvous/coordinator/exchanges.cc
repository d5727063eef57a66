#include "trireme/rendezvous/coordinator/exchanges.h"

#include <numeric>

namespace trireme::inline v0::rendezvous {

std::optional<Group> Exchanges::group_of(const wire::ExchangeRequest& request, int processes) {
  Group group;
  if (request.members_size() > 0) {
    group.assign(request.members().begin(), request.members().end());
    const bool ascends = std::is_sorted(group.begin(), group.end());
    if (!ascends || group.front() < 0 || group.back() >= processes) return std::nullopt;
    return group;
  }
  const auto all = static_cast<std::size_t>(processes);
  const std::size_t count = request.count() > 0 ? request.count() : all;
  if (request.first() >= all || count > all - request.first()) return std::nullopt;
  group.resize(count);
  std::iota(group.begin(), group.end(), static_cast<int>(request.first()));
  return group;
}

void Exchanges::give(int process, const Group& group, const wire::ExchangeRequest& request,
                     Call call, const std::function<bool()>& save) {
  const Key key{request.key(), group};
  if (const auto done = complete_.find(key); done != complete_.end()) {
    for (const std::string& value : done->second) call.reply->add_values(value);
    return call.reactor->Finish(grpc::Status::OK);
  }
  const auto entry = pending_.try_emplace(key).first;
  Pending& pending = entry->second;
  pending.values[process] = request.value();
  // The rank repeats a call whose deadline has passed; nobody reads the earlier answer.
  if (const auto old = pending.waiting.find(process); old != pending.waiting.end()) {
    old->second.reactor->Finish(grpc::Status::CANCELLED);
  }
  pending.waiting[process] = call;
  if (pending.values.size() == group.size()) return complete(entry, save);
  if (!broken_.empty()) fail_all(broken_);
}

void Exchanges::complete(std::map<Key, Pending>::iterator entry,
                         const std::function<bool()>& save) {
  Pending& pending = entry->second;
  std::vector<std::string>& values = complete_[entry->first];
  for (const auto& [process, value] : pending.values) values.push_back(value);
  const grpc::Status status = save() ? grpc::Status::OK : store_lost();
  for (auto& [process, call] : pending.waiting) {
    for (const auto& [giver, value] : pending.values) call.reply->add_values(value);
    call.reactor->Finish(status);
  }
  pending_.erase(entry);
}

void Exchanges::Pending::fail(const std::string& why) {
  for (auto& [process, call] : waiting) call.reactor->Finish({grpc::StatusCode::ABORTED, why});
  waiting.clear();
}

void Exchanges::fail_all(const std::string& why) {
  for (auto& [key, pending] : pending_) pending.fail(why);
}

void Exchanges::fail_awaiting(int process, const std::string& why) {
  for (auto& [key, pending] : pending_) {
    if (is_in(key.second, process) && !pending.values.contains(process)) pending.fail(why);
  }
}

void Exchanges::break_off(const std::string& why) {
  broken_ = why;
  fail_all(why);
}

void Exchanges::begin_anew(const std::string& why) {
  fail_all(why);
  pending_.clear();
  broken_.clear();
}

void Exchanges::save(wire::SavedState& state) const {
  for (const auto& [key, values] : complete_) {
    wire::SavedExchange& one = *state.add_exchanges();
    one.set_key(key.first);
    for (const int member : key.second) one.add_members(static_cast<std::uint32_t>(member));
    for (const std::string& value : values) one.add_values(value);
  }
}

void Exchanges::restore(const wire::SavedState& state) {
  for (const wire::SavedExchange& one : state.exchanges())
    complete_[{one.key(), {one.members().begin(), one.members().end()}}] = {one.values().begin(),
                                                                            one.values().end()};
}

}  // namespace trireme::inline v0::rendezvous
