// What tests of the coordinator share: its processes, with a client or by hand.
#pragma once

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "trireme/base/error.h"
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
  net::Descriptor socket = enter(coordinator.endpoint(), kSecret, std::chrono::seconds(5));
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

}  // namespace trireme::rendezvous
