// The transport over MPI: MPI messages on a communicator of their own carry the Messenger's frames.
// They are non-blocking and copied, so MPI never keeps a user's buffer after an abort. The frames
// for one peer that leave in one turn share a message: those that a task of the waiter sends, those
// that answer one message, or those that waited for room.
//
// MPI has no descriptor to sleep on, so a timer wakes the waiter while something is pending: soon
// after something has moved, then at growing intervals. A rank announces leaving in a last frame.
// Nothing else shows that a rank has ended, but mpirun ends all processes when one dies. MPI's own
// all-reduce also works on copies, piece by piece.
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/net/connect.h"
#include "trireme/net/errors.h"
#include "trireme/net/messenger_transport.h"
#include "trireme/net/mpi/mpi_library.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {
namespace {

constexpr int kFramesPerPoll = 64;
constexpr FrameKind kLeave{0x40};  // the last frame of a rank that leaves
constexpr Duration kFirstPause = std::chrono::microseconds(20);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);
constexpr Duration kLeaveTimeout = std::chrono::seconds(1);
constexpr std::size_t kReducedAtOnce = 8u << 20;
constexpr std::size_t kChunk = TRIREME_MPI_BYTES / 4 - sizeof(Frame);
static_assert(TRIREME_MPI_BYTES == 8 * (sizeof(Frame) + kEagerLimit));

std::optional<TriremeMpiType> mpi_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64:
      return kTriremeF64;
    case DType::F32:
      return kTriremeF32;
    case DType::I64:
      return kTriremeI64;
    case DType::I32:
      return kTriremeI32;
    case DType::U8:
      return kTriremeU8;
    default:  // MPI 3 has no 16-bit floats
      return std::nullopt;
  }
}

TriremeMpiReduction mpi_reduction(Reduction reduction) noexcept {
  constexpr TriremeMpiReduction kAll[] = {kTriremeSum, kTriremeMin, kTriremeMax, kTriremeProduct};
  return kAll[static_cast<std::size_t>(reduction)];
}

class MpiCore final : public FrameCarrier, public Reducer {
 public:
  MpiCore(std::shared_ptr<Waiter> waiter, std::unique_ptr<MpiGroup> group)
      : FrameCarrier(group->rank(), group->size(), std::move(waiter)),
        group_(std::move(group)),
        functions_(group_->functions()),
        rank_(messenger_.rank()),
        size_(messenger_.size()),
        waiter_(messenger_.waiter()),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        peer_left_(static_cast<std::size_t>(size_)) {
    if (!timer_) throw_system_error("timerfd_create");
    for (int peer = 0; peer < size_; ++peer) {
      links_.push_back(std::make_unique<MpiLink>(*this, peer));
      if (peer != rank_) messenger_.attach(peer, links_.back().get());
    }
  }

  // Keeps the memory that MPI still writes to.
  ~MpiCore() override {
    if (reducing_) staging_.release();
  }

  bool pending() const noexcept override {
    return FrameCarrier::pending() || unsent_.load(std::memory_order_relaxed) ||
           reducing_.load(std::memory_order_relaxed);
  }
  int descriptor() const noexcept override { return timer_.get(); }

  void arm(bool sleeping) noexcept override {
    if (!sleeping || !pending()) return;
    itimerspec time{};
    time.it_value.tv_nsec = pause_.count();
    timerfd_settime(timer_.get(), 0, &time, nullptr);
    timed_ = true;
    // MPI makes progress only when it is polled. A reduction that was aborted is not waited for.
    pause_ = reduced_ ? kFirstPause : std::min(2 * pause_, kLongestPause);
  }

  bool poll() override {
    std::uint64_t expired = 0;
    if (timed_ && read(timer_.get(), &expired, sizeof expired) > 0) timed_ = false;
    if (broken_) return false;
    flush();
    bool moved = receive();
    if (reducing_.load(std::memory_order_relaxed)) moved |= go_on_reducing();
    for (int peer = 0; peer < size_ && !broken_; ++peer) {
      if (peer != rank_) moved |= messenger_.pump(peer);
    }
    flush();
    if (unsent_.load(std::memory_order_relaxed)) count_unsent();
    if (moved) pause_ = kFirstPause;
    return moved;
  }

