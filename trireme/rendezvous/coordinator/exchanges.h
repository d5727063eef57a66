// Exchanges: each process of a group gives a value under a key, and all get all values when the
// last one is there. Calls wait here until then, or until the exchange fails.
//
// A part of JobState, under its lock. Only for .cc files of rendezvous (gRPC's headers).
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

/// The processes that take part in an exchange, ascending.
using Group = std::vector<int>;
inline bool is_in(const Group& group, int process) {
  return std::binary_search(group.begin(), group.end(), process);
}

/// Answers calls whose effect could not be made durable.
inline grpc::Status store_lost() {
  return {grpc::StatusCode::UNAVAILABLE, "the coordinator cannot save its state any more"};
}

class Exchanges {
 public:
  struct Call {
    grpc::ServerUnaryReactor* reactor;
    wire::ExchangeReply* reply;
  };

  /// The group that the request names, in a job of so many processes; nullopt if it is invalid.
  static std::optional<Group> group_of(const wire::ExchangeRequest& request, int processes);
  /// Takes the value of `process`, and answers the call now or later. Before a complete exchange is
  /// answered, `save` makes it durable; if that fails, so do the calls.
  void give(int process, const Group& group, const wire::ExchangeRequest& request, Call call,
            const std::function<bool()>& save);

  /// Fails the calls that wait for a value of this process.
  void fail_awaiting(int process, const std::string& why);
  /// From now on calls that would wait fail; a group's last value still completes its exchange.
  void set_broken(std::string why) { broken_ = std::move(why); }
  /// As set_broken(), and fails the calls that wait now.
  void break_off(const std::string& why);
  /// Whether exactly these processes have completed an exchange since drop_complete().
  bool has_completed(const Group& group) const {
    return std::any_of(complete_.begin(), complete_.end(),
                       [&](const auto& one) { return one.first.second == group; });
  }
  /// Drops complete exchanges, because the ranks have changed.
  void drop_complete() { complete_.clear(); }
  /// Fails the calls that wait now; later ones work again.
  void begin_anew(const std::string& why);

  /// The complete exchanges.
  void save(wire::SavedState& state) const;
  void restore(const wire::SavedState& state);

 private:
  struct Pending {
    std::map<int, std::string> values;
    std::map<int, Call> waiting;
    /// Answers all waiting calls with ABORTED.
    void fail(const std::string& why);
  };
  using Key = std::pair<std::string, Group>;
  void complete(std::map<Key, Pending>::iterator entry, const std::function<bool()>& save);
  void fail_all(const std::string& why);

  std::map<Key, Pending> pending_;
  // The exchanges of this epoch stay here: a process whose answer was lost repeats its call.
  std::map<Key, std::vector<std::string>> complete_;
  std::string broken_;  // why later exchanges fail; empty: they work
};

}  // namespace trireme::inline v0::rendezvous
