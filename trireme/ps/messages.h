// Messages between a worker (the client) and a server. A frame's head is one Request or Reply as
// JSON; bulk memory is the frame's payload, or lies in an area that the client shares.
//
//     worker                                              server
//        | Attach {settings, epoch}                         |  the first one decides what is served
//        | <------------------------------ Reply {version}  |
//        | Write {weights, state}                           |  the first one counts: worker 0's
//        | Push {gradient} -------------------------------> |  asynchronous: applied at once
//        | <------------------------------ Reply {weights}  |  when the bound of staleness allows
//        | Terms {parts of the tree sum} -----------------> |  synchronous: kept until all are here
//        | <---------------------- Reply {sums of squares}  |
//        | Commit {rate, scale} --------------------------> |  applied once; with backup workers,
//        |                                                  |  when enough terms are here
//        | <------------------------------ Reply {weights}  |
//        | PullRows {ids} --------------------------------> |  changes nothing
//        | <--------------------------------- Reply {rows}  |
//        | Begin {version}                                  |  synchronous: in a new epoch
//        | Leave                                            |
//
// Push and Terms carry the gradients of rows of embedding tables behind those of the parameters.
//
// A request that is repeated after a lost connection has no second effect: pushes have a sequence
// number per worker, terms and commits the number of their round. Messages between servers:
// relay.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::ps {

enum class Ask : std::uint8_t {
  Attach,
  Write,
  Read,
  Pull,
  Push,
  Terms,
  Commit,
  Figures,
  Leave,
  PullRows,
  Begin
};
inline constexpr Ask kLastAsk = Ask::Begin;

/// Whether a request may change state that all copies of a shard share. A pull may: with delay
/// compensation a server remembers the weights that a worker has.
constexpr bool changes_state(Ask ask) noexcept {
  return ask != Ask::Read && ask != Ask::Figures && ask != Ask::PullRows;
}

/// The place of bulk memory: an area that the client shares (the server, if Reply::in_place), or
/// the frame's payload (area -1).
struct Memory {
  std::int64_t area = -1;
  std::uint64_t bytes = 0;
};

struct Request {
  Ask ask = Ask::Pull;
  int shard = 0;
  int worker = 0;
  // Push: the number of this worker's push, from 1 on; the worker's clock after it (ledger.h); the
  // version of the weights that the gradient is of. Begin, PullRows: the version of its weights.
  std::uint64_t sequence = 0;
  std::int64_t clock = 0, version = 0;
  std::int64_t epoch = 0;      // Attach: of the job's workers
  std::uint32_t attempt = 0;   // Begin: from 1 on in each epoch
  bool kept = false;           // Begin: a worker of an earlier epoch has kept these weights
  std::int64_t round = 0;      // Terms, Commit
  double rate = 0, scale = 1;  // Push, Commit; Terms with backup workers
  bool finite = false;         // Push: the worker has checked the gradient, except for rows
  // Terms: the micro-batches of the batch, and the nodes of their tree sum that memory holds.
  std::uint32_t total = 0;
  std::vector<kernel::LeafRange> nodes = {};
  Memory memory = {}, into = {};  // what is sent; where the reply's memory is to be written
  std::uint64_t text_bytes = 0;   // Attach, Write: of the text at the start of memory
  // The number of rows behind everything else in memory (row_message.h). Push, PullRows: for each
  // table; Terms: for each table of each term.
  std::vector<std::uint32_t> rows = {};
  bool with_rows = false;  // Read: with the rows of all tables
};

struct Reply {
  Ask ask = Ask::Pull;
  int exit_code = 0;  // not 0: refused, and `text` says why
  std::string text = {}, advice = {};
  bool elsewhere = false;    // not served: another server is the shard's primary
  std::int64_t version = 0;  // updates so far
  // Attach: the worker's last push, next round, least clock, whether there are weights. Begin:
  // `ready`.
  std::uint64_t sequence = 0;
  std::int64_t round = 0, slowest = 0;
  bool ready = false;
  std::int64_t staleness = 0;    // Push: updates by others since the weights that it used
  bool dropped = false;          // Push: it was not finite. Terms, Commit: the round is over
  std::int64_t not_finite = -1;  // Terms: the first parameter whose sum is not finite
  // Weights. Terms: the fp64 sums of squares of the chunks, then an ExactSum for each table's rows.
  Memory memory = {};
  std::uint64_t text_bytes = 0;  // Read, Figures: of the text at the start of memory
  bool in_place = false;  // Commit: memory is the server's, which holds these weights until the
                          // worker's next Terms
  bool written = false;   // no part of the message: the weights are where they are wanted
};

/// A copy's position in the order of its shard's requests: after request `index`, which the primary
/// of `term` has ordered. Copies at one position are equal.
struct Position {
  std::uint64_t term = 0, index = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

std::string to_text(const Request& request);
std::string to_text(const Reply& reply);
/// RefusedError if the other end does not speak this protocol.
Request request_from(std::span<const std::byte> head);
Reply reply_from(std::span<const std::byte> head);

}  // namespace trireme::inline v0::ps