  // Reducer:
  bool can_reduce(DType dtype) const noexcept override { return mpi_type(dtype).has_value(); }
  Work reduce(Reduction reduction, const Buffer& inout) override {
    TRIREME_CHECK(!reduced_);
    // MPI may still hold a piece of an aborted reduction.
    if (broken_ || error_ || reducing_) return Work::failed(error_ ? error_ : closed(rank_));
    reduced_.emplace(Reduced{inout, mpi_reduction(reduction), WorkSource(waiter_)});
    const Work work = reduced_->source.work();
    next_piece();
    return work;
  }

  void abort(const std::exception_ptr& error) noexcept override {
    messenger_.abort(error);
    if (!error_) error_ = error;
    if (reduced_) std::exchange(reduced_, std::nullopt)->source.fail(error);
  }

  // Sends everything and waits until all peers have announced leaving: the communicator may be
  // freed only when no more messages arrive.
  void leave() override {
    FrameCarrier::leave();
    flush();
    if (receiving_) broken_ = true;  // called by a continuation, with a message in use
    const TimePoint deadline = waiter_->now() + kLeaveTimeout;
    for (bool all = false; !all && !broken_ && waiter_->now() < deadline;) {
      all = true;
      for (int peer = 0; peer < size_ && !broken_; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        const Frame frame{kLeave, 0, 0, 0};
        if (!said_[at]) said_[at] = put(peer, frame, {});
        all &= said_[at] && (peer_left_[at] || peer == rank_);
      }
      flush();
      receive();
      if (reducing_) go_on_reducing();
      count_unsent();
      all &= !unsent_.load(std::memory_order_relaxed) && !reducing_;
      if (all) group_->set_clean();
    }
    broken_ = true;
  }

 private:
  struct Reduced {
    Buffer inout;
    TriremeMpiReduction reduction;
    WorkSource source;
    std::size_t begin = 0, count = 0;  // elements of the piece that MPI has
  };

  void next_piece() {
    Reduced& one = *reduced_;
    const std::size_t width = size_of(one.inout.dtype);
    one.begin += one.count;
    one.count = std::min(one.inout.count - one.begin, kReducedAtOnce / width);
    if (one.count == 0) return std::exchange(reduced_, std::nullopt)->source.complete();
    if (!staging_) staging_ = std::make_unique<std::byte[]>(kReducedAtOnce);
    std::memcpy(staging_.get(), piece(one), one.count * width);
    if (functions_.reduce(group_->get(), staging_.get(), static_cast<int>(one.count),
                          *mpi_type(one.inout.dtype), one.reduction) != 0)
      return fail();
    reducing_ = true;
  }

  static std::byte* piece(const Reduced& one) {
    return static_cast<std::byte*>(one.inout.data) + one.begin * size_of(one.inout.dtype);
  }

  // True if a piece has completed. A peer may leave once it has its result, while ours is still in
  // transit, so a peer's leaving fails the reduction only after a while.
  bool go_on_reducing() {
    const int ended = functions_.reduced(group_->get());
    if (ended < 0) fail();
    if (ended > 0) {
      reducing_ = false;
      if (!reduced_) return true;  // aborted meanwhile
      std::memcpy(piece(*reduced_), staging_.get(),
                  reduced_->count * size_of(reduced_->inout.dtype));
      next_piece();
    } else if (ended == 0 && reduced_ && left_ && waiter_->now() > *left_ + kLeaveTimeout) {
      const auto error = std::make_exception_ptr(
          PeerLost("a rank has left the group in the middle of a reduction",
                   {.rank = rank_, .operation = "mpi", .advice = "See the other ranks."}));
      if (!error_) error_ = error;
      std::exchange(reduced_, std::nullopt)->source.fail(error);
    }
    return ended > 0;
  }

  class MpiLink final : public Link {
   public:
    MpiLink(MpiCore& core, int peer) : core_(core), peer_(peer) {}
    bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
      return core_.put(peer_, frame, payload);
    }
    std::size_t try_stream(std::size_t, const Piece& piece) override {
      const auto chunk = piece.rest.first(std::min(piece.rest.size(), kChunk));
      const Frame frame{FrameKind::Data, piece.id, 0, chunk.size()};
      if (!core_.put(peer_, frame, chunk)) return 0;
      core_.messenger_.note_move(peer_);
      return chunk.size();
    }

