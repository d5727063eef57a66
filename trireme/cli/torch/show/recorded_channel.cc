#include "trireme/cli/torch/show/recorded_channel.h"

#include <utility>

namespace trireme::inline v0::cli {
namespace {

class RecordedChannel final : public net::Channel {
 public:
  RecordedChannel(std::shared_ptr<net::Channel> inner, std::shared_ptr<ServerObserver> observer)
      : inner_(std::move(inner)), observer_(std::move(observer)) {}

  const net::Identity& peer() const noexcept override { return inner_->peer(); }
  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    observer_->answered(*request_);
    return inner_->send(head, payload);
  }
  Work receive(net::ChannelFrame& frame) override {
    return inner_->receive(frame).then([&frame, observer = observer_, request = request_] {
      *request = ps::request_from(frame.head());
      observer->arrived(*request);
    });
  }
  std::optional<net::SharedArea> share(std::size_t bytes) override { return inner_->share(bytes); }
  bool share(net::SharedArea& area) override { return inner_->share(area); }
  std::span<std::byte> area_of_peer(std::uint32_t id) override { return inner_->area_of_peer(id); }
  void close() override { inner_->close(); }

 private:
  const std::shared_ptr<net::Channel> inner_;
  const std::shared_ptr<ServerObserver> observer_;
  // Not answered yet; shared because a frame may arrive while this end is being destroyed.
  const std::shared_ptr<ps::Request> request_ = std::make_shared<ps::Request>();
};

}  // namespace

Work RecordedAcceptor::accept(std::shared_ptr<net::Channel>& to) {
  return inner_.accept(to).then([&to, observer = observer_] {
    to = std::make_shared<RecordedChannel>(std::move(to), observer);
  });
}

}  // namespace trireme::inline v0::cli
