// The cost of keeping a job's training state: the snapshot of a checkpoint that is written beside
// the steps, and the copies in the memory of other ranks of an elastic job (checkpoint.memory); and
// what a lost rank costs. Pure arithmetic.
//
// checkpoint/memory_copies.h says how copies are made. A copy of step S may be dropped when the
// copy of a later step is confirmed, two steps after that copy was begun:
//
//     every 1    S, S+1, S+2 at a time         every 2 and more    S, S+every at a time
#pragma once

#include <cstdint>
#include <string>

#include "trireme/plan/communication.h"

namespace trireme::inline v0::plan {

struct TrainingPlan;

/// How a job keeps its state.
struct Keeping {
  bool elastic = false;
  bool alone = false;             // ranks train independently, and servers have the weights
  bool restarts = true;           // lost processes are started again
  int least_ranks = 0;            // an elastic job goes on with at least so many
  int multiple = 1;               // the number of its ranks is a multiple of this
  int copies = 0;                 // on this many other ranks (checkpoint.memory)
  std::int64_t copies_every = 1;  // steps
  std::int64_t checkpoints = 0;   // steps between checkpoints; 0: only at the end
  bool saves = false;             // it writes checkpoints, beside the steps
};

/// Bytes on the host, for the rank with the most.
struct StateCosts {
  std::int64_t state = 0;   // the rank's shards of weights and optimizer state
  std::int64_t parts = 0;   // of these, the shards that are parts of tensors (ZeRO)
  std::int64_t sole = 0;    // of these, what no other rank has
  std::int64_t unsent = 0;  // of `state`: what is left out if it is lost (comm.compression)
  int generations = 0;      // copies of different steps at a time; 0: no copies are made
  int holders = 0;  // other ranks that have a copy of a rank's shards; 0: they have the same
  std::int64_t copies = 0;  // its own and those it keeps for others, of all generations
  std::int64_t snapshot = 0;
  std::int64_t sent = 0;  // by a rank for one generation
  /// Per step, to send and receive a generation while the next step computes.
  Communication refresh;
};

StateCosts state_costs_of(const TrainingPlan& plan);
/// The snapshots of all ranks of this host. A whole tensor is in the snapshot of one rank only.
std::int64_t snapshots_on_host(const TrainingPlan& plan);
/// Rows of explain(): snapshot, copies, what follows a lost rank. Empty, or ends with a newline.
std::string state_cost_lines(const TrainingPlan& plan);
/// One sentence on what an elastic job does when it loses a rank; empty if it is not elastic.
std::string after_a_loss(const TrainingPlan& plan);

}  // namespace trireme::inline v0::plan
