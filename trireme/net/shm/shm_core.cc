#include "trireme/net/shm/shm_core.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {

constexpr int kRingFramesPerPoll = 64;  // of one peer, so that no other peer starves
constexpr unsigned kPollsPerSocketCheck = 256;
constexpr Duration kLongestSend = std::chrono::seconds(1);  // of a region
constexpr const char* kNotReceived =
    "a descriptor could not be sent: the peer does not receive, or this user has too many "
    "descriptors under way";
constexpr const char* kDropped =
    "the system dropped a peer's descriptor: this process may open no more files";

ShmCore::ShmCore(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
                 std::vector<Descriptor> sockets)
    : FrameCarrier(options.rank, options.size, std::move(waiter), options.names),
      waiter_(messenger_.waiter()),
      options_(options),
      peers_(static_cast<std::size_t>(options.size)) {
  TRIREME_CHECK(static_cast<int>(sockets.size()) == options.size);
  doorbell_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!doorbell_) throw_system_error("eventfd");
  CreatedMemory segment = create_memory(segment_bytes(options.size));
  segment_ = segment.memory;
  SegmentHeader* const header = header_of(segment_->bytes());
  header->magic = kShmMagic;
  header->version = kShmVersion;
  header->rank = options.rank;
  header->size = options.size;
  if (getrandom(&header->nonce, sizeof header->nonce, 0) < 0) throw_system_error("getrandom");
  for (int peer = 0; peer < options.size; ++peer) {
    at(peer).socket = std::move(sockets[static_cast<std::size_t>(peer)]);
    const Descriptor& watched = peer == options.rank ? doorbell_ : at(peer).socket;
    epoll_.control(EPOLL_CTL_ADD, watched.get(), EPOLLIN, static_cast<std::uint64_t>(peer));
  }
  const Until until(waiter_->now() + options.timeout, options.cancelled);
  introduce(segment, until);
  for (int peer = 0; peer < options.size; ++peer) {
    while (peer != options.rank && !at(peer).link) {
      wait_for(*waiter_, epoll_.get(), POLLIN, until,
               "the segment of rank " + std::to_string(name_of(options, peer)));
      check_sockets();
    }
  }
}

// The kernel limits the descriptors that a user has sent and nobody has received. So this rank
// receives whenever it cannot send, and no rank waits for the others before it receives.
void ShmCore::introduce(const CreatedMemory& segment, const Until& until) {
  Control hello;
  hello.epoch = options_.epoch;
  hello.rank = options_.rank;
  hello.size = options_.size;
  hello.bytes = segment.memory->bytes().size();
  hello.process = getpid();
  hello.header = reinterpret_cast<std::uint64_t>(segment.memory->bytes().data());
  const std::vector<int> descriptors = {segment.descriptor.get(), doorbell_.get()};
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) continue;
    while (!send_control(at(peer).socket.get(), hello, descriptors)) {
      until.check();
      if (waiter_->now() >= until.deadline) throw no_descriptors(peer, kNotReceived);
      check_sockets();
      waiter_->sleep(kSendPause);
    }
  }
}

void ShmCore::refuse(int peer, const std::string& why) const {
  const int name = name_of(options_, peer);
  throw RefusedError("rank " + std::to_string(name) + " " + why,
                     {.rank = name_of(options_, options_.rank),
                      .operation = "shm",
                      .peer = name,
                      .advice = "Run the same version in every process of the job."});
}

ResourceError ShmCore::no_descriptors(int peer, std::string message) const {
  return ResourceError(std::move(message), {.rank = name_of(options_, options_.rank),
                                            .operation = "shm",
                                            .peer = name_of(options_, peer),
                                            .advice = "Raise the limit on open files "
                                                      "(ulimit -n) of every rank."});
}

