#include "trireme/comm/negotiate/negotiate_core.h"

#include "trireme/base/error.h"
#include "trireme/base/waiter/in_context.h"
#include "trireme/comm/group_of_all.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kLongestName = 400;
// The time within which rank 0 must say which ranks did not submit a name.
constexpr Duration kAnswerWithin = std::chrono::seconds(2);

Buffer parcel_buffer(Parcel& parcel) {
  return {&parcel, sizeof parcel, DType::U8, {}, {}, nullptr};
}

}  // namespace

Negotiator::Core::Core(Communicator& world, const NegotiatorOptions& options)
    : engine_(world.engine_),
      waiter_(world.waiter()),
      rank_(world.rank()),
      size_(world.size()),
      name_(engine_->facts.world_rank()),
      control_(group_of_all(world, options.name + " control")),
      data_(group_of_all(world, options.name)),
      links_(static_cast<std::size_t>(size_)),
      table_(engine_->facts, options.cached_names) {}

class Negotiator::Core::Submission final : public WorkOwner {
 public:
  Submission(std::shared_ptr<Core> core, std::string name)
      : core_(std::move(core)), name_(std::move(name)) {}
  Deadline timeout() const noexcept override { return core_->engine_->waits.timeout(); }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    return core_->on_deadline(name_, asked_, now, waited);
  }
  void on_unseen_failure(std::exception_ptr error) noexcept override {
    core_->engine_->waits.on_unseen_failure(std::move(error));
  }
  void on_wait_begin(std::string_view text) noexcept override {
    core_->engine_->waits.on_wait_begin(text);
  }
  void on_wait_end(std::string_view text, Duration waited) noexcept override {
    core_->engine_->waits.on_wait_end(text, waited);
  }

 private:
  const std::shared_ptr<Core> core_;
  const std::string name_;
  std::atomic<bool> asked_{false};
};

void Negotiator::Core::listen_to_all() {
  waiter_->run([self = shared_from_this()] {
    for (int peer = 0; peer < self->size_; ++peer) {
      if (peer != self->rank_ && (self->rank_ == 0 || peer == 0)) self->listen(peer);
    }
  });
}

Work Negotiator::Core::submit(std::string name, Signature signature, Start start) {
  if (name.empty() || name.size() > kLongestName) {
    throw ConfigError("the name has " + std::to_string(name.size()) + " bytes",
                      {.rank = name_,
                       .operation = "negotiate",
                       .advice = "Give every submission a name of 1 to 400 bytes."});
  }
  auto owner = std::make_shared<Submission>(shared_from_this(), name);
  WorkSource source(waiter_, std::move(owner), std::string(name_of(signature.kind)) + " " + name);
  const Work work = source.work();
  waiter_->run([self = shared_from_this(), name = std::move(name), signature,
                pending = Pending{std::move(source), std::move(start)}] {
    self->enqueue(name, signature, pending);
  });
  return work;
}

void Negotiator::Core::enqueue(const std::string& name, const Signature& signature,
                               Pending pending) {
  if (failure_) return pending.source.fail(failure_);
  const auto [at, fresh] = pending_.emplace(name, pending);
  if (!fresh) {
    return pending.source.fail(std::make_exception_ptr(
        ConfigError(name + " is submitted already",
                    {.rank = name_,
                     .operation = "negotiate",
                     .advice = "Wait for its Work before the name is used again."})));
  }
  submitted_.fetch_add(1);
  const auto number = numbers_.find(name);
  if (number != numbers_.end() && by_number_[number->second - 1].second == signature) {
    num_by_number_.fetch_add(1);
    return tell_rank_0({.kind = RecordKind::ReadyByNumber, .number = number->second});
  }
  tell_rank_0({.kind = RecordKind::Ready, .signature = signature, .name = name});
}

void Negotiator::Core::tell_rank_0(const Record& record) {
  if (rank_ == 0) return hear(0, record);
  at(0).out.put(record);
  flush(0);
}

