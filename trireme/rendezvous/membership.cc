#include "trireme/rendezvous/membership.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include "trireme/base/differing_lines.h"
#include "trireme/base/joined.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr Duration kJustHeard = std::chrono::milliseconds(50);
constexpr Duration kLookAgain = std::chrono::milliseconds(50);

std::string seconds(Duration duration) {
  return std::to_string(std::chrono::round<std::chrono::seconds>(duration).count()) + " s";
}

std::string busy_text(const PeerState& peer) {
  const std::string who = "rank " + std::to_string(peer.rank);
  if (peer.stopped) {
    return who + " is stopped (debugger or SIGSTOP) since " + seconds(peer.stopped_for);
  }
  if (peer.phase == Phase::Absent) return who + " has not joined yet";
  std::string text = who + " is in user code since " + seconds(peer.activity.since);
  if (!peer.activity.last_call.empty()) text += " (last call " + peer.activity.last_call + ")";
  return text;
}

std::string waiters_text(const Table& table, const std::string& operation, int self) {
  std::vector<int> waiting;
  for (const PeerState& peer : table.peers) {
    if (peer.rank == self || (peer.phase == Phase::Joined && peer.activity.waiting &&
                              !peer.stopped && peer.activity.operation == operation)) {
      waiting.push_back(peer.rank);
    }
  }
  if (waiting.size() == 1) return "rank " + std::to_string(self) + " waits in " + operation;
  return std::to_string(waiting.size()) + " ranks wait in " + operation;
}

// For example "every rank waits: rank 0, 2 in all_reduce bucket 2; rank 1 in recv".
std::string deadlock_text(const Table& table, const std::string& operation, int self) {
  std::vector<std::pair<std::string, std::vector<std::string>>> waits;  // operation, ranks
  for (const PeerState& peer : table.peers) {
    const std::string& own = peer.rank == self ? operation : peer.activity.operation;
    auto at =
        std::find_if(waits.begin(), waits.end(), [&](const auto& one) { return one.first == own; });
    if (at == waits.end()) at = waits.insert(waits.end(), {own, {}});
    at->second.push_back(std::to_string(peer.rank));
  }
  const auto text = [](const auto& one) {
    return "rank " + joined(one.second) + " in " + one.first;
  };
  return "every rank waits: " + joined(waits, text, "; ");
}

bool works(const PeerState& peer) {
  return peer.stopped || peer.phase == Phase::Absent ||
         (peer.phase == Phase::Joined && !peer.activity.waiting);
}

// The reason not to wait for this rank any more; nullopt if it is alive.
std::optional<std::string> lost(const PeerState& peer, Duration timeout) {
  const std::string who = "rank " + std::to_string(peer.rank);
  if (peer.phase == Phase::Ended) return who + " has ended";
  if (peer.phase == Phase::Left) return who + " has left the job";
  if (peer.phase == Phase::Joined && !peer.stopped && peer.silent > timeout) {
    return who + " has sent no heartbeat for " + seconds(peer.silent);
  }
  return std::nullopt;
}

}  // namespace

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;  // getline: a stream iterator throws if the process ends meanwhile
  std::getline(file, text, '\0');
  const std::size_t end = text.rfind(')');  // the name before it may contain anything
  return end == std::string::npos || end + 2 >= text.size() ? '\0' : text[end + 2];
}

Membership::Membership(Roles roles, std::function<char(pid_t)> state_of)
    : roles_(roles),
      rows_(static_cast<std::size_t>(roles.processes())),
      members_(static_cast<std::size_t>(roles.workers)),
      state_of_(std::move(state_of)) {
  std::iota(members_.begin(), members_.end(), 0);
}

void Membership::set_process(int rank, pid_t pid, TimePoint now) {
  rows_[rank].pid = pid;
  rows_[rank].seen = now;
  busy_ = now;
}

std::optional<std::string> Membership::join(int rank, std::string host, std::string identity,
                                            TimePoint now) {
  Row& row = rows_[rank];
  if (row.phase != Phase::Absent) {
    return roles_.name_of(rank) + " has joined already";
  }
  // All that have one have the same.
  const auto other = std::find_if(rows_.begin(), rows_.end(),
                                  [](const Row& one) { return !one.identity.empty(); });
  if (!identity.empty() && other != rows_.end() && other->identity != identity) {
    return roles_.name_of(rank) + " differs from " +
           roles_.name_of(static_cast<int>(other - rows_.begin())) + ": \"" +
           differing_lines(identity, other->identity) + "\" against \"" +
           differing_lines(other->identity, identity) + "\"";
  }
  row.phase = Phase::Joined;
  row.host = std::move(host);
  row.identity = std::move(identity);
  row.seen = now;
  busy_ = now;
  return std::nullopt;
}

void Membership::beat(int rank, Activity activity, TimePoint now) {
  Row& row = rows_[rank];
  row.activity = std::move(activity);
  row.seen = now;
  note_work(now);
}

void Membership::forgive(TimePoint now) {
  for (Row& row : rows_) row.seen = now;
  busy_ = now;
}

