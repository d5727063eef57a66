// The contents of a coordinator's store (SavedState in coordinator.proto), after a proof that they
// come from a coordinator that knows the job's secret.
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/rendezvous/coordinator/job_state.h"

namespace trireme::inline v0::rendezvous {

constexpr std::size_t kProofBytes = 32;
constexpr Duration kSlow = std::chrono::seconds(1);
constexpr const char* kAsBefore =
    "Start the coordinator as before, or remove the state to begin anew.";

static std::string text_of(const JobState& job) {
  const Membership& members = job.members;
  wire::SavedState state;
  state.set_version(job.options.version);
  state.set_job(job.options.job);
  if (job.elastic()) fill(job.epoch(), *state.mutable_epoch());
  for (int process = 0; process < members.size(); ++process) {
    wire::SavedProcess& one = *state.add_processes();
    one.set_joined(members.phase(process) == Phase::Joined);
    one.set_host(members.host(process));
    one.set_has_identity(!members.identity(process).empty());
    if (one.has_identity()) state.set_identity(members.identity(process));
    one.set_token(job.sessions.token(process));
    one.set_left(job.elastic() && members.phase(process) == Phase::Left);
    one.set_exit_code(members.exit_code(process));
  }
  job.exchanges.save(state);
  state.set_stop_signal(job.end().stop_signal);
  state.set_finished(job.end().all);
  state.set_workers_finished(job.end().workers);
  state.set_exit_code(job.end().exit_code);
  job.servers.save(state);
  const std::string bytes = state.SerializeAsString();
  return prove(job.options.secret, {"coordinator state", bytes}) + bytes;
}

void JobState::restore() {
  const std::optional<std::string> saved = options.store->open();
  if (options.anew) return options.store->save(text_of(*this));
  if (!saved) return;
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.operation = "coordinator", .label = "--store", .advice = advice});
  };
  const std::string bytes = saved->size() > kProofBytes ? saved->substr(kProofBytes) : "";
  wire::SavedState state;
  if (saved->substr(0, kProofBytes) != prove(options.secret, {"coordinator state", bytes}) ||
      !state.ParseFromString(bytes))
    refuse(
        "the state in " + options.store->address() + " is damaged, or of a job with another secret",
        "Give the job's own secret. To begin anew, remove the state.");
  if (state.version() != options.version || state.job() != options.job ||
      state.processes_size() != members.size())
    refuse("the state in " + options.store->address() + " is of job " + state.job() + " with " +
               std::to_string(state.processes_size()) + " processes (" + state.version() + ")",
           kAsBefore);
  const ServerView view = ServerView::from_text(state.server_view());
  if (static_cast<int>(view.servers.size()) != options.roles.servers)
    refuse("the state in " + options.store->address() + " is of a job with " +
               counted(static_cast<int>(view.servers.size()), "server"),
           kAsBefore);
  for (int process = 0; process < state.processes_size(); ++process) {
    const wire::SavedProcess& one = state.processes(process);
    if (one.left()) members.leave(process, one.exit_code());
    if (!one.joined()) continue;
    members.join(process, one.host(), one.has_identity() ? state.identity() : "", steady_now());
    sessions.resume(process, one.token());
  }
  if (elastic()) adopt(epoch_from(state.epoch()));
  exchanges.restore(state);
  end_ = {.stop_signal = state.stop_signal(),
          .workers = state.workers_finished(),
          .all = state.finished(),
          .exit_code = state.exit_code()};
  servers.restore(view, state);
}

bool JobState::save() {
  if (!saver.has_store()) return true;
  const TimePoint start = steady_now();
  const bool saved = saver.save(text_of(*this), [this](bool away) {
    wire::News news;
    news.set_store_away(away);
    streams.tell_all(news);
  });
  // Nobody was heard meanwhile.
  if (saved && steady_now() - start > kSlow) members.forgive(steady_now());
  return saved;
}

}  // namespace trireme::inline v0::rendezvous
