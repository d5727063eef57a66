// Channels of a parameter server that tell an observer when a request has arrived and when its reply
// leaves. They change nothing of what travels.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/net/channel.h"
#include "trireme/ps/messages.h"

namespace trireme::inline v0::cli {

/// Called in the server's progress context, and on its thread.
struct ServerObserver {
  std::function<void(const ps::Request& request)> arrived;
  /// `request`: the one that is answered.
  std::function<void(const ps::Request& request)> answered;
};

/// Accepts from `inner`, which outlives it.
class RecordedAcceptor final : public net::Acceptor {
 public:
  RecordedAcceptor(net::Acceptor& inner, ServerObserver observer)
      : inner_(inner), observer_(std::make_shared<ServerObserver>(std::move(observer))) {}
  const std::string& address() const noexcept override { return inner_.address(); }
  Work accept(std::shared_ptr<net::Channel>& to) override;

 private:
  net::Acceptor& inner_;
  const std::shared_ptr<ServerObserver> observer_;
};

}  // namespace trireme::inline v0::cli
