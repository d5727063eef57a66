#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rendezvous/coordinator/state_store.h"
#include "trireme/rendezvous/etcd.grpc.pb.h"
#include "trireme/rendezvous/launchers/room.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::rendezvous {
namespace {

namespace etcd = ::etcdserverpb;

constexpr std::size_t kOwnerBytes = 16;

// The same request would be refused again.
bool is_final(grpc::StatusCode code) {
  return code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::UNAUTHENTICATED ||
         code == grpc::StatusCode::PERMISSION_DENIED || code == grpc::StatusCode::UNIMPLEMENTED;
}

class EtcdStore final : public StateStore {
 public:
  EtcdStore(std::string address, const std::string& endpoint, std::string key, Duration timeout)
      : address_(std::move(address)), key_(std::move(key)), timeout_(timeout) {
    require_room_for_grpc();
    grpc::ChannelArguments arguments;
    // The pause between tries to connect would grow to two minutes.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    channel_ = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
    stub_ = etcd::KV::NewStub(channel_);
  }

  // Writing the text again gives it a revision and an owner that the earlier owner does not expect.
  std::optional<std::string> open() override {
    for (;;) {
      const auto [revision, value] = read();
      revision_ = revision;
      const std::string text = value.substr(std::min(kOwnerBytes, value.size()));
      if (write(owner_ + text)) return text.empty() ? std::nullopt : std::optional(text);
    }
  }

  void save(const std::string& text) override {
    if (write(owner_ + text)) return;
    // The answer to an earlier try may have been lost.
    const auto [revision, value] = read();
    if (value != owner_ + text) refuse_taken_store(address_);
    revision_ = revision;
  }

  // An empty text, not an absent key: the revision of the owner counts until the end.
  void clear() override { save(""); }

  const std::string& address() const noexcept override { return address_; }

 private:
  template <class Request, class Reply>
  void call(grpc::Status (etcd::KV::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request, Reply& reply) {
    grpc::ClientContext context;
    // While it connects, a call waits for it until the deadline.
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout_));
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (is_final(status.error_code()))
      throw RefusedError(
          "etcd at " + address_ + " refuses: " + status.error_message(),
          {.operation = "coordinator", .advice = "See etcd's own log, and its limits."});
    if (!status.ok())
      throw ResourceError("etcd at " + address_ + " does not answer: " + status.error_message(),
                          {.operation = "coordinator", .advice = "See whether etcd runs there."});
  }

  std::pair<std::int64_t, std::string> read() {
    etcd::RangeRequest request;
    request.set_key(key_);
    etcd::RangeResponse reply;
    call(&etcd::KV::Stub::Range, request, reply);
    if (reply.kvs_size() == 0) return {0, ""};
    return {reply.kvs(0).mod_revision(), reply.kvs(0).value()};
  }

  // False if the key is not as this store left it.
  bool write(const std::string& value) {
    etcd::TxnRequest request;
    etcd::Compare& compare = *request.add_compare();
    compare.set_target(etcd::Compare::MOD);
    compare.set_key(key_);
    compare.set_mod_revision(revision_);
    etcd::PutRequest& put = *request.add_success()->mutable_request_put();
    put.set_key(key_);
    put.set_value(value);
    etcd::TxnResponse reply;
    call(&etcd::KV::Stub::Txn, request, reply);
    if (reply.succeeded()) revision_ = reply.header().revision();
    return reply.succeeded();
  }

  const std::string address_, key_;
  const std::string owner_ = random_bytes(kOwnerBytes);  // of the text: it comes first in the value
  const Duration timeout_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<etcd::KV::Stub> stub_;
  std::int64_t revision_ = 0;  // of the key when this store wrote it; 0: there is no key
};

}  // namespace

std::unique_ptr<StateStore> etcd_store(const std::string& address, const std::string& endpoint,
                                       const std::string& key, Duration timeout) {
  return std::make_unique<EtcdStore>(address, endpoint, key, timeout);
}

}  // namespace trireme::inline v0::rendezvous
