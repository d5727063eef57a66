#include "trireme/checkpoint/checkpointer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>

#include "trireme/base/check.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/checkpoint/background_save.h"
#include "trireme/checkpoint/checkpointer_options.h"
#include "trireme/checkpoint/kept_state.h"
#include "trireme/checkpoint/memory_copies.h"
#include "trireme/checkpoint/newest.h"
#include "trireme/checkpoint/reach.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/group_of_all.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/job/stop_signal.h"
#include "trireme/observe/log.h"
#include "trireme/storage/folder.h"

namespace trireme::inline v0 {

using storage::Manifest;

namespace {

// A simulated rank's clock does not know a thread that writes beside it.
bool may_use_thread(const Job& job) {
  return dynamic_cast<const RealWaiter*>(job.waiter().get()) != nullptr;
}

bool is_loss_of_peer(const std::exception_ptr& error) {
  const int code = describe(error).exit_code;
  return code >= static_cast<int>(ExitCode::PeerLost) &&
         code <= static_cast<int>(ExitCode::CoordinatorLost);
}

}  // namespace

struct Checkpointer::Impl {
  Impl(Job& job, const std::string& directory, CheckpointerOptions given)
      : job(job),
        options(std::move(given)),
        location(checkpoint::location_of(directory, options)),
        folder(location),
        waiter(job.waiter()),
        outage(checkpoint::patience_of(options.patience)),
        reach(options.own_file_bytes),
        newest(job, options, folder, [this](const auto& ask) { ask_storage(ask); }),
        copies(job, {.copies = job.changes().elastic() ? options.memory : 0,
                     .every = options.memory_every}) {
    checkpoint::check(options);
    folder.guard(options.claim);
    // A bucket that denies access is reported before the first step.
    if (folder.is_remote()) ask_storage([this] { hold(); });
  }
  ~Impl() { end_save(); }

  // In a later epoch of an elastic job the training goes on, so a storage that fails is waited for.
  void ask_storage(const std::function<void()>& ask) {
    const JobChanges& changes = job.changes();
    if (changes.epoch().number == 0) return ask();
    const auto ended = [&] { return changes.broken() || !changes.goes_on(); };
    if (checkpoint::ask_patiently(ask, outage.patience(), *waiter, ended)) return;
    if (changes.broken()) std::rethrow_exception(changes.reason());
    ask();  // throws the storage's error: nobody waits for this rank any more
  }

  // Rank 0 writes, so it locks the folder for all.
  void hold() {
    if (!options.lock || job.rank() != 0 || (held && guarded)) return;
    if (!held) held = location.storage->lock(location.path);
    folder.guard(storage::Claim::of(location));
    guarded = true;
  }
  // The other ranks, when rank 0 has the lock.
  void guard() {
    if (!options.lock || job.rank() == 0 || guarded) return;
    try {
      folder.guard(storage::Claim::of(location));
      guarded = true;
    } catch (const ResourceError&) {  // the next save looks again
    }
  }

  // A run that was not resumed must not mix its checkpoints with another run's.
  void refuse_foreign() {
    if (looked || job.rank() != 0) return;
    hold();
    if (const auto steps = folder.steps(); !steps.empty()) {
      throw ConfigError(
          location.path + " holds a checkpoint of step " + std::to_string(steps.back()) +
              " that this run did not resume from",
          {.operation = "checkpoint", .advice = "Call resume() first, or choose another folder."});
    }
    looked = true;
  }

  std::vector<const StepVoter*> voters() const {
    std::vector<const StepVoter*> all;
    for (const auto& [name, part] : parts)
      if (const auto* voter = dynamic_cast<const StepVoter*>(part)) all.push_back(voter);
    return all;
  }

  // Equal on all ranks. If no part votes, the ranks agree here.
  int agreed_stop(const std::vector<const StepVoter*>& voters) const {
    int signal = 0;
    for (const StepVoter* voter : voters) signal = std::max(signal, voter->stop_signal());
    if (!voters.empty()) return signal;
    return static_cast<int>(largest(job.stop_signal(), "stop"));
  }

  // Collective: the largest of all ranks' numbers.
  std::int64_t largest(std::int64_t own, const char* label) const {
    std::array<std::int64_t, 1> value{own};
    job.world()
        .all_reduce(Buffer::of(std::span<std::int64_t>(value)), Max, {.label = label})
        .wait();
    return value[0];
  }