// Records that are written while a parcel is being sent go together in the next one.
void Negotiator::Core::flush(int peer) {
  PeerRecords& link = at(peer);
  if (link.flushing) return;
  link.flushing = true;
  while (!link.sends && !link.out.empty() && !failure_) {
    link.sending = link.out.take();
    link.sends = true;
    under_way_.fetch_add(1);
    control_->send(parcel_buffer(link.sending), peer)
        .on_settled([self = shared_from_this(), peer](const std::exception_ptr& error) {
          self->at(peer).sends = false;
          error ? self->fail(error) : self->flush(peer);
          self->under_way_.fetch_sub(1);
          self->waiter_->wake();
        });
  }
  link.flushing = false;
}

void Negotiator::Core::listen(int peer) {
  PeerRecords& link = at(peer);
  link.listening = true;
  do {
    link.heard = false;
    control_->recv(parcel_buffer(link.receiving), peer)
        .on_settled([self = shared_from_this(), peer](const std::exception_ptr& error) {
          if (error) return self->fail(error);
          self->take(peer);
          PeerRecords& from = self->at(peer);
          if (from.silent || self->failure_) return;
          from.listening ? void(from.heard = true) : self->listen(peer);
        });
  } while (link.heard);
  link.listening = false;
}

void Negotiator::Core::take(int peer) {
  PeerRecords& link = at(peer);
  try {
    link.in.put(link.receiving);
    while (const auto record = link.in.take()) {
      if (record->kind == RecordKind::Bye) link.silent = true;
      if (rank_ == 0) {
        hear(peer, *record);
      } else {
        orders_.push_back(*record);
      }
    }
  } catch (const Error&) {
    return fail(std::current_exception());
  }
  apply_commands();
}

// Rank 0 only: sends the table's answers to all ranks, itself included, in one order.
void Negotiator::Core::hear(int peer, const Record& record) {
  std::vector<Record> answers;
  try {
    table_.hear(peer, record, answers);
  } catch (const Error&) {
    return fail(std::current_exception());
  }
  if (answers.empty()) return;
  for (const Record& answer : answers) {
    for (int other = 1; other < size_; ++other) {
      if (answer.to < 0 || answer.to == other) at(other).out.put(answer);
    }
    if (answer.to <= 0) orders_.push_back(answer);
  }
  for (int other = 1; other < size_; ++other) flush(other);
  apply_commands();
}

// Applies rank 0's commands. Queues commands that arrive meanwhile because of new submissions.
void Negotiator::Core::apply_commands() {
  if (std::exchange(applying_, true)) return;
  for (std::size_t i = 0; i < orders_.size() && !failure_; ++i) apply(Record(orders_[i]));
  orders_.clear();
  applying_ = false;
}

void Negotiator::Core::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::Go:
      if (record.number != Record::kNoNumber) {
        if (by_number_.size() < record.number) by_number_.resize(record.number);
        by_number_[record.number - 1] = {record.name, record.signature};
        numbers_[record.name] = record.number;
      }
      return start(record.name);
    case RecordKind::GoByNumber:
      if (record.number > 0 && record.number <= by_number_.size()) {
        return start(std::string(by_number_[record.number - 1].first));
      }
      return start("number " + std::to_string(record.number));
    case RecordKind::Refuse:
      return refuse(record);
    default:
      closed_.store(true);
      waiter_->wake();
  }
}

void Negotiator::Core::start(const std::string& name) {
  const auto found = pending_.find(name);
  if (found == pending_.end()) {
    return fail(std::make_exception_ptr(RefusedError(
        "rank 0 starts " + name + ", which rank " + std::to_string(name_) + " has not submitted",
        {.rank = name_,
         .operation = "negotiate",
         .advice = "This is a bug in Trireme: please report it."})));
  }
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  Work work;
  try {
    work = pending.start(*data_, {.label = name});
  } catch (const Error&) {  // the call is invalid, and so it is on all ranks
    return pending.source.fail(std::current_exception());
  }
  work.on_settled([source = pending.source](const auto& error) { source.settle(error); });
}

