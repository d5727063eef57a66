// A store in an etcd that refuses, or that cannot answer now.
#include "trireme/rendezvous/coordinator/state_store.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rendezvous/etcd.grpc.pb.h"

namespace trireme::rendezvous::etcd_store_test {
namespace {

using ::testing::HasSubstr;

class FakeEtcd final : public etcdserverpb::KV::Service {
 public:
  FakeEtcd() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::unique_ptr<StateStore> store() const {
    return etcd_store("etcd://here/key", "127.0.0.1:" + std::to_string(port_), "key",
                      std::chrono::seconds(30));
  }
  void answer(grpc::Status status) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(status);
  }

 private:
  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest*,
                     etcdserverpb::RangeResponse* reply) override {
    const std::lock_guard lock(mutex_);
    if (revision_ == 0) return answer_;
    etcdserverpb::KeyValue& found = *reply->add_kvs();
    found.set_mod_revision(revision_);
    found.set_value(value_);
    return answer_;
  }
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* reply) override {
    const std::lock_guard lock(mutex_);
    if (!answer_.ok() || request->compare(0).mod_revision() != revision_) return answer_;
    value_ = request->success(0).request_put().value();
    reply->mutable_header()->set_revision(++revision_);
    reply->set_succeeded(true);
    return answer_;
  }
  std::mutex mutex_;  // of the server's threads and the test's
  grpc::Status answer_;
  std::int64_t revision_ = 0;
  std::string value_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A coordinator repeats what failed by a ResourceError.
TEST(EtcdStore, WhatEtcdWillNeverTakeIsNotTriedAgain) {
  FakeEtcd etcd;
  const auto store = etcd.store();
  EXPECT_NO_THROW(store->save("one"));
  etcd.answer({grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: no space"});
  EXPECT_THROW(store->save("two"), ResourceError);
  etcd.answer({grpc::StatusCode::UNAVAILABLE, "etcdserver: no leader"});
  EXPECT_THROW(store->save("two"), ResourceError);
  etcd.answer({grpc::StatusCode::INVALID_ARGUMENT, "etcdserver: request is too large"});
  try {
    store->save("two");
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("etcd://here/key refuses: etcdserver: request is too"));
  }
}

// A signal that is repeated, for example, leaves the state as it was.
TEST(EtcdStore, IsNotTakenBackByAnEarlierOwnerThatSavesTheSameText) {
  FakeEtcd etcd;
  const auto first = etcd.store(), second = etcd.store();
  EXPECT_EQ(first->open(), std::nullopt);
  first->save("text");
  EXPECT_EQ(second->open(), "text");
  EXPECT_THROW(first->save("text"), RefusedError);
  EXPECT_NO_THROW(second->save("text"));
  second->clear();
  EXPECT_EQ(etcd.store()->open(), std::nullopt);
}

}  // namespace
}  // namespace trireme::rendezvous::etcd_store_test