void ShmCore::meet(int peer, Received& hello) {
  Peer& other = at(peer);
  const Control& control = hello.control;
  if (hello.cut) throw no_descriptors(peer, kDropped);
  if (control.kind != ControlKind::Hello || hello.descriptors.size() != 2 || control.rank != peer ||
      control.size != options_.size || control.epoch != options_.epoch ||
      control.bytes != segment_bytes(options_.size)) {
    refuse(peer, "introduced itself as rank " + std::to_string(control.rank) + " of " +
                     std::to_string(control.size) + ", epoch " + std::to_string(control.epoch));
  }
  other.segment = open_memory(hello.descriptors[0], control.bytes);
  other.doorbell = std::move(hello.descriptors[1]);
  const SegmentHeader* const header = header_of(other.segment->bytes());
  if (header->magic != kShmMagic || header->version != kShmVersion || header->rank != peer) {
    refuse(peer, "has a segment of another version");
  }
  // Yama, a seccomp filter or another pid namespace may forbid it; read() then returns false.
  SegmentHeader seen;
  other.process = static_cast<pid_t>(control.process);
  if (!read(peer, control.header, {reinterpret_cast<std::byte*>(&seen), sizeof seen}) ||
      seen.nonce != header->nonce || seen.rank != peer) {
    other.process = 0;
  }
  other.link =
      std::make_unique<ShmLink>(*this, peer, ring_of(other.segment->bytes(), options_.rank));
  other.reader = std::make_unique<RingReader>(ring_of(segment_->bytes(), peer));
  messenger_.attach(peer, other.link.get());
}

Region ShmCore::allocate(std::size_t bytes, std::span<const int> peers) {
  const CreatedMemory created = create_memory(bytes);
  const Region region{{num_regions_++}, created.memory->bytes(), created.memory};
  Control control;
  control.kind = ControlKind::Region;
  control.rank = options_.rank;
  control.region = region.id.value;
  control.bytes = bytes;
  const std::vector<int> descriptors = {created.descriptor.get()};
  own_regions_.emplace(region.id.value, created.memory);
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank || messenger_.lost(peer)) continue;
    if (!peers.empty() && std::find(peers.begin(), peers.end(), peer) == peers.end()) continue;
    try {
      send_region(peer, control, descriptors);
    } catch (const PeerLost&) {
      check_sockets();  // fails what is pending with it
    }
  }
  return region;
}

// As introduce(), but in the progress context.
void ShmCore::send_region(int peer, const Control& control, const std::vector<int>& descriptors) {
  const TimePoint deadline = waiter_->now() + kLongestSend;
  while (!send_control(at(peer).socket.get(), control, descriptors)) {
    if (waiter_->now() >= deadline) throw no_descriptors(peer, kNotReceived);
    check_sockets();
    ::poll(nullptr, 0, static_cast<int>(kSendPause.count()));
  }
}

std::span<std::byte> ShmCore::map(int peer, RegionId region) {
  check_peer(peer, options_.size);
  if (peer == options_.rank) {
    TRIREME_CHECK(region.value < num_regions_);
    const auto found = own_regions_.find(region.value);
    const auto own = found == own_regions_.end() ? nullptr : found->second.lock();
    return own ? own->bytes() : std::span<std::byte>();
  }
  // The descriptor was sent before the message that proves the registration, so it has arrived.
  if (!at(peer).regions.contains(region.value)) read_socket(peer);
  const auto found = at(peer).regions.find(region.value);
  if (found == at(peer).regions.end()) return {};
  if (found->second.failure) std::rethrow_exception(found->second.failure);
  return found->second.memory->bytes();
}

void ShmCore::unmap(int peer, RegionId region) noexcept {
  peer == options_.rank ? own_regions_.erase(region.value) : at(peer).regions.erase(region.value);
}