void Negotiator::Core::refuse(const Record& record) {
  const auto found = pending_.find(record.name);
  if (found == pending_.end()) return;
  const WorkSource source = found->second.source;
  pending_.erase(found);
  const bool timeout = record.code == static_cast<std::int32_t>(ExitCode::Timeout);
  source.fail(make_error(ExitCode(record.code), record.text,
                         {.rank = name_,
                          .operation = "negotiate",
                          .label = record.name,
                          .advice = timeout ? "Look for a branch that only some ranks take."
                                            : "All ranks must submit the same under one name."}));
}

void Negotiator::Core::fail(const std::exception_ptr& error) {
  if (failure_) return;
  failure_ = error;
  const auto pending = std::exchange(pending_, {});
  for (const auto& [name, one] : pending) one.source.fail(error);
  closed_.store(true);
  waiter_->wake();
}

// Before the collective has begun, rank 0 knows which ranks are missing; then the data group does.
TimePoint Negotiator::Core::on_deadline(const std::string& name, std::atomic<bool>& asked,
                                        TimePoint now, Duration waited) {
  std::shared_ptr<Engine> runs;
  in_context(waiter_, [&] {
    if (pending_.count(name) == 0 && data_) runs = data_->engine_;
  });
  if (runs) return runs->waits.on_deadline(now, waited);
  if (const auto& watch = engine_->facts.options.watch; !asked && watch) {
    const PeerWatch::Verdict verdict = watch->ask("negotiate " + name, waited);
    if (verdict.lost_rank >= 0) {
      waiter_->run([self = shared_from_this(), waited, verdict, name] {
        self->fail(self->engine_->waits.timeout_error(waited, verdict, {"negotiate", name}));
      });
      return TimePoint::max();
    }
    if (verdict.keep_waiting) return now + engine_->facts.options.timeout;
  }
  const bool asked_before = asked.exchange(true);
  waiter_->run([self = shared_from_this(), name, asked_before] {
    if (!asked_before) return self->tell_rank_0({.kind = RecordKind::Overdue, .name = name});
    self->refuse({.kind = RecordKind::Refuse,
                  .code = static_cast<std::int32_t>(ExitCode::Timeout),
                  .name = name,
                  .text = "rank 0 did not answer which ranks have not submitted it"});
  });
  return asked_before ? TimePoint::max() : now + kAnswerWithin;
}

void Negotiator::Core::close() {
  waiter_->run([self = shared_from_this()] {
    if (self->failure_) return;
    if (!self->pending_.empty()) {
      self->fail(std::make_exception_ptr(
          PeerLost("rank " + std::to_string(self->name_) + " destroyed its Negotiator while " +
                       self->pending_.begin()->first + " was open",
                   {.rank = self->name_,
                    .operation = "negotiate",
                    .advice = "Wait for all Works before the Negotiator is destroyed."})));
      self->control_->abort(self->failure_);
      return;
    }
    self->tell_rank_0({.kind = RecordKind::Bye});
  });
  const auto& options = engine_->facts.options;
  const TimePoint begin = waiter_->now();
  engine_->waits.on_wait_begin("negotiate");
  while (
      !waiter_->wait_until([this] { return closed_.load(); }, waiter_->now() + options.timeout) &&
      options.watch && options.watch->ask("negotiate", waiter_->now() - begin).keep_waiting) {
  }
  engine_->waits.on_wait_end("negotiate", waiter_->now() - begin);
  // The last parcels may still be under way.
  waiter_->wait_until([this] { return under_way_.load() == 0; }, waiter_->now() + options.timeout);
  std::shared_ptr<Communicator> control, data;  // destroyed outside the progress context: may block
  in_context(waiter_, [&] {
    fail(std::make_exception_ptr(
        PeerLost("the Negotiator was destroyed", {.rank = name_, .operation = "negotiate"})));
    control = std::move(control_);
    data = std::move(data_);
  });
}

Negotiator::Statistics Negotiator::Core::statistics() const {
  return {submitted_.load(), num_by_number_.load()};
}

}  // namespace trireme::inline v0::comm
