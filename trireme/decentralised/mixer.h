// Mixer: how ranks that train separate copies of the model exchange them. Local SGD and its
// relatives are one Mixer each.
//
// A Replica is this rank's copy, as raw memory that the mixer reads and writes in place. All ranks
// call the same methods in the same order. Results repeat bit for bit on the same number of ranks
// (sums go by the tree of docs/numerics.md, one leaf per rank) and differ on another. Not thread
// safe. Fails with the communicator's error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"
#include "trireme/sync/options.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

struct Replica {
  std::vector<NamedShard> masters;  // whole parameters, fp32 or fp64
  std::vector<Buffer> weights;      // their memory
  std::vector<Buffer> scratch;      // of the same sizes; unused between two steps
  std::vector<Buffer> moments;      // the optimizer's state
  std::vector<at::Tensor> buffers;  // of the model, those that is_mixed(), of any strides
};
/// Whether average() takes a buffer of the model: numbers, or counts of 32 or 64 bits.
bool is_mixed(const at::Tensor& buffer);

class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Called once, before anything else. The mixer allocates its memory here.
  virtual void attach(const Replica& replica) = 0;
  /// Exchange number `round`, from 0 on, after every LocalOptions::steps local steps. Returns
  /// whether it leaves weights, moments and buffers equal on all ranks.
  virtual bool mix(Replica& replica, std::int64_t round) = 0;
  /// Replaces the weights (and buffers) by those of the model that this algorithm trains, equal on
  /// all ranks. Nothing else changes, and the caller restores what it had. Collective.
  virtual void show(Replica& replica) = 0;
  /// Makes weights, moments and buffers equal on all ranks, which go on from there: the content of
  /// a checkpoint. `mixed`: mix() was called after the last step. Collective.
  virtual void meet(Replica& replica, bool mixed) = 0;
  /// Local steps follow, from copies that are equal on all ranks: called after a start, a
  /// checkpoint, or the synchronous steps.
  virtual void start(Replica& replica) = 0;
  /// Additional tensors for a checkpoint; equal on all ranks after meet().
  virtual std::vector<NamedShard> state() = 0;
};

/// Replaces each buffer, of floats, by its mean over the ranks.
void average(comm::Communicator& world, const std::vector<Buffer>& buffers, const char* label);
/// The same; integers (such as the number of micro-batches that a batch norm has seen) become their
/// maximum.
void average(comm::Communicator& world, const std::vector<at::Tensor>& tensors, const char* label);

/// Copies of the masters, named PREFIX + the parameter's name.
std::vector<NamedShard> copies_of(const std::vector<NamedShard>& masters,
                                  const std::string& prefix);
/// to = from, element by element.
void copy_values(const Buffer& from, const Buffer& to);
/// kept = weights, and weights = kept, element by element.
void copy_into(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights);
void copy_from(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights);

/// The mixer for a SyncPlan's `sync`; null if that keeps ranks equal. ConfigError: unknown graph.
std::unique_ptr<Mixer> make_mixer(const std::string& sync, comm::Communicator& world,
                                  const LocalOptions& options);

// The makers, one file each.
std::unique_ptr<Mixer> make_local_sgd(comm::Communicator& world);
std::unique_ptr<Mixer> make_diloco(comm::Communicator& world, const LocalOptions& options);
std::unique_ptr<Mixer> make_easgd(comm::Communicator& world, const LocalOptions& options);
std::unique_ptr<Mixer> make_gossip(comm::Communicator& world, const LocalOptions& options);

}  // namespace trireme::inline v0::parallel
