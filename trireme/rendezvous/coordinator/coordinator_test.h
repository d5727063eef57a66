// Shared by tests of the coordinator: its processes, with a client or by hand.
#pragma once

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::rendezvous {

inline const std::string kSecret(32, 's');

inline ClientOptions client_options(const Coordinator& coordinator, int rank) {
  return {.endpoint = coordinator.endpoint(),
          .secret = kSecret,
          .rank = rank,
          .host = "host",
          .timeout = std::chrono::seconds(5)};
}

template <class F>
ErrorReport error_of(F&& call) {
  try {
    call();
  } catch (...) {
    return describe(std::current_exception());
  }
  return {0, "no error", {}};
}

// Only passes the door; does not join.
inline std::unique_ptr<wire::Coordinator::Stub> stub_for(const Coordinator& coordinator) {
  Descriptor socket = enter(coordinator.endpoint(), kSecret, std::chrono::seconds(5));
  return wire::Coordinator::NewStub(
      grpc::CreateInsecureChannelFromFd("coordinator", socket.release()));
}

// Joins as `rank` without a CoordinatorClient; returns its token.
inline std::string join_by_hand(wire::Coordinator::Stub& stub, std::uint32_t rank) {
  wire::JoinRequest join;
  join.set_version(std::string(kWireVersion));
  join.set_job("job");
  join.set_rank(rank);
  join.set_host("by hand");
  wire::JoinReply reply;
  grpc::ClientContext context;
  EXPECT_TRUE(stub.Join(&context, join, &reply).ok());
  return reply.token();
}

// Outlives coordinators. `failing` calls of save() fail first.
class MemoryStore final : public StateStore {
 public:
  std::optional<std::string> open() override { return text_; }
  void save(const std::string& text) override {
    if (failing > 0 && failing-- > 0) throw ResourceError("the memory is away");
    text_ = text;
  }
  void clear() override { text_.reset(); }
  const std::string& address() const noexcept override { return address_; }
  std::atomic<int> failing{0};

 private:
  std::optional<std::string> text_;
  const std::string address_ = "memory";
};

// A coordinator that others follow at its port names it, so that the system reuses it at once.
inline std::uint16_t free_port() {
  const std::string address = net::listen_tcp("127.0.0.1", 0).address;
  return net::parse_endpoint(address.substr(address.find(' ') + 1)).value().port;
}

// Three processes come and go; a coordinator that others follow regroups them.
inline CoordinatorOptions options_for(const std::shared_ptr<StateStore>& store,
                                      std::uint16_t port = free_port()) {
  CoordinatorOptions options;
  options.roles.workers = 3;
  options.port = port;
  options.secret = kSecret;
  options.elastic = Epoch{};
  options.lost_with_stream = true;
  options.store = store;
  options.returns_within = std::chrono::seconds(30);
  return options;
}

}  // namespace trireme::rendezvous
