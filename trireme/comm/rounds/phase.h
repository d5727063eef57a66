// Phase: sends and receives, and a callback that runs when all have ended. Progress context only.
//
//     auto phase = Phase::open(engine, [..] { next(); });
//     phase->send(...); phase->recv(...);
//     phase->close();                       // next() may run inside
//
// A failed transfer, or an exception from a callback, breaks the engine; then `next` never runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {

class Phase : public std::enable_shared_from_this<Phase> {
 public:
  static std::shared_ptr<Phase> open(Engine& engine, std::function<void()> next);
  Phase(std::shared_ptr<Engine> engine, std::function<void()> next)
      : engine_(std::move(engine)), next_(std::move(next)) {}
  void send(int peer, net::Tag tag, std::span<const std::byte> bytes);
  /// `arrived` runs when the bytes have been received, before next().
  void recv(int peer, net::Tag tag, std::span<std::byte> bytes,
            std::function<void()> arrived = nullptr);
  void close() { settle(-1, nullptr); }

 private:
  void settle(int peer, const std::exception_ptr& error);
  void attempt(const std::function<void()>& step);
  const std::shared_ptr<Engine> engine_;
  std::function<void()> next_;
  std::size_t open_ = 1;
};

}  // namespace trireme::inline v0::comm
