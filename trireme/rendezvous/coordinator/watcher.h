// Watcher: the coordinator's side of one rank's news stream.
//
// Everything, gRPC's reactions too, happens on the service's thread under its lock. Deletes itself
// when gRPC is done with it. `on_end` is called when the rank has cancelled the stream or its
// connection is gone. Only for .cc files of rendezvous.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "trireme/base/work_thread.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

class Watcher final : public grpc::ServerWriteReactor<wire::News> {
 public:
  Watcher(WorkThread& worker, std::mutex& mutex) : worker_(worker), mutex_(mutex) {}

  /// Call it first. `all` holds the watcher until it ends.
  void open(int rank, std::set<Watcher*>& all, std::function<void()> on_end) {
    process_ = rank;
    all_ = &all;
    on_end_ = std::move(on_end);
    all.insert(this);
  }
  int process() const noexcept { return process_; }
  /// From now on `on_end` is not called.
  void ignore_end() noexcept { ignored_ = true; }

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
    react([this, ok] {
      writing_ = false;
      queue_.pop_front();
      if (finished_) return;
      if (!ok || (closing_ && queue_.empty())) return finish_now();
      if (!queue_.empty()) write();
    });
  }
  void OnCancel() override {
    react([this] {
      queue_.resize(writing_ ? 1 : 0);
      finish(grpc::Status::CANCELLED);
      if (!ignored_) on_end_();
    });
  }
  void OnDone() override {
    react([this] {
      all_->erase(this);
      delete this;
    });
  }

 private:
  void react(auto reaction) {
    worker_.post([&mutex = mutex_, reaction] {
      std::lock_guard lock(mutex);
      reaction();
    });
  }
  void write() {
    writing_ = true;
    StartWrite(&queue_.front());
  }
  void finish_now() {
    finished_ = true;
    Finish(status_);
  }

  WorkThread& worker_;
  std::mutex& mutex_;
  int process_ = -1;
  std::set<Watcher*>* all_ = nullptr;
  std::function<void()> on_end_;
  std::deque<wire::News> queue_;  // the front is being written
  bool writing_ = false, closing_ = false, finished_ = false, ignored_ = false;
  grpc::Status status_;
};

}  // namespace trireme::inline v0::rendezvous