  // Notes the parts' metadata after `steps_done` steps: when a rank is lost in a later step, some
  // parts have already gone on.
  void note(std::int64_t steps_done) {
    if (!job.changes().elastic()) return;
    known = true;
    noted = steps_done;
    for (const auto& [name, part] : parts) metadata[name] = part->metadata();
    ended.clear();
    for (const StepVoter* voter : voters()) ended.push_back(voter->steps_ended().value_or(0));
  }

  // How many steps have ended since note(). nullopt if voters differ: the parts are steps apart.
  std::optional<std::int64_t> ended_since() const {
    const auto all = voters();
    std::optional<std::int64_t> since;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto now = all[i]->steps_ended();
      if (!now || (since && *now - ended.at(i) != *since)) return std::nullopt;
      since = *now - ended.at(i);
    }
    return since;
  }

  // Keeps the state after the last step that has ended here, for the next epoch. Does nothing
  // without a StepVoter, which tells that step, or before resume() has ended.
  void keep() noexcept {
    try {
      if (!known || voters().empty()) return;
      auto kept = std::make_shared<checkpoint::KeptState>();
      if (!copies.confirmed() && job.changes().kept())
        *kept = std::move(static_cast<checkpoint::KeptState&>(*job.changes().kept()));
      copies.move_to(*kept);
      if (const auto since = ended_since()) {
        if (*since != 0) note(noted + *since);
        kept->add(checkpoint::keep(parts, noted, metadata));
      }
      job.changes().kept() = std::move(kept);
    } catch (const std::exception&) {
      // The other ranks, or a checkpoint, have it.
    }
  }

  // In a later epoch of an elastic job: takes the state from the ranks that have it, unless a
  // checkpoint is newer. Returns whether it did.
  bool take_kept() {
    JobChanges& changes = job.changes();
    if (!changes.elastic() || changes.epoch().number == 0) return false;
    std::int64_t on_disk = 0;
    if (job.rank() == 0) ask_storage([&] { on_disk = newest.step(); });
    on_disk = largest(on_disk, "checkpoint");
    const auto kept = std::static_pointer_cast<checkpoint::KeptState>(changes.kept());
    const bool lossless = options.memory > 0;  // an older step, or a checkpoint, has everything
    const auto done = checkpoint::restore_kept(parts, kept.get(), on_disk, job.world(), lossless);
    if (!done) return false;
    note(*done);
    copies.after(parts, *done, metadata, /*now=*/true);
    if (copies.confirmed()) changes.kept() = nullptr;
    saved = static_cast<long>(on_disk);
    seen = static_cast<long>(*done);
    return true;
  }

  // Collective: whether this save is made. Rank 0 decides by the state of the save before.
  bool agree_to_save(bool required) {
    std::array<std::uint8_t, 1> go{1};
    if (saving && job.rank() == 0) {
      waiter->wait_until([&] { return saving->ended() || saving->has_failed(); }, TimePoint::max());
      // While it does not pause, a try is under way that may take long.
      go[0] = saving->ended() || required || saving->is_pausing();
      if (go[0] != 0) saving->give_up();
    }
    if (job.size() > 1)
      job.world()
          .broadcast(Buffer::of(std::span<std::uint8_t>(go)), 0, {.label = "checkpoint.save"})
          .wait();
    return go[0] != 0;
  }

  // If the storage fails and an older save still tries, one that is not required is left out.
  void save(long steps_done, bool required) {
    if (steps_done <= 0 || steps_done == saved) return;
    job.activity("checkpoint.save");
    if (!agree_to_save(required)) return;
    wait(/*required=*/false);  // its thread uses the storage
    guard();
    auto content = std::make_unique<checkpoint::CheckpointContent>(parts, &job.world());
    content->split_frozen(options.own_file_bytes);
    const bool threaded = may_use_thread(job);
    if (threaded) snapshot_bytes = std::max(snapshot_bytes, content->snapshot());
    // A group for one save: the world may be another one at the next.
    if (threaded && job.size() > 1)
      content->use_group(comm::group_of_all(job.world(), "checkpoint"));
    auto next = std::make_unique<checkpoint::BackgroundSave>(
        std::move(content), manifest_of(steps_done), folder, retention(), job.rank(), outage, reach,
        waiter);
    threaded ? next->start() : next->run_here();
    saving = std::move(next);  // not before: start() throws if the system refuses a thread
    if (!threaded) wait(/*required=*/false);
    saved = steps_done;
  }