   private:
    MpiCore& core_;
    const int peer_;
  };

  bool put(int peer, const Frame& frame, std::span<const std::byte> payload) {
    if (peer == rank_) return true;
    const int taken =
        functions_.send(group_->get(), peer, &frame, sizeof frame, payload.data(), payload.size());
    if (taken < 0) fail();
    if (taken > 0) unsent_.store(true, std::memory_order_relaxed);
    gathered_ |= taken > 0;
    return taken > 0;
  }

  // Ends a turn.
  void flush() {
    if (std::exchange(gathered_, false) && functions_.flush(group_->get()) != 0) fail();
  }

  void count_unsent() {
    const int count = functions_.unsent(group_->get());
    if (count < 0) fail();
    unsent_.store(count > 0, std::memory_order_relaxed);
  }

  bool receive() {
    bool moved = false;
    receiving_ = true;
    for (int taken = 0; taken < kFramesPerPoll && !broken_;) {
      int peer = 0;
      const void* bytes = nullptr;
      std::size_t size = 0;
      const int got = functions_.receive(group_->get(), &peer, &bytes, &size);
      if (got < 0) fail();
      if (got <= 0) break;
      moved = true;
      std::span message(static_cast<const std::byte*>(bytes), size);
      bool sound = true;
      do {
        sound = handle(peer, message);
        ++taken;
      } while (sound && !message.empty());
      if (!sound) messenger_.lose(peer, "it sent a frame that breaks the protocol");
      if (functions_.release(group_->get(), peer) != 0) fail();
      flush();
    }
    receiving_ = false;
    return moved;
  }

  // Takes the first frame off `message`; false if it breaks the protocol.
  bool handle(int peer, std::span<const std::byte>& message) {
    Frame frame;
    if (message.size() < sizeof frame) return false;
    std::memcpy(&frame, message.data(), sizeof frame);
    const bool carries = frame.kind == FrameKind::Eager || frame.kind == FrameKind::Data;
    const std::size_t length = carries ? frame.length : 0;
    if (length > message.size() - sizeof frame) return false;
    const auto payload = message.subspan(sizeof frame, length);
    message = message.subspan(sizeof frame + length);
    if (frame.kind == FrameKind::Eager) {
      messenger_.on_eager(peer, {frame.tag}, payload);
    } else if (frame.kind == FrameKind::Data) {
      messenger_.note_move(peer);
      return take_data(messenger_, peer, frame.id, std::nullopt, payload);
    } else if (is_control(frame.kind)) {
      messenger_.on_control(peer, frame);
    } else if (frame.kind == kLeave) {
      peer_left_[static_cast<std::size_t>(peer)] = true;
      if (!left_) left_ = waiter_->now();
      messenger_.lose(peer, "it has left the group");
    } else {
      return false;
    }
    return true;
  }

  void fail() {
    if (std::exchange(broken_, true)) return;
    abort(group_->failure());
  }

  const std::unique_ptr<MpiGroup> group_;
  const TriremeMpi& functions_;
  const int rank_, size_;
  const std::shared_ptr<Waiter>& waiter_;
  const Descriptor timer_;
  std::vector<std::unique_ptr<MpiLink>> links_;
  std::vector<bool> peer_left_;                                           // peers that leave
  std::vector<bool> said_ = std::vector<bool>(peer_left_.size(), false);  // peers we told
  std::atomic<bool> unsent_{false};
  std::optional<Reduced> reduced_;        // under way
  std::atomic<bool> reducing_{false};     // MPI has a piece of it in `staging_`
  std::unique_ptr<std::byte[]> staging_;  // kReducedAtOnce bytes, from the first reduction on
  std::optional<TimePoint> left_;         // when the first peer left
  std::exception_ptr error_;  // passed to abort(), or of a reduction that a peer has left
  Duration pause_ = kFirstPause;
  bool gathered_ = false;  // a message is open
  bool timed_ = false, broken_ = false, receiving_ = false;
};

}  // namespace

std::shared_ptr<Transport> connect_mpi(std::shared_ptr<Waiter> waiter,
                                       std::unique_ptr<MpiGroup> group) {
  auto core = std::make_shared<MpiCore>(std::move(waiter), std::move(group));
  const Capabilities capabilities{.reducer = core.get(), .moves = &core->messenger()};
  return std::make_shared<MessengerTransport>("mpi", std::move(core), capabilities);
}

std::shared_ptr<Transport> join_mpi(const Meeting& meeting) {
  TRIREME_CHECK((meeting.over_mpi != nullptr));
  return meeting.over_mpi(meeting.waiter, meeting.options, meeting.exchange);
}

}  // namespace trireme::inline v0::net