void Membership::leave(int rank, int exit_code) {
  if (rows_[rank].phase == Phase::Ended) return;
  rows_[rank].phase = Phase::Left;
  rows_[rank].exit_code = exit_code;
}

void Membership::end(int rank) { rows_[rank].phase = Phase::Ended; }

void Membership::forget(int rank) { rows_[rank] = Row{.seen = rows_[rank].seen}; }

// A stopped process sends nothing, so one that was just heard is not stopped. Each heartbeat asks
// this of all processes, but the system is asked seldom.
bool Membership::stopped(Row& row, TimePoint now) const {
  const bool gone = row.phase == Phase::Ended || row.phase == Phase::Left;
  if (row.pid <= 0 || gone || now - row.seen < kJustHeard) return false;
  if (now - row.looked >= kLookAgain) {
    row.looked = now;
    const char state = state_of_(row.pid);
    row.stopped = state == 't' || state == 'T';
  }
  if (row.stopped) row.held = now;
  return row.stopped;
}

void Membership::set_members(std::vector<int> members, TimePoint now) {
  members_ = std::move(members);
  busy_ = now;
}

bool Membership::is_member(int rank) const {
  return std::binary_search(members_.begin(), members_.end(), rank);
}

std::vector<int> Membership::silent(Duration silence, TimePoint now) {
  std::vector<int> result;
  for (int process = 0; process < size(); ++process) {
    if (!is_member(process) && roles_.role_of(process) != Role::Server) continue;
    Row& row = rows_[process];
    if (row.phase == Phase::Joined && !stopped(row, now) &&
        now - std::max(row.seen, row.held) > silence)
      result.push_back(process);
  }
  return result;
}

void Membership::note_work(TimePoint now) {
  for (Row& row : rows_) {
    const bool held = stopped(row, now);  // for all rows, because it also records the time
    if (!is_member(static_cast<int>(&row - rows_.data()))) continue;
    if (row.phase == Phase::Absent || (row.phase == Phase::Joined && !row.activity.waiting) ||
        held) {
      busy_ = now;
    } else if (row.phase == Phase::Joined && row.activity.moved) {
      busy_ = std::max(busy_, row.seen - *row.activity.moved);
    }
  }
}

bool Membership::fail(Failure failure) {
  for (const Failure& known : failures_) {
    if (known.rank == failure.rank) return false;
  }
  failures_.push_back(std::move(failure));
  return true;
}

std::optional<Failure> Membership::first_failure() const {
  const auto order = [](const Failure& one) { return one.secondary() ? 2 : one.stopped() ? 1 : 0; };
  const auto first = std::min_element(
      failures_.begin(), failures_.end(),
      [&](const Failure& one, const Failure& other) { return order(one) < order(other); });
  return first == failures_.end() ? std::nullopt : std::optional(*first);
}

Table Membership::table(TimePoint now) {
  note_work(now);
  Table table;
  for (const int process : members_) {
    const Row& row = rows_[process];
    PeerState peer{.rank = static_cast<int>(table.peers.size()),
                   .host = row.host,
                   .phase = row.phase,
                   .stopped = row.held == now,
                   .activity = row.activity,
                   .silent = now - std::max(row.seen, row.held),
                   .stopped_for = now - row.seen};
    peer.activity.since += now - row.seen;
    table.peers.push_back(std::move(peer));
  }
  table.quiet = now - busy_;
  return table;
}

bool Membership::awaits(int first, int end, Duration silence, TimePoint now) {
  note_work(now);
  return std::any_of(rows_.begin() + first, rows_.begin() + end, [&](const Row& row) {
    return row.phase == Phase::Joined &&
           (row.held == now || now - std::max(row.seen, row.held) < silence);
  });
}

Verdict judge(const Table& table, const std::string& operation, Duration waited,
              const JudgeOptions& options) {
  Verdict verdict;
  const PeerState* busiest = nullptr;
  int first_waiting = options.self;
  for (const PeerState& peer : table.peers) {
    if (peer.rank == options.self) continue;
    if (const auto reason = lost(peer, options.timeout)) {
      verdict.lost_rank = peer.rank;
      verdict.explanation = *reason;
      return verdict;
    }
    if (works(peer)) {
      const auto since = [](const PeerState& one) {
        return one.stopped ? one.stopped_for : one.activity.since;
      };
      if (!busiest || since(peer) > since(*busiest)) busiest = &peer;
    } else {
      first_waiting = std::min(first_waiting, peer.rank);
    }
  }
  if (busiest) {
    verdict.explanation = busy_text(*busiest) + "; " + waiters_text(table, operation, options.self);
    verdict.keep_waiting = waited < options.timeout_user_code;
    verdict.speak = first_waiting == options.self;
    return verdict;
  }
  // All ranks wait. It is no deadlock if a rank has worked, or bytes have moved, shortly before.
  verdict.keep_waiting = table.quiet < options.timeout * 9 / 10;
  verdict.explanation = deadlock_text(table, operation, options.self);
  return verdict;
}

}  // namespace trireme::inline v0::rendezvous
