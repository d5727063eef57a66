#include "trireme/ps/worker/shard_link.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::ps {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(20);  // between two attempts to connect

}  // namespace

ShardLink::ShardLink(std::shared_ptr<Waiter> waiter, int shard, std::string settings,
                     ClientOptions options)
    : waiter_(std::move(waiter)),
      shard_(shard),
      settings_(std::move(settings)),
      options_(std::move(options)) {}

void ShardLink::connect() {
  for (TimePoint end = waiter_->now() + options_.patience;; waiter_->sleep(kPause)) {
    stop_if_broken();
    std::optional<TimePoint> dialled;
    try {
      term_ = options_.term(shard_);
      channel_ = options_.dial(shard_);
      dialled = waiter_->now();
      attach();
      connected_ = waiter_->now();
      return;
    } catch (const PeerLost&) {
      if (dialled) end += waiter_->now() - *dialled;  // a server was there
      if (waiter_->now() >= end) throw;
    } catch (const TimeoutError&) {
      if (waiter_->now() >= end) throw;
    }
  }
}

void ShardLink::attach() {
  const auto text = std::as_bytes(std::span(settings_));
  head_ = to_text(Request{.ask = Ask::Attach,
                          .shard = shard_,
                          .worker = options_.worker,
                          .epoch = options_.epoch,
                          .memory = {.bytes = text.size()},
                          .text_bytes = text.size()});
  const Work sent = channel_->send(std::as_bytes(std::span(head_)), text);
  wait(channel_->receive(frame_));  // the server may be busy, or its first backups may be
  wait(sent);
  attached_ = reply_from(frame_.head());
  throw_if_moved(attached_.elsewhere);
  if (attached_.exit_code != 0) refuse(attached_);
}

// Waits no longer than the shard has this primary.
void ShardLink::wait(const Work& work) const {
  const auto moved = [&] { return options_.term(shard_) != term_; };
  waiter_->wait_until([&] { return work.done() || moved() || given_up(); }, TimePoint::max());
  if (!work.done()) stop_if_broken();
  throw_if_moved(!work.done() && moved());
  work.wait(Deadline::in(Duration::zero()));
}

void ShardLink::throw_if_moved(bool moved) const {
  if (moved)
    throw PeerLost("another server has shard " + std::to_string(shard_),
                   {.operation = "parameter server"});
}

std::exception_ptr ShardLink::given_up() const {
  return options_.broken(request_.ask == Ask::Commit);
}

void ShardLink::stop_if_broken() const {
  if (const auto error = given_up()) std::rethrow_exception(error);
}

void ShardLink::refuse(const Reply& reply) const {
  throw_error(static_cast<ExitCode>(reply.exit_code), reply.text,
              {.rank = options_.worker, .operation = "parameter server", .advice = reply.advice});
}

void ShardLink::make(Area& area, std::size_t bytes) {
  const std::span<std::byte> before = area.bytes;
  const std::shared_ptr<void> keep = area.owner;
  if (auto shared = channel_->share(std::max<std::size_t>(bytes, 1))) {
    area.bytes = shared->bytes.first(bytes);
    area.id = shared->id;
    area.owner = shared->owner;
    std::copy_n(before.begin(), std::min(before.size(), bytes), area.bytes.begin());
  } else {
    if (area.id >= 0) area.own.assign(before.begin(), before.end());
    area.own.resize(bytes);
    area.bytes = area.own;
    area.id = -1;
    area.owner = nullptr;
  }
}

// Areas whose size differs from step to step grow by a half: an area that was shared stays mapped.
void ShardLink::grow(Area& area, std::size_t bytes) {
  const std::size_t before = area.bytes.size();
  if (bytes > before) make(area, before == 0 ? bytes : std::max(bytes, before + before / 2));
}

std::span<std::byte> ShardLink::outgoing(std::size_t bytes) {
  grow(out_, bytes);
  return out_.bytes.first(bytes);
}

void ShardLink::ask(Request request, std::size_t bytes, std::size_t expected) {
  request.worker = options_.worker;
  request.shard = shard_;
  if (request_.ask == Ask::Read) frame_ = {};  // all weights and state, which are rarely read
  request_ = std::move(request);
  out_bytes_ = bytes;
  grow(in_, expected);
  send();
}

void ShardLink::send() {
  request_.memory = {.area = out_bytes_ > 0 ? out_.id : -1, .bytes = out_bytes_};
  request_.into = {.area = in_.id, .bytes = in_.bytes.size()};
  head_ = to_text(request_);
  const bool in_frame = request_.memory.area < 0;
  try {
    sent_ = channel_->send(std::as_bytes(std::span(head_)),
                           in_frame ? out_.bytes.first(out_bytes_) : std::span<std::byte>());
    answered_ = channel_->receive(frame_);
  } catch (const PeerLost&) {
    answered_ = Work::failed(std::current_exception());
  }
}

const Reply& ShardLink::finish() {
  const TimePoint began = waiter_->now();
  for (;;) {
    try {
      await();
      break;
    } catch (const PeerLost&) {
      stop_if_useless();
      reconnect();
    }
  }
  waited_ += waiter_->now() - began;
  if (reply_.exit_code != 0) refuse(reply_);
  return reply_;
}

// Throws once connections, none of which lasted `patience`, have been lost for that long.
void ShardLink::stop_if_useless() {
  const TimePoint now = waiter_->now();
  if (!useless_since_ || now >= connected_ + options_.patience) {
    useless_since_ = now;
    return;
  }
  if (now >= *useless_since_ + options_.patience) throw;
  waiter_->sleep(kPause);
}

void ShardLink::await() {
  wait(answered_);
  wait(sent_);
  reply_ = reply_from(frame_.head());
  throw_if_moved(reply_.elsewhere);
  useless_since_.reset();
  had_weights_ =
      had_weights_ || attached_.ready || reply_.ask == Ask::Pull || reply_.ask == Ask::Write;
  if (reply_.memory.area < 0) {
    received_ = frame_.payload();
    return;
  }
  received_ = reply_.in_place
                  ? channel_->area_of_peer(static_cast<std::uint32_t>(reply_.memory.area))
                  : in_.bytes;
  received_ = received_.first(std::min(reply_.memory.bytes, received_.size()));
}

void ShardLink::reconnect() {
  sent_ = Work();  // the channel no longer uses its memory
  channel_->close();
  connect();
  if (had_weights_ && !attached_.ready)
    throw PeerLost("server " + std::to_string(shard_) + " came back without its weights",
                   {.rank = options_.worker,
                    .operation = "parameter server",
                    .advice = "Resume from the last checkpoint, or use server.replicas."});
  for (Area* area : {&out_, &in_})
    if (!area->bytes.empty()) make(*area, area->bytes.size());
  send();
}

// The others go on without a worker that leaves. If the job regroups, this one comes again.
void ShardLink::close() noexcept {
  if (!channel_) return;
  try {
    if (!options_.broken(/*commits=*/false)) {
      ask({.ask = Ask::Leave}, 0, 0);
      answered_.wait(Deadline::in(std::chrono::seconds(1)));
    }
  } catch (...) {  // the server is gone, or does not matter any more
  }
  channel_->close();
  channel_.reset();
}

}  // namespace trireme::inline v0::ps
