#include "trireme/rendezvous/launchers/environment.h"

#include <cstdlib>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/rendezvous/launchers/launchers.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr const char* kChoice = "TRIREME_ENVIRONMENT";

// A launcher whose reading states a rank.
struct Candidate {
  const Launcher* launcher;
  Reading reading;
  const RankEnvironment& rank() const { return *reading.rank; }
};

// "rank 1 of 4", "rank 1 of 4 beside 2 servers", "server 0 of 2", "the evaluator".
std::string rank_of_size(const RankEnvironment& rank) {
  if (rank.role == Role::Evaluator) return "the evaluator";
  const std::string text =
      rank.roles().name_of(rank.process()) + " of " + std::to_string(rank.size);
  if (rank.role != Role::Worker || rank.servers == 0) return text;
  return text + " beside " + counted(rank.servers, "server");
}

std::string describe_candidate(const Candidate& one) {
  return std::string(one.launcher->name) + " says " + rank_of_size(one.rank()) + " (" +
         one.reading.why + ")";
}

// True if `outer` can have started `inner`'s agents, which started the ranks. The ranks then take
// at least as many agents as `outer` has processes. If they take fewer, several independent jobs
// run side by side, as by `srun -n 2 torchrun --standalone`.
bool started_by(const Candidate& inner, const Candidate& outer) {
  if (!inner.launcher->nests) return false;
  const int local = inner.rank().local_size;
  return (inner.rank().size + local - 1) / local >= outer.rank().size;
}

[[noreturn]] void refuse_contradiction(const Candidate& one, const Candidate& other) {
  refuse("join", describe_candidate(one) + ", but " + describe_candidate(other),
         std::string("Start one job by one launcher, or set ") + kChoice + " to " +
             one.launcher->key + " or " + other.launcher->key + ", whose variables then count.");
}

// The first candidate, if the others agree with it; the inner one of two nested candidates.
Candidate choose_candidate(const std::vector<Candidate>& candidates) {
  const Candidate* chosen = &candidates.front();
  for (const Candidate& other : candidates) {
    const bool agree = chosen->rank().process() == other.rank().process() &&
                       chosen->rank().roles() == other.rank().roles();
    if (agree || started_by(*chosen, other)) continue;
    if (!started_by(other, *chosen)) refuse_contradiction(*chosen, other);
    chosen = &other;
  }
  return *chosen;
}

// The launcher that TRIREME_ENVIRONMENT names; null for "alone".
const Launcher* named_launcher(const std::string& key) {
  std::string keys = "alone";
  if (key == keys) return nullptr;
  for (const Launcher& launcher : foreign_launchers()) {
    if (key == launcher.key) return &launcher;
    keys += std::string(", ") + launcher.key;
  }
  refuse("join", std::string(kChoice) + "=" + key + " names no launcher",
         "Set it to one of " + keys + ".");
}

std::optional<RankEnvironment> from_named_launcher(const std::string& key, const Getenv& get) {
  const Launcher* const launcher = named_launcher(key);
  if (!launcher) return std::nullopt;
  const Reading reading = read_launcher(*launcher, get);
  if (reading.refusal) throw *reading.refusal;
  if (reading.why.empty()) {
    refuse("join",
           std::string(kChoice) + "=" + key + ", but no variable of " + launcher->name + " is set",
           std::string("Unset ") + kChoice + ".");
  }
  return reading.rank;
}

// A refusal counts unless a more specific launcher states a rank, as mpirun in a batch script does.
std::optional<RankEnvironment> from_all_launchers(const Getenv& get) {
  std::vector<Candidate> candidates;
  std::optional<ConfigError> incomplete;
  for (const Launcher& launcher : foreign_launchers()) {
    Reading reading = read_launcher(launcher, get);
    if (reading.incomplete)
      incomplete = reading.refusal;
    else if (reading.refusal && candidates.empty())
      throw *reading.refusal;
    if (reading.rank) candidates.push_back({&launcher, std::move(reading)});
  }
  if (candidates.empty() && incomplete) throw *incomplete;
  if (candidates.empty()) return std::nullopt;
  return choose_candidate(candidates).reading.rank;
}

std::string reason_of(const Launcher& launcher, const Reading& reading) {
  const std::string name = launcher.name;
  if (reading.refusal) return name + " cannot be used: " + reading.refusal->message();
  return name + ": " + reading.why + "; " +
         (reading.rank ? rank_of_size(*reading.rank) : "states no rank");
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  return value;
}

void ignore_launchers() {
  unsetenv(kChoice);
  for (const Launcher& launcher : foreign_launchers()) {
    for (const char* name : launcher.variables)
      if (name) unsetenv(name);
  }
}

RankEnvironment resolve_environment(const Getenv& get) {
  const Reading own = read_launcher(kOwnLauncher, get);
  if (own.refusal) throw *own.refusal;
  if (own.rank) return *own.rank;
  const std::string named = get(kChoice).value_or("");
  return (named.empty() ? from_all_launchers(get) : from_named_launcher(named, get))
      .value_or(RankEnvironment{});
}

EnvironmentReport report_environment(const Getenv& get) {
  EnvironmentReport report;
  try {
    const RankEnvironment rank = resolve_environment(get);
    const std::string name = !rank.launcher.empty()           ? rank.launcher
                             : rank.coordinator_beside_server ? "TFJob"
                             : !rank.coordinator.empty()      ? kOwnLauncher.name
                                                              : "";
    report.found = name.empty() ? "none: one process" : name + ": " + rank_of_size(rank);
    if (rank.meeting) report.found += ", to meet at " + rank.meeting->host;
    if (rank.coordinator_beside_server) report.found += ", to meet at " + rank.coordinator;
  } catch (const ConfigError& error) {
    report.found = error.what();
  }
  if (const auto named = get(kChoice)) {
    report.reasons.push_back(std::string(kChoice) + "=" + *named);
  }
  if (const Reading own = read_launcher(kOwnLauncher, get); !own.why.empty()) {
    report.reasons.push_back(reason_of(kOwnLauncher, own));
  }
  for (const Launcher& launcher : foreign_launchers()) {
    const Reading reading = read_launcher(launcher, get);
    if (!reading.why.empty()) report.reasons.push_back(reason_of(launcher, reading));
  }
  return report;
}

}  // namespace trireme::inline v0::rendezvous
