// What a coordinator has in its store (SavedState in coordinator.proto), after a proof that it comes
// from a coordinator that knows the job's secret.
#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/base/words.h"
#include "trireme/observe/log.h"
#include "trireme/rendezvous/coordinator_service.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr std::size_t kProofBytes = 32;
constexpr Duration kFirstPause = std::chrono::milliseconds(100),
                   kLongestPause = std::chrono::seconds(2);
constexpr Duration kSlow = std::chrono::seconds(1);
constexpr const char* kAsBefore =
    "Start the coordinator as before, or remove the state to begin anew.";

}  // namespace

std::string Service::state_text() const {
  wire::SavedState state;
  state.set_version(options_.version);
  state.set_job(options_.job);
  if (elastic()) fill(epoch_, *state.mutable_epoch());
  for (std::size_t process = 0; process < tokens_.size(); ++process) {
    wire::SavedProcess& one = *state.add_processes();
    const int number = static_cast<int>(process);
    one.set_joined(members_.phase(number) == Phase::Joined);
    one.set_host(members_.host(number));
    one.set_identity(members_.identity(number));
    one.set_token(tokens_[process]);
  }
  for (const auto& [key, values] : answered_) {
    wire::SavedExchange& one = *state.add_exchanges();
    one.set_key(key.first);
    for (const int member : key.second) one.add_members(static_cast<std::uint32_t>(member));
    for (const std::string& value : values) one.add_values(value);
  }
  state.set_stop_signal(stop_signal_);
  state.set_finished(finished_);
  state.set_workers_finished(workers_finished_);
  state.set_server_view(servers_.view().to_text());
  for (const int worker : alone_) state.add_alone(static_cast<std::uint32_t>(worker));
  const std::string bytes = state.SerializeAsString();
  return prove(options_.secret, {"coordinator state", bytes}) + bytes;
}

void Service::restore() {
  const std::optional<std::string> text = options_.store->open();
  if (options_.anew) return options_.store->save(state_text());
  if (!text) return;
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.operation = "coordinator", .label = "--store", .advice = advice});
  };
  const std::string bytes = text->size() > kProofBytes ? text->substr(kProofBytes) : "";
  wire::SavedState state;
  if (text->substr(0, kProofBytes) != prove(options_.secret, {"coordinator state", bytes}) ||
      !state.ParseFromString(bytes))
    refuse("the state in " + options_.store->address() +
               " is damaged, or of a job with another secret",
           "Give the job's own secret. To begin anew, remove the state.");
  if (state.version() != options_.version || state.job() != options_.job ||
      static_cast<std::size_t>(state.processes_size()) != tokens_.size())
    refuse("the state in " + options_.store->address() + " is of job " + state.job() + " with " +
               std::to_string(state.processes_size()) + " processes (" + state.version() + ")",
           kAsBefore);
  const ServerView view = ServerView::from_text(state.server_view());
  if (static_cast<int>(view.servers.size()) != options_.servers)
    refuse("the state in " + options_.store->address() + " is of a job with " +
               counted(static_cast<int>(view.servers.size()), "server"),
           kAsBefore);
  for (int process = 0; process < state.processes_size(); ++process) {
    const wire::SavedProcess& one = state.processes(process);
    if (!one.joined()) continue;
    members_.join(process, one.host(), one.identity(), steady_now());
    tokens_[static_cast<std::size_t>(process)] = one.token();
  }
  if (elastic()) adopt(epoch_from(state.epoch()));
  for (const wire::SavedExchange& one : state.exchanges())
    answered_[{one.key(), {one.members().begin(), one.members().end()}}] = {one.values().begin(),
                                                                            one.values().end()};
  stop_signal_ = state.stop_signal();
  finished_ = state.finished();
  workers_finished_ = state.workers_finished();
  servers_ = ServerAuthority(view);
  alone_ = {state.alone().begin(), state.alone().end()};
}

void Service::clear_store() {
  if (options_.store) options_.store->clear();
  store_cleared_ = true;
}

void Service::tell_store_away(bool away) {
  wire::News news;
  news.set_store_away(away);
  tell_all(news);
}

// Under the lock: nothing else happens before the change is durable.
bool Service::save() {
  if (!options_.store) return true;
  if (store_lost_) return false;
  const TimePoint start = steady_now();
  Duration pause = kFirstPause;
  try {
    Event pauses;  // never set
    for (const std::string text = state_text();; pauses.wait(pause)) {
      try {
        options_.store->save(text);
        break;
      } catch (const ResourceError& error) {
        if (steady_now() - start > options_.store_patience) throw;
        if (pause == kFirstPause) {
          observe::warning(error.message() +
                           ". The training goes on, and its ranks cannot change "
                           "until the store is back.");
          tell_store_away(true);
        }
        pause = std::min(2 * pause, kLongestPause);
      }
    }
    if (pause > kFirstPause) tell_store_away(false);
  } catch (...) {
    store_lost_ = true;
    if (options_.on_store_lost) options_.on_store_lost(std::current_exception());
    return false;
  }
  // Nobody was heard meanwhile.
  if (steady_now() - start > kSlow) members_.forgive(steady_now());
  return true;
}

}  // namespace trireme::inline v0::rendezvous
