// Negotiator: collectives by name, for programs whose ranks submit them in different orders.
//
// Ranks report to rank 0 which collectives are ready. When one is ready on all ranks, rank 0
// announces it to all, and the collectives run in the order of these announcements. They run over
// groups of the negotiator, independent of the program's other calls. This costs two more messages
// than a collective in program order. A name that is submitted again with the same signature is
// sent as a number (the response cache), in a record of 7 bytes.
//
// Submissions may come from any thread. A name may be used again when its Work is done. If ranks
// submit different calls under one name, their Works fail with MismatchError. If a rank does not
// submit a name, the others' Works fail at the deadline with TimeoutError, which names the rank.
// Neither affects other names. A lost peer fails all open Works. Construction and destruction are
// collective. Modelled on the controller of Horovod (Sergeev and Del Balso 2018, arXiv:1802.05799).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

struct NegotiatorOptions {
  std::string name = "negotiated";
  std::size_t cached_names = 4096;  // size of the response cache
};

class Negotiator final {
 public:
  /// Collective over `world`, which must outlive it. Uses world's timeout and PeerWatch.
  explicit Negotiator(Communicator& world, const NegotiatorOptions& options = {});
  /// Waits, within the timeout, until all ranks destroy it. A Work that is still open here
  /// fails with PeerLost, and breaks `world`.
  ~Negotiator();
  Negotiator(const Negotiator&) = delete;

  /// Buffers must stay valid until the Work is done. ConfigError if they do not lie in the host's
  /// memory, or if `name` is empty, longer than 400 bytes, or submitted already and not done.
  Work all_reduce(std::string name, Buffer inout, ReduceOp op);
  Work broadcast(std::string name, Buffer inout, int root);
  Work all_gather(std::string name, Buffer in, Buffer out);

  /// Counts of this rank, since construction.
  struct Statistics {
    std::uint64_t submitted = 0, by_number = 0;  // by_number: found in the response cache
  };
  Statistics statistics() const;

 private:
  class Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace trireme::inline v0::comm
