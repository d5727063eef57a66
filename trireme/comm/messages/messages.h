// Messages: the user's sends and receives, which run outside the order of the collectives; and the
// headers of collectives as messages. Progress context only.
#pragma once

#include <exception>
#include <memory>

#include "trireme/comm/calls/call.h"

namespace trireme::inline v0::comm {

class Engine;

class Messages {
 public:
  explicit Messages(Engine& engine) : engine_(engine) {}
  void run(const std::shared_ptr<Call>& call);
  bool any_open() const noexcept { return open_ > 0; }
  /// Also called by a device that moves the data itself, when the message has ended.
  void ended(const std::shared_ptr<Call>& call, int peer);

 private:
  /// MismatchError if the received header differs from the receive's own; else null.
  std::exception_ptr mismatch(const Call& call, int peer) const;
  void send(const std::shared_ptr<Call>& call, int peer);
  void receive(const std::shared_ptr<Call>& call, int peer);
  bool went_well(Call& call, const std::exception_ptr& error);
  void end(const std::shared_ptr<Call>& call, int peer);

  Engine& engine_;
  int open_ = 0;
};

/// For groups that have no board: every rank sends the envelope of the running call to all others.
/// Ends with Engine::on_agreed if all are the same.
void exchange_headers(Engine& engine, const std::shared_ptr<Call>& call);

}  // namespace trireme::inline v0::comm
