// NewsStreams: the streams of news from the coordinator to the processes. The end of a stream shows
// that its process is gone.
//
// A process may open a new stream before the coordinator sees the end of the last one, so streams
// have numbers: the end of the latest counts, unless the process has announced it. A part of
// JobState, under its lock. Only for .cc files of rendezvous (gRPC's headers).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/rendezvous/coordinator/watcher.h"

namespace trireme::inline v0::rendezvous {

class NewsStreams {
 public:
  explicit NewsStreams(int processes) : by_process_(static_cast<std::size_t>(processes)) {}

  /// Registers the watcher of the process's stream number `stream`. `process` -1: of no process.
  void open(Watcher* watcher, int process, std::uint32_t stream, std::function<void()> on_end) {
    watcher->open(process, watchers_, std::move(on_end));
    if (process < 0) return;
    State& state = by_process_[static_cast<std::size_t>(process)];
    state.watched = stream >= state.next;
    state.latest = stream;
  }
  /// The process announces that it ends this stream, whose opening may still arrive.
  void stop(int process, std::uint32_t stream) {
    State& state = by_process_[static_cast<std::size_t>(process)];
    state.watched = false;
    state.next = stream + 1;
  }
  /// The stream has ended. True, but only once, if that means the end of its process.
  bool take_end(int process, std::uint32_t stream) {
    if (process < 0) return false;
    State& state = by_process_[static_cast<std::size_t>(process)];
    if (!state.watched || stream < state.next || stream < state.latest) return false;
    state.watched = false;
    return true;
  }

  void tell_all(const wire::News& news) {
    for (Watcher* watcher : watchers_) watcher->push(news);
  }
  void tell_those(const std::function<bool(int process)>& whom, const wire::News& news) {
    for (Watcher* watcher : watchers_)
      if (whom(watcher->process())) watcher->push(news);
  }
  /// Whether news reach the process.
  bool reaches(int process) const {
    return any([process](int one) { return one == process; });
  }
  /// Whether news reach a process for which `is` is true.
  bool any(const std::function<bool(int process)>& is) const {
    return std::any_of(watchers_.begin(), watchers_.end(), [&](const Watcher* one) {
      return one->process() >= 0 && is(one->process());
    });
  }
  /// Ends the streams of the process.
  void finish(int process, const grpc::Status& status) {
    for (Watcher* watcher : watchers_)
      if (watcher->process() == process) watcher->finish(status);
  }
  /// Another process may come in this one's place; it counts streams from 0. Ends of the open ones
  /// are ignored.
  void begin_anew(int process) {
    by_process_[static_cast<std::size_t>(process)] = {};
    for (Watcher* watcher : watchers_)
      if (watcher->process() == process) watcher->ignore_end();
  }
  /// Ends all streams; their ends are ignored.
  void close(const grpc::Status& status) {
    for (State& state : by_process_) state.watched = false;
    for (Watcher* watcher : watchers_) watcher->finish(status);
  }

 private:
  struct State {
    bool watched = false;    // the end of its stream is the process's end
    std::uint32_t next = 0;  // the first stream whose stop was not announced
    std::uint32_t latest = 0;
  };
  std::vector<State> by_process_;
  std::set<Watcher*> watchers_;
};

}  // namespace trireme::inline v0::rendezvous
