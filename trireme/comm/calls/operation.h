// Operation: one call of a collective, filled in by Communicator's typed methods. Header: its
// fingerprint, 64 bytes by which ranks check that they made the same call. Plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/communicator.h"
#include "trireme/kernel/reduce.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

std::string_view name_of(ReduceOp op) noexcept;
/// A Mean is a Sum that is divided once at the end.
kernel::Combine combine_of(ReduceOp op) noexcept;

struct Staged;

struct Operation {
  OpKind kind = OpKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::size_t count = 0;    // elements of the whole buffer (all_reduce: of out)
  int root = 0;             // broadcast, reduce, gather, scatter; the peer of send and recv
  std::uint32_t total = 1;  // leaves of the sum
  std::vector<std::uint32_t> shares;  // weights of the ranks' shares of the leaves; empty: equal
  std::uint64_t sequence = 0;         // number of the call
  std::uint32_t user_tag = 0;         // send, recv
  std::vector<Term> terms;            // all_reduce: this rank's terms
  Buffer in, out;
  /// Elements of each rank's piece (all_gather, gather, scatter, reduce_scatter). all_to_all: the
  /// elements sent to each rank (counts) and received from it (recv_counts). Empty: equal pieces.
  std::vector<std::size_t> counts, recv_counts;
  std::uint64_t detail = 0;  // hash of whatever else must be equal on all ranks
  net::Region region;        // allocate
  std::string label;
  std::string algorithm;
  bool may_be_direct = false;       // the engine may replace `algorithm` by "direct"
  std::optional<ExitCode> leaving;  // OpOptions
  bool on_device = false;           // its buffers lie on this rank's device

  /// State of the call on the device, shared by all its steps; null if it runs on the CPU.
  std::shared_ptr<DeviceSide> device;

  /// Null unless the buffers are copies, in the host's memory, of a device's buffers.
  std::shared_ptr<Staged> staged;

  /// For calls of several steps (all_reduce_many, sparse, all_to_all_v), which count as one call.
  /// When a step has ended, `next` fills in the following one (on entry, the argument holds the
  /// ended step's `algorithm`) or returns false. Progress context; if it throws, the call fails.
  std::function<bool(Operation&)> next;
  std::optional<OpKind> part_of;  // what the user called, if `kind` is only a step of it
  std::uint8_t step = 0;          // from 1, in a call of several steps

  kernel::LeafShares leaves() const { return {total, shares}; }
  bool is_message() const noexcept { return kind == OpKind::Send || kind == OpKind::Recv; }
  OpKind called() const noexcept { return part_of.value_or(kind); }
  /// The larger of this rank's input and output.
  std::size_t bytes() const noexcept { return std::max(in.bytes(), out.bytes()); }
};

/// An operation of `kind` on `count` elements of `like`'s type.
Operation operation_of(OpKind kind, const Buffer& like, std::size_t count,
                       const OpOptions& options);
/// The first step of a call of several steps. `next` fills it in, and later the other steps.
Operation first_step(OpKind part_of, const OpOptions& options,
                     std::function<bool(Operation&)> next);
/// For Operation::detail; 0 if `words` is empty.
std::uint64_t hash_of(std::span<const std::size_t> words) noexcept;

/// "all_reduce bucket 2".
std::string title_of(const Operation& operation);

/// The fingerprint. All fields but `leaving` must be equal on all ranks.
struct Header {
  static constexpr std::uint8_t kEnded = 1;  // no ExitCode
  std::uint32_t magic = 0x48495254;          // "TRIH"
  std::uint16_t version = 1;
  OpKind kind = OpKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::uint8_t leaving = 0;  // kEnded, or the exit code of a rank that failed
  std::uint8_t step = 0;
  OpKind part_of = OpKind::Barrier;
  std::int32_t root = 0;
  std::uint32_t total = 0;
  std::uint32_t epoch = 0;
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;
  std::uint64_t detail = 0;  // Operation::detail and the hash of counts
  std::array<char, 16> algorithm = {};
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

/// The fixed-size message that begins every operation if memory cannot be shared. Data that fits
/// travels in it.
struct Envelope {
  static constexpr std::size_t kPayload = 48;
  Header header;
  std::array<std::byte, kPayload> payload = {};
};

Header header_of(const Operation& operation, std::uint32_t epoch);
std::uint64_t hash_of(const Header& header) noexcept;
bool same_call(const Header& a, Header b) noexcept;
/// "all_reduce(Sum, F32, 100) as call 7"; adds leaves, counts, algorithm and epoch if they differ
/// from `other`'s.
std::string call_text(const Header& header, const Header& other);

}  // namespace trireme::inline v0::comm
