#include "trireme/launch/coordinator/standing_workers.h"

#include <signal.h>

#include <set>
#include <utility>

#include "trireme/base/words.h"

namespace trireme::inline v0::launch {
namespace {

constexpr const char* kEnded = "the job has ended.";
constexpr const char* kStopped = "the job was stopped, as it was asked.";

std::string too_few(int min) {
  return "there were fewer than " + counted(min, "process", "processes") +
         ", the least that --elastic allows";
}

class RanksOfEpochs final : public StandingWorkers {
 public:
  RanksOfEpochs(const ElasticOptions& options, Duration gather, const KnownWorkers& known)
      : options_(options),
        gather_(gather),
        gathering_(known.epoch.number == 0),
        group_(options, known.epoch, gathering_ ? std::vector<int>{} : known.joined),
        over_(known.ended_with.has_value()),
        stop_code_(known.ended_with.value_or(0)) {
    if (gathering_) gathered_.insert(known.joined.begin(), known.joined.end());
  }

  Decision joined(int process) override {
    if (over_) return {};
    if (!gathering_) return of(group_.joined(process));
    gathered_.insert(process);
    const auto count = static_cast<int>(gathered_.size());
    return {.line = "process " + std::to_string(process) + " has come; " + std::to_string(count) +
                    " of " + std::to_string(options_.max) + " are there."};
  }

  Decision lost(int process, const std::string& how, TimePoint now) override {
    gathered_.erase(process);
    if (over_) return ended(process);
    if (gathering_) return {.line = how + " before the job has begun."};
    return of(group_.lost(process, how, /*again=*/true, now));
  }

  Decision left(int process, int exit_code) override {
    if (!group_.is_member(process)) {
      gathered_.erase(process);
      return {};
    }
    if (exit_code != 0) stop_code_ = exit_code;
    const bool first = !std::exchange(over_, true);
    Decision decision = ended(process);
    if (first) decision.end_told_to = Tell::All, decision.told_code = stop_code_;
    return decision;
  }

  Decision watch(TimePoint now, bool servers) override {
    if (!gathering_) return {};
    const auto count = static_cast<int>(gathered_.size());
    if (count < options_.min || !servers)
      enough_.reset();
    else if (!enough_)
      enough_ = now;
    const bool all = count >= options_.max + options_.spares;
    return enough_ && (all || now - *enough_ >= gather_) ? begin() : Decision{};
  }

  bool begun() const override { return !gathering_; }
  bool over() const override { return over_; }
  std::string lack() const override {
    return over_ || !group_.epoch().members.empty() ? "" : too_few(options_.min);
  }
  std::string describe() const override {
    return "epoch " + std::to_string(group_.epoch().number) + ", " +
           counted(static_cast<int>(group_.epoch().members.size()), "rank");
  }

 private:
  static Decision of(ElasticGroup::Decision decision) {
    return {.line = std::move(decision.line), .epoch = std::move(decision.epoch)};
  }

  // The job's first epoch that has ranks.
  Decision begin() {
    gathering_ = false;
    Decision first;
    for (const int process : gathered_)
      if (auto decision = group_.joined(process); decision.epoch) first = of(std::move(decision));
    if (!first.epoch) return {};
    first.epoch->at_step_end = false;
    first.epoch->interrupted = first.epoch->number;
    first.epoch->cause =
        "the job begins with " + counted(static_cast<int>(first.epoch->members.size()), "rank");
    first.line = first.epoch->cause + ".";
    return first;
  }

  // A process is gone after the training has ended.
  Decision ended(int process) {
    if (!group_.is_member(process)) return {};
    ended_.insert(process);
    if (ended_.size() < group_.epoch().members.size()) return {};
    return {.line = stop_code_ == 0 ? kEnded : kStopped, .exit_code = stop_code_};
  }

  const ElasticOptions options_;
  const Duration gather_;
  bool gathering_;
  ElasticGroup group_;
  bool over_;
  std::set<int> gathered_;           // while it gathers: who is there
  std::optional<TimePoint> enough_;  // while it gathers: since when there are `min` of them
  int stop_code_;                    // 130 or 143: it has ended on request
  std::set<int> ended_;              // members that are gone, after the training
};

class WorkersOnTheirOwn final : public StandingWorkers {
 public:
  WorkersOnTheirOwn(const WorkerRange& range, const rendezvous::Roles& roles,
                    std::function<bool()> begun, const KnownWorkers& known)
      : range_(range),
        roles_(roles),
        begun_(std::move(begun)),
        there_(known.joined.begin(), known.joined.end()),
        over_(known.ended_with.has_value()),
        saved_(over_),
        stop_code_(known.ended_with.value_or(0)) {}

  Decision joined(int process) override {
    if (!there_.insert(process).second || over_) return {};
    return {.line = roles_.name_of(process) + " has come; " + there() + " there."};
  }

  Decision lost(int process, const std::string& how, TimePoint) override {
    there_.erase(process);
    if (over_) return {};
    return {.line = how + "; the job " +
                    (there_.empty() ? std::string("waits for a worker.")
                                    : "goes on with " + counted(number_there(), "worker") + ".")};
  }

  Decision left(int process, int exit_code) override {
    there_.erase(process);
    Decision decision;
    if (process == 0) {
      saved_ = true;
      decision.end_told_to = Tell::Workers;
      decision.told_code = stop_code_ != 0 ? stop_code_ : exit_code;
    } else if (exit_code == 0 && !over_) {
      decision.line = roles_.name_of(process) + " has ended its training.";
    }
    over_ |= process == 0 || exit_code != 0;
    // A signal to one of them stops all.
    if (exit_code != 0 && std::exchange(stop_code_, exit_code) == 0)
      decision.stop = exit_code == 128 + SIGINT ? SIGINT : SIGTERM;
    return decision;
  }

  // The job ends when all are gone after the training. A lost rank 0 comes back to save.
  Decision watch(TimePoint, bool) override {
    if (!over_ || !saved_ || !there_.empty()) return {};
    return {.line = stop_code_ == 0 ? kEnded : kStopped,
            .end_told_to = Tell::All,
            .told_code = stop_code_,
            .exit_code = stop_code_};
  }

  bool begun() const override { return begun_(); }
  bool over() const override { return over_; }
  std::string lack() const override {
    if (over_) return there_.empty() ? "there was no rank 0 to save the weights" : "";
    return number_there() < range_.min ? too_few(range_.min) : "";
  }
  std::string describe() const override { return counted(number_there(), "worker"); }

 private:
  int number_there() const { return static_cast<int>(there_.size()); }
  std::string there() const {
    return counted(number_there(), "worker") + (number_there() == 1 ? " is" : " are");
  }

  const WorkerRange range_;
  const rendezvous::Roles roles_;
  const std::function<bool()> begun_;
  std::set<int> there_;
  bool over_;
  bool saved_;     // rank 0 has left by itself
  int stop_code_;  // 130 or 143: it has ended on request
};

}  // namespace

std::unique_ptr<StandingWorkers> ranks_of_epochs(const ElasticOptions& options, Duration gather,
                                                 const KnownWorkers& known) {
  return std::make_unique<RanksOfEpochs>(options, gather, known);
}

std::unique_ptr<StandingWorkers> workers_on_their_own(const WorkerRange& range,
                                                      const rendezvous::Roles& roles,
                                                      std::function<bool()> begun,
                                                      const KnownWorkers& known) {
  return std::make_unique<WorkersOnTheirOwn>(range, roles, std::move(begun), known);
}

}  // namespace trireme::inline v0::launch