  storage::Manifest manifest_of(long steps_done) const {
    storage::Manifest manifest{.step = steps_done, .identity = options.identity};
    for (const auto& [name, part] : parts) manifest.parts[name] = part->metadata();
    if (!retention().counts_only())
      storage::note_saved(
          manifest,
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
              .count(),
          validation_loss);
    return manifest;
  }

  storage::Retention retention() const {
    return {options.keep, options.keep_hours, options.keep_best};
  }

  // Waits for the save under way, and throws its error. Throws the loss of a peer only if the
  // checkpoint is `required`: the training notices the loss, too, and may go on without that peer.
  void wait(bool required) {
    if (saving) {
      waiter->wait_until([&] { return saving->ended(); }, TimePoint::max());
      const auto done = std::move(saving);
      if (job.rank() == 0 && done->succeeded())
        report = {static_cast<long>(done->step()), done->report().written_bytes,
                  done->report().kept_bytes};
      unsaved = done->error();
      if (!done->succeeded() && !unsaved) unsaved = done->failure();
      if (done->error() && !is_loss_of_peer(done->error())) std::rethrow_exception(done->error());
      if (done->error())
        observe::warning("the checkpoint under way is given up: " +
                         describe(done->error()).sentence);
    }
    if (required && unsaved) std::rethrow_exception(unsaved);
  }

  void wait_for_all_ranks() const {
    job.world().barrier().wait(
        Deadline::in(std::max(job.options().timeout_user_code, 2 * options.patience)));
  }

  // Only warns if the storage fails, since nobody needs a checkpoint any more.
  void remove_all() noexcept try {
    if (saving) saving->give_up();
    saving.reset();
    if (job.rank() != 0) return;
    folder.remove_all();
    held.reset();
    std::error_code not_empty;
    if (!folder.is_remote()) std::filesystem::remove(location.path, not_empty);
  } catch (...) {
    observe::warning("the backup in " + location.path +
                     " is not removed: " + describe(std::current_exception()).sentence);
  }

  void poll() {
    if (saving && saving->ended()) wait(/*required=*/false);
  }

  // In a destructor. While an exception unwinds, a storage that fails is not waited for.
  void end_save() noexcept {
    if (!saving) return;
    if (std::uncaught_exceptions() > 0) {
      saving->give_up();
      if (!waiter->wait_until([&] { return saving->ended(); },
                              waiter->now() + job.options().timeout))
        saving->abort();
    }
    try {
      wait(/*required=*/true);
    } catch (...) {
      observe::warning("the last checkpoint is not saved: " +
                       describe(std::current_exception()).sentence);
    }
  }

  Job& job;
  const CheckpointerOptions options;
  const storage::Location location;
  storage::CheckpointFolder folder;
  const std::shared_ptr<Waiter> waiter;
  std::shared_ptr<void> held;  // the folder's lock
  bool guarded = false;
  checkpoint::Parts parts;
  bool looked = false;
  long saved = 0;  // steps done at the last save or resume
  // Steps done at the last after(). A rank without a share of a short batch passes two at once.
  long seen = 0;
  std::optional<double> validation_loss;
  std::optional<SavedReport> report;  // rank 0: of a save that nobody has asked for yet
  checkpoint::Outage outage;
  checkpoint::Reach reach;
  checkpoint::NewestCheckpoint newest;
  std::unique_ptr<checkpoint::BackgroundSave> saving;  // null: none is under way
  std::int64_t snapshot_bytes = 0;                     // of the largest
  std::exception_ptr unsaved;  // why the last save has no checkpoint; null if it has one
  // For elastic jobs: the last noted step, the parts' metadata then, and each voter's ended steps.
  checkpoint::MemoryCopies copies;
  bool known = false;  // whether the parts' state is that of a step
  std::int64_t noted = 0;
  std::vector<std::int64_t> ended;
  std::map<std::string, std::string> metadata;
  const int exceptions = std::uncaught_exceptions();
};

