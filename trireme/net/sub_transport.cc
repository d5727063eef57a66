#include "trireme/net/sub_transport.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/mixed.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {
namespace {

// Communicators over the parent itself set the highest bit; other users of a transport set neither.
constexpr std::uint64_t kGroupTags = 1ull << 62;

constexpr std::uint64_t mix(std::uint64_t value) noexcept { return mixed(value + kMixedStep); }

class SubTransport final : public Transport, private HostMemory, private MoveTimes {
 public:
  SubTransport(std::shared_ptr<Transport> parent, std::vector<int> ranks, std::uint64_t id)
      : parent_(std::move(parent)),
        theirs_(parent_->capabilities()),
        ranks_(std::move(ranks)),
        id_(id) {
    const auto self = std::find(ranks_.begin(), ranks_.end(), parent_->rank());
    TRIREME_CHECK((self != ranks_.end()));
    rank_ = static_cast<int>(self - ranks_.begin());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  std::shared_ptr<Waiter> waiter() const override { return parent_->waiter(); }
  std::string_view name() const noexcept override { return parent_->name(); }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    return parent_->send(checked(peer), outer(tag), bytes);
  }
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override {
    return parent_->recv(checked(peer), outer(tag), bytes);
  }
  bool lost(int peer) const noexcept override { return parent_->lost(of(peer)); }
  void abort(std::exception_ptr error) noexcept override { parent_->abort(std::move(error)); }
  /// The parent reduces over all its ranks only.
  Capabilities capabilities() noexcept override {
    return {.memory = theirs_.memory ? this : nullptr, .moves = theirs_.moves ? this : nullptr};
  }

  const std::shared_ptr<Transport>& parent() const noexcept { return parent_; }
  int of(int peer) const noexcept { return ranks_[static_cast<std::size_t>(peer)]; }

 private:
  // HostMemory:
  Region allocate(std::size_t bytes, std::span<const int> peers) override {
    if (peers.empty()) return theirs_.memory->allocate(bytes, ranks_);
    std::vector<int> chosen;
    for (const int peer : peers) chosen.push_back(checked(peer));
    return theirs_.memory->allocate(bytes, chosen);
  }
  bool can_map(int peer) const noexcept override { return theirs_.memory->can_map(of(peer)); }
  std::span<std::byte> map(int peer, RegionId region) override {
    return theirs_.memory->map(checked(peer), region);
  }
  void unmap(int peer, RegionId region) noexcept override {
    theirs_.memory->unmap(of(peer), region);
  }
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) override {
    return theirs_.memory->read(of(peer), address, to);
  }
  void notify(int peer) noexcept override { theirs_.memory->notify(of(peer)); }
  // MoveTimes:
  TimePoint last_moved(int peer) const noexcept override {
    return theirs_.moves->last_moved(of(peer));
  }

  int checked(int peer) const {
    check_peer(peer, size());
    return of(peer);
  }
  Tag outer(Tag tag) const noexcept { return {kGroupTags | mix(id_ ^ mix(tag.value)) >> 2}; }

  const std::shared_ptr<Transport> parent_;
  const Capabilities theirs_;
  const std::vector<int> ranks_;  // of the parent
  const std::uint64_t id_;
  int rank_ = 0;
};

}  // namespace

std::uint64_t group_id(std::uint64_t parent, std::span<const int> ranks, std::string_view name,
                       std::uint64_t times) {
  std::uint64_t hash = mix(mix(parent) ^ times);
  for (const int rank : ranks) hash = mix(hash ^ static_cast<std::uint64_t>(rank));
  hash = mix(hash ^ ranks.size() << 32 ^ name.size());
  for (const char one : name) hash = mix(hash ^ static_cast<unsigned char>(one));
  return hash >> 3;
}

std::shared_ptr<Transport> make_sub_transport(std::shared_ptr<Transport> parent,
                                              std::vector<int> ranks, std::uint64_t id) {
  for (const int rank : ranks) check_peer(rank, parent->size());
  if (const auto* group = dynamic_cast<const SubTransport*>(parent.get())) {
    for (int& rank : ranks) rank = group->of(rank);
    parent = std::shared_ptr<Transport>(group->parent());
  }
  return std::make_shared<SubTransport>(std::move(parent), std::move(ranks), id);
}

}  // namespace trireme::inline v0::net
