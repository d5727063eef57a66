#include "trireme/plan/state_costs.h"

#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/plan/limited_product.h"
#include "trireme/plan/training_plan.h"

namespace trireme::inline v0::plan {
namespace {

// As checkpoints have them: masters, not 16-bit weights.
std::int64_t weights_of(const PlannedJob& job) {
  return times(job.held_parameters(), job.master_bytes());
}

// The bytes of a rank's weights and optimizer state.
void set_state(StateCosts& costs, const PlannedJob& job) {
  const std::int64_t weights = weights_of(job);
  const std::int64_t moments = times(weights, job.optimizer_moments);
  const bool half = job.in_16_bits();
  const bool cuts_weights = job.shards() && (half || job.shards_weights);
  const std::int64_t cut = job.shards() ? moments + (cuts_weights ? weights : 0) : 0;
  costs.parts = (cut + job.owners - 1) / job.owners;
  costs.state = costs.parts + weights + moments - cut;
  // With several groups of owners (hybrid), ranks of other groups have the same part.
  const int groups = job.data_ranks();
  if (groups == 1)
    costs.sole = costs.state;
  else if (groups == job.owners)
    costs.sole = costs.parts;
  // Ranks that share sequences have the same, and those that share experts all but these.
  const double experts = static_cast<double>(job.expert_parameters) / job.expert;
  const double others = static_cast<double>(job.parameters - job.expert_parameters);
  if (job.context > 1)
    costs.sole = 0;
  else if (job.expert > 1)
    costs.sole = static_cast<std::int64_t>(static_cast<double>(costs.sole) * experts /
                                           std::max(experts + others, 1.0));
  // Each rank has a residual of its own.
  if (job.keeps_residual && groups > 1) costs.unsent = weights;
  costs.state += costs.unsent;
  costs.sole += costs.unsent;
}

// Ranks have different parts of the state.
bool in_parts(const PlannedJob& job) {
  return job.shards() || job.holders() * job.expert > 1 ||
         (job.keeps_residual && job.data_ranks() > 1);
}

std::string of_other_ranks(int count) { return counted(count, "other rank"); }

}  // namespace

StateCosts state_costs_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  StateCosts costs;
  set_state(costs, job);
  if (job.keeping.saves && !job.simulated)
    costs.snapshot = costs.state + times(weights_of(job), job.moments_on_servers);
  if (!job.keeping.elastic || job.keeping.copies == 0 || job.ranks == 1 || !in_parts(job))
    return costs;
  costs.generations = job.keeping.copies_every == 1 ? 3 : 2;
  costs.holders = costs.sole > 0 ? std::min(job.keeping.copies, job.ranks - 1) : 0;
  costs.sent = times(costs.sole, costs.holders);
  costs.copies = times(costs.state + costs.sent, costs.generations);
  costs.refresh = messages_of(job.tuning ? &*job.tuning : nullptr, job.tuning_path,
                              job.transport == "nccl" ? "auto" : job.transport, costs.holders,
                              static_cast<std::size_t>(costs.sole));
  costs.refresh.seconds /= static_cast<double>(job.keeping.copies_every);
  return costs;
}

std::int64_t snapshots_on_host(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (plan.state_costs.snapshot == 0) return 0;
  const int different = job.holders() * job.expert;  // ranks of a copy of the model
  const std::int64_t writers = std::min(job.ranks_here, different * job.owners);
  const std::int64_t whole = std::min(job.ranks_here, different);
  const StateCosts& costs = plan.state_costs;
  return times(costs.parts, writers) + times(costs.unsent, job.ranks_here) +
         times(costs.snapshot - costs.parts - costs.unsent, whole);
}

std::string after_a_loss(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  const Keeping& keeping = job.keeping;
  if (keeping.alone)
    return keeping.restarts
               ? "the others go on; it is started again, and takes the weights that the servers "
                 "have"
               : "the others go on without it; without rank 0, which saves, the job ends";
  if (!keeping.elastic) return {};
  const std::string back =
      keeping.checkpoints > 0
          ? " goes back to the newest checkpoint and repeats at most " +
                counted(keeping.checkpoints, "step")
          : " begins anew, since checkpoint.every = 0 writes no checkpoint before the end";
  if (job.transport == "mpi")
    return "an MPI world cannot shrink, so `train` refuses this job; without elastic.* a loss ends "
           "it, and started again by --resume auto it" +
           back;
  const int left = (job.ranks - 1) / keeping.multiple * keeping.multiple;
  const bool enough = left > 0 && left >= keeping.least_ranks;
  if (!enough && !keeping.restarts)
    return "the job ends: too few ranks are left, and with elastic.restarts = 0 none is started "
           "again; started by --resume auto it" +
           back;
  const std::string others =
      enough ? "the others go on; " : "the others wait for the one that is started again; ";
  const std::string repeated = "at most " + counted(keeping.copies_every, "step") +
                               (keeping.copies_every == 1 ? " is" : " are") + " repeated";
  if (plan.state_costs.sole == 0) {
    const std::string all = others + "they have all that it had, and ";
    if (plan.state_costs.generations > 0) return all + repeated;
    if (!in_parts(job)) return all + "nothing is repeated";
    return all +
           "nothing is repeated; only if it is lost in the moment of an update, in which the "
           "others' parts may be of two steps, the job" +
           back + " (checkpoint.memory = 1 keeps those of both)";
  }
  if (plan.state_costs.generations == 0 && plan.state_costs.sole == plan.state_costs.unsent)
    return others +
           "what a rank has not sent of its gradients (comm.compression) may be lost "
           "(checkpoint.memory = 1 keeps a copy in memory)" +
           (in_parts(job)
                ? "; if it is lost in the moment of an update, in which the others' parts "
                  "may be of two steps, the job" +
                      back
                : "");
  if (plan.state_costs.generations > 0)
    return others + "its part of the state comes from the memory of " +
           of_other_ranks(plan.state_costs.holders) + ", and " + repeated +
           "; if these are lost with it, the job" + back;
  return others + "no other rank has its part of the state, so the job" + back +
         " (checkpoint.memory = 1 keeps a copy in memory)";
}

std::string state_cost_lines(const TrainingPlan& plan) {
  const StateCosts& costs = plan.state_costs;
  const Keeping& keeping = plan.job.keeping;
  std::string text;
  if (costs.snapshot > 0)
    text += "  snapshot " + bytes_text(costs.snapshot) +
            " of the rank with most, on the host, while a checkpoint is written beside the steps\n";
  if (costs.generations > 0)
    text += "  copies   " + bytes_text(costs.copies) + " a rank, on the host: of " +
            std::to_string(costs.generations) + " steps, its own " + bytes_text(costs.state);
  if (costs.generations > 0 && costs.holders == 0) text += "; another rank has the same\n";
  if (costs.holders > 0)
    text += " and " + bytes_text(costs.sole) + " for each of " + of_other_ranks(costs.holders) +
            "\n           " + bytes_text(costs.sent) + " sent every " +
            (keeping.copies_every == 1 ? "step" : counted(keeping.copies_every, "step")) + ": " +
            duration_text(costs.refresh.seconds) +
            " a step, predicted, while the next one computes\n           (" + costs.refresh.source +
            ")\n";
  if (const std::string loss = after_a_loss(plan); !loss.empty())
    text += "  loss     of a rank: " + loss + "\n";
  return text;
}

}  // namespace trireme::inline v0::plan