Checkpointer::Checkpointer(Job& job, std::string directory, CheckpointerOptions options)
    : impl_(std::make_unique<Impl>(job, directory, std::move(options))) {}

// An exception in an elastic job may mean that its ranks change.
Checkpointer::~Checkpointer() {
  if (impl_->job.changes().elastic() && std::uncaught_exceptions() > impl_->exceptions)
    impl_->keep();
}

Checkpointer& Checkpointer::add(std::string name, Saveable& part) {
  TRIREME_CHECK(name.find('/') == std::string::npos);
  TRIREME_CHECK(impl_->parts.emplace(std::move(name), &part).second);
  if (impl_->job.changes().epoch().number == 0) impl_->note(0);
  return *this;
}

long Checkpointer::resume() {
  Impl& impl = *impl_;
  impl.job.activity("checkpoint.resume");
  impl.ask_storage([&] { impl.hold(); });
  const bool kept = impl.take_kept();
  if (!kept) {
    impl.wait(/*required=*/false);  // a save under way uses the storage
    impl.saved = impl.seen = static_cast<long>(impl.newest.load(impl.parts));
  }
  impl.looked = true;  // a folder that was refused stays foreign
  if (kept) return impl.seen;
  impl.note(impl.saved);
  return impl.saved;
}

void Checkpointer::after(long step) {
  Impl& impl = *impl_;
  impl.refuse_foreign();
  impl.poll();
  const auto voters = impl.voters();
  const bool here = std::all_of(voters.begin(), voters.end(),
                                [](const auto* voter) { return voter->all_ranks_return(); });
  // This step is not saved, so no checkpoint has the weights of the loss.
  if (!here) return impl.validation_loss.reset();
  impl.note(step + 1);
  impl.copies.after(impl.parts, step + 1, impl.metadata);
  if (impl.copies.confirmed()) impl.job.changes().kept() = nullptr;
  const long every = impl.options.every, before = std::exchange(impl.seen, step + 1);
  const int signal = impl.agreed_stop(voters);
  if (signal == kRanksChange) {
    impl.copies.hand_over(impl.parts, step + 1, impl.metadata);
    throw RanksChanged();
  }
  if (signal != 0) stop(step + 1, signal);
  if (every > 0 && (step + 1) / every > before / every) impl.save(step + 1, /*required=*/false);
  impl.validation_loss.reset();  // the next step's weights are others
}

void Checkpointer::stop(long steps_done, int signal) {
  impl_->job.changes().note_agreed_stop(signal);
  save_and_wait(steps_done);
  throw StopRequested(static_cast<ExitCode>(signal),
                      "stopped by " + job::stop_cause() + " after step " +
                          std::to_string(steps_done) + "; the checkpoint is in " +
                          impl_->folder.path_of(steps_done),
                      {.advice = "Start the program again: it goes on there."});
}

void Checkpointer::save_and_wait(long steps_done) {
  save(steps_done);
  impl_->wait(/*required=*/true);
  impl_->wait_for_all_ranks();
  try {
    // So that no rank ends while another still waits in the first barrier.
    impl_->wait_for_all_ranks();
  } catch (const Error&) {
    // A peer has ended, so all ranks have passed the first barrier.
  }
}

void Checkpointer::save(long steps_done) {
  impl_->refuse_foreign();
  impl_->save(steps_done, /*required=*/true);
}

std::shared_ptr<void> Checkpointer::rehearse() {
  auto content = std::make_shared<checkpoint::CheckpointContent>(impl_->parts, &impl_->job.world());
  if (may_use_thread(impl_->job)) content->snapshot();
  return content;
}

void Checkpointer::wait() { impl_->wait(/*required=*/true); }

void Checkpointer::remove_all() {
  impl_->job.activity("checkpoint.remove");
  impl_->wait_for_all_ranks();
  impl_->remove_all();
}

CheckpointCosts Checkpointer::costs() const {
  CheckpointCosts costs = impl_->copies.costs();
  costs.snapshot_bytes = impl_->snapshot_bytes;
  return costs;
}

std::optional<SavedReport> Checkpointer::take_report() {
  return std::exchange(impl_->report, std::nullopt);
}

void Checkpointer::validated(double loss) { impl_->validation_loss = loss; }

}  // namespace trireme::inline v0
