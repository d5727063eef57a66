#include "trireme/ps/server/ledger.h"

#include <algorithm>
#include <optional>

namespace trireme::inline v0::ps {

void Ledger::find_slowest() {
  std::optional<std::int64_t> least;
  for (const auto& [number, worker] : workers_)
    if (worker.client >= 0) least = std::min(least.value_or(worker.clock), worker.clock);
  slowest_ = least.value_or(0);
}

void Ledger::arrive(int number, int client) {
  Worker& worker = workers_[number];
  if (std::exchange(worker.client, client) >= 0) return;
  worker.clock = std::max(worker.clock, slowest_);
  find_slowest();
}

void Ledger::leave(int worker) {
  workers_[worker].client = -1;
  find_slowest();
}

void Ledger::lost(int client) {
  for (const auto& [number, worker] : workers_)
    if (worker.client == client) return leave(number);
}

bool Ledger::take(int number, std::uint64_t sequence, std::int64_t clock) {
  Worker& worker = workers_[number];
  if (sequence <= worker.last) {
    ++worker.repeated;
    return false;
  }
  worker.last = sequence;
  worker.clock = clock;
  find_slowest();
  return true;
}

void Ledger::applied(int worker, std::int64_t staleness) {
  ++workers_[worker].pushes;
  ++histogram_[staleness];
}

void Ledger::late(int number, std::int64_t round) {
  Worker& worker = workers_[number];
  if (round <= worker.last_late) return;
  worker.last_late = round;
  ++worker.late;
}

}  // namespace trireme::inline v0::ps