void ShmCore::notify(int peer) noexcept {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> fence{0};  // ThreadSanitizer knows no fences
  fence.fetch_add(1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  if (peer != options_.rank) ring_if_asleep(peer);
}

bool ShmCore::read(int peer, std::uintptr_t address, std::span<std::byte> to) noexcept {
  const pid_t process = peer == options_.rank ? getpid() : at(peer).process;
  if (process == 0) return false;
  while (!to.empty()) {
    if (messenger_.lost(peer)) return false;  // another process may have its number now
    iovec local{to.data(), to.size()}, remote{reinterpret_cast<void*>(address), to.size()};
    const ssize_t count = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (count <= 0) return false;
    address += static_cast<std::uintptr_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// The caller has stored a word or memory, sequentially consistent, before this; see ring.h.
void ShmCore::ring_if_asleep(int peer) noexcept {
  auto& sleeping = header_of(at(peer).segment->bytes())->sleeping;
  if (sleeping.load() == 0 || sleeping.exchange(0) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = write(at(peer).doorbell.get(), &one, sizeof one);
}

void ShmCore::arm(bool sleeping) noexcept {
  auto& flag = header_of(segment_->bytes())->sleeping;
  if (sleeping) {
    flag.store(1);
    armed_ = true;
  } else if (std::exchange(armed_, false) && flag.exchange(0) == 0) {
    rung_ = true;  // the peer that cleared the flag rings the doorbell
  }
}

bool ShmCore::poll() {
  if (rung_) {
    std::uint64_t value = 0;
    if (::read(doorbell_.get(), &value, sizeof value) > 0) rung_ = false;
  }
  bool moved = false;
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank || messenger_.lost(peer)) continue;
    moved |= poll_ring(peer);
    moved |= messenger_.pump(peer);
  }
  if (++polls_ % kPollsPerSocketCheck == 0) moved |= check_sockets();
  return moved;
}

bool ShmCore::poll_ring(int peer) {
  Peer& other = at(peer);
  RingReader::Entry entry;
  int taken = 0;
  other.in_ring = true;
  while (taken < kRingFramesPerPoll && other.reader->peek(entry)) {
    ++taken;
    if (take_frame(peer, *other.reader, entry)) continue;
    messenger_.lose(peer, "it wrote a frame that breaks the protocol");
    break;
  }
  other.in_ring = false;
  return taken > 0;
}

bool ShmCore::take_frame(int peer, RingReader& reader, const RingReader::Entry& entry) {
  const Frame& frame = entry.frame;
  std::size_t bulk = 0;
  if (frame.kind == FrameKind::Eager) {
    if (frame.length > kEagerLimit) return false;
    std::span<const std::byte> payload{entry.payload, frame.length};
    if (frame.length > kInline) {
      bulk = frame.length;
      payload = reader.bulk(bulk, scratch_);
    }
    messenger_.on_eager(peer, {frame.tag}, payload);
  } else if (frame.kind == FrameKind::Data) {
    if (frame.length > kShmChunk) return false;
    bulk = frame.length;
    // After an abort on this rank the peer may still send; its data is discarded.
    std::byte* const to = messenger_.destination(peer, frame.id, std::nullopt, bulk);
    if (to != nullptr) {
      reader.copy_bulk(to, bulk);
      messenger_.on_data(peer, frame.id, bulk);
    } else if (!messenger_.aborted()) {
      return false;
    }
  } else if (is_control(frame.kind)) {
    messenger_.on_control(peer, frame);
  } else {
    return false;
  }
  if (reader.take(bulk)) ring_if_asleep(peer);
  return true;
}

bool ShmCore::check_sockets() {
  epoll_event happened[16];
  const int count = epoll_wait(epoll_.get(), happened, 16, 0);
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const auto peer = static_cast<int>(happened[i].data.u64);
    if (peer != options_.rank) {
      read_socket(peer);
      moved = true;
    } else if (!armed_) {
      rung_ = true;
    }
  }
  return moved;
}

void ShmCore::keep_region(int peer, Received& received) {
  PeerRegion region;
  try {
    if (received.descriptors.empty()) throw no_descriptors(peer, kDropped);
    region.memory = open_memory(received.descriptors[0], received.control.bytes);
  } catch (const Error&) {
    region.failure = std::current_exception();
  }
  at(peer).regions.insert_or_assign(received.control.region, std::move(region));
}

void ShmCore::read_socket(int peer) {
  Peer& other = at(peer);
  bool ended = false;
  while (auto received = receive_control(other.socket.get(), ended)) {
    other.link ? keep_region(peer, *received) : meet(peer, *received);
  }
  if (!ended || other.in_ring) return;  // a continuation called map(); poll() comes back
  if (!other.link) refuse(peer, "closed its socket or does not speak this version");
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other.socket.get(), nullptr);
  while (!messenger_.lost(peer) && poll_ring(peer)) {  // what it sent before it ended still counts
  }
  messenger_.lose(peer, "its process has ended or left the group");
}

}  // namespace trireme::inline v0::net
