// Authenticated messages to a job's coordinator (rendezvous/coordinator/door.h), from ranks that have joined
// and from others, in any order and with any contents: every call is answered or waits for the
// other ranks, no exception leaves the service, and calls without a session are refused.
//
// The input is a list of calls: the method, the caller, and the message's bytes.
#include <grpcpp/test/default_reactor_test_peer.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>

#include "tests/fuzz/poll_waiter.h"
#include "trireme/rendezvous/coordinator/coordinator_service.h"

namespace {

using namespace trireme;
namespace wire = rendezvous::wire;
using grpc::CallbackServerContext;
using grpc::testing::DefaultReactorTestPeer;

constexpr int kRanks = 3;
const std::string kSecret = "a secret of the job";

class Coordinator {
 public:
  Coordinator()
      : service_({.roles = {.workers = kRanks}, .secret = kSecret, .lost_with_stream = true}) {}
  ~Coordinator() { service_.close(); }

  void one(fuzz::Bytes& input) {
    const std::uint8_t what = input.byte();
    const std::uint8_t who = input.byte();
    const auto given = input.take(std::size_t{input.byte()} * (what < 0x80 ? 1 : 16));
    text_.assign(reinterpret_cast<const char*>(given.data()), given.size());
    switch (what % 7) {
      case 0:
        return greet(who);
      case 1:
        return call<wire::JoinRequest, wire::JoinReply>(&rendezvous::Service::Join, std::nullopt);
      case 2:
        return call<wire::ExchangeRequest, wire::ExchangeReply>(&rendezvous::Service::Exchange,
                                                                who);
      case 3:
        return call<wire::HeartbeatRequest, wire::HeartbeatReply>(&rendezvous::Service::Heartbeat,
                                                                  who);
      case 4:
        return call<wire::FailureReport, wire::Empty>(&rendezvous::Service::ReportFailure, who);
      case 5:
        return call<wire::WatchRequest, wire::Empty>(&rendezvous::Service::StopWatching, who);
      default:
        return call<wire::LeaveRequest, wire::Empty>(&rendezvous::Service::Leave, who);
    }
  }

 private:
  struct Open {
    Open() : peer(&context) {}
    CallbackServerContext context;
    DefaultReactorTestPeer peer;
  };

  // Joins as a rank does, with the input as host and identity.
  void greet(std::uint8_t who) {
    wire::JoinRequest join;
    join.ParseFromString(text_);
    join.set_version(std::string(rendezvous::kWireVersion));
    join.set_job("job");
    join.set_rank(who % (kRanks + 1));
    wire::JoinReply reply;
    Open& answered = open();
    service_.Join(&answered.context, &join, &reply);
    service_.drain();
    if (!answered.peer.test_status_set()) std::abort();
    if (!answered.peer.test_status().ok()) return;
    if (join.rank() >= kRanks) std::abort();
    tokens_[join.rank()] = reply.token();
  }

  // `who`: one of the ranks that have joined, or none.
  template <class Request, class Reply, class Method>
  void call(Method method, std::optional<std::uint8_t> who) {
    Request request;
    request.ParseFromString(text_);
    bool known = false;
    if constexpr (requires { request.mutable_session(); }) {
      if (who && *who < 0xe0) {
        const std::size_t rank = *who % kRanks;
        request.mutable_session()->set_rank(static_cast<std::uint32_t>(rank));
        request.mutable_session()->set_token(tokens_[rank]);
        known = !tokens_[rank].empty();
      }
    }
    Reply& reply = keep<Reply>();
    Open& one = open();
    (service_.*method)(&one.context, &request, &reply);
    service_.drain();
    if (!who || known) return;
    if (!one.peer.test_status_set()) std::abort();
    if (one.peer.test_status().error_code() != grpc::StatusCode::UNAUTHENTICATED) std::abort();
  }

  Open& open() { return calls_.emplace_back(); }
  // An exchange answers when all ranks have called it.
  template <class Reply>
  Reply& keep() {
    auto reply = std::make_shared<Reply>();
    replies_.push_back(reply);
    return *reply;
  }

  std::deque<Open> calls_;
  std::deque<std::shared_ptr<void>> replies_;
  std::array<std::string, kRanks> tokens_;
  std::string text_;
  rendezvous::Service service_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  Coordinator coordinator;
  for (int calls = 0; !input.empty() && calls < 200; ++calls) coordinator.one(input);
  return 0;
}
