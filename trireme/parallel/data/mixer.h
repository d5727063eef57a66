// Mixer: how ranks that each train a copy of the model come together again: local SGD and its
// relatives are each one of these.
//
// A Replica is what this rank's copy consists of, as raw memory that the mixer reads and writes in
// place. All ranks call the same methods in the same order; the results repeat bit for bit on as
// many ranks (sums go by the tree of NUMERICS.md, one leaf per rank), and are others on another
// number of them. Not thread safe. Fails with the communicator's error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/local_options.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct Replica {
  std::vector<NamedShard> masters;  // whole parameters, fp32 or fp64
  std::vector<Buffer> weights;      // their memory
  std::vector<Buffer> scratch;      // as large; nobody else needs it between two steps
  std::vector<Buffer> moments;      // the optimizer's state
  std::vector<Buffer> buffers;      // of the model, the floating ones
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Once, before anything else; what it keeps is allocated here.
  virtual void attach(const Replica& replica) = 0;
  /// Exchange number `round`, from 0 on, after every LocalOptions::steps local steps.
  virtual void mix(Replica& replica, std::int64_t round) = 0;
  /// Whether mix() leaves weights, moments and buffers equal on all ranks.
  virtual bool brings_together() const noexcept = 0;
  /// The weights (and buffers) become those of the model that this algorithm trains, equal on all
  /// ranks. Nothing else changes: the caller puts back what it had. Collective.
  virtual void show(Replica& replica) = 0;
  /// Weights, moments and buffers become equal on all ranks, which go on from there: what a
  /// checkpoint holds. `mixed`: mix() was called after the last step. Collective.
  virtual void meet(Replica& replica, bool mixed) = 0;
  /// Local steps follow, from copies that are equal on all ranks: after a start, a checkpoint, the
  /// synchronous steps before.
  virtual void start(Replica& replica) = 0;
  /// What a checkpoint has to hold besides; equal on all ranks after meet().
  virtual std::vector<NamedShard> state() = 0;
};

/// Each becomes the ranks' mean, in place.
void average(comm::Communicator& world, const std::vector<Buffer>& buffers, const char* label);

/// Tensors of the masters' shapes and types, named PREFIX + the parameter's name, with their
/// values.
std::vector<NamedShard> copies_of(const std::vector<NamedShard>& masters,
                                  const std::string& prefix);
/// kept = weights, and weights = kept, element by element.
void copy_into(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights);
void copy_from(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights);

/// For a SyncPlan's name; null for one that keeps the ranks equal.
std::unique_ptr<Mixer> make_mixer(const std::string& sync, comm::Communicator& world,
                                  const LocalOptions& options);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
