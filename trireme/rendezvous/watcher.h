// Watcher: the coordinator's side of one rank's news stream.
//
// Call its methods under the lock of the service that owns it; gRPC's reactions take that lock
// themselves. Deletes itself when gRPC is done with it. Only for .cc files of launch. `on_end` is
// called under the lock when the rank has cancelled the stream or its connection is gone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

class Watcher final : public grpc::ServerWriteReactor<wire::News> {
 public:
  Watcher(std::mutex& mutex, std::set<Watcher*>& all, int process, std::function<void()> on_end)
      : process(process), mutex_(mutex), all_(all), on_end_(std::move(on_end)) {}

  const int process;

  void push(wire::News news) {
    queue_.push_back(std::move(news));
    if (!writing_ && !finished_) write();
  }
  void finish(const grpc::Status& status) {
    closing_ = true;
    status_ = status;
    if (!writing_ && !finished_) finish_now();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (finished_) return;
    if (!ok || (closing_ && queue_.empty())) return finish_now();
    if (!queue_.empty()) write();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    queue_.resize(writing_ ? 1 : 0);
    finish(grpc::Status::CANCELLED);
    on_end_();
  }
  void OnDone() override {
    {
      std::lock_guard lock(mutex_);
      all_.erase(this);
    }
    delete this;
  }

 private:
  void write() {
    writing_ = true;
    StartWrite(&queue_.front());
  }
  void finish_now() {
    finished_ = true;
    Finish(status_);
  }

  std::mutex& mutex_;
  std::set<Watcher*>& all_;
  const std::function<void()> on_end_;
  std::deque<wire::News> queue_;  // the front is being written
  bool writing_ = false, closing_ = false, finished_ = false;
  grpc::Status status_;
};

}  // namespace trireme::inline v0::rendezvous
