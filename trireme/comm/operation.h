// Operation: one call of a collective, filled in by Communicator's typed methods; and its
// fingerprint, the 64 bytes by which ranks see that they made the same call. Plain values.
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
#include "trireme/comm/communicator.h"
#include "trireme/comm/op_kind.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace nccl {
class GpuCall;
}

std::string_view name_of(ReduceOp op) noexcept;

struct Operation {
  OpKind kind = OpKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::size_t count = 0;       // elements of the whole (all_reduce: of out)
  int root = 0;                // broadcast, reduce, gather, scatter; the peer of send and recv
  std::uint32_t total = 1;     // leaves
  std::uint64_t sequence = 0;  // number of the call
  std::uint32_t user_tag = 0;  // send, recv
  std::vector<Term> terms;     // all_reduce: this rank's
  Buffer in, out;
  /// Elements of each rank's piece (all_gather, gather, scatter, reduce_scatter); all_to_all: of
  /// what goes to each rank, and in recv_counts of what comes from each. Empty: equal pieces.
  std::vector<std::size_t> counts, recv_counts;
  std::uint64_t detail = 0;  // what else must be equal on all ranks, hashed
  net::Region region;        // allocate
  std::string label;
  std::string algorithm;
  bool may_be_direct = false;  // the engine may replace `algorithm` by "direct"
  bool leaving = false;        // OpOptions
  bool on_gpu = false;         // its buffers lie on the GPU
  bool shared = false;         // `out` is this rank's part of memory that all ranks read

  /// The GPU's end of the call, in all its steps; null where the CPU carries it out.
  std::shared_ptr<nccl::GpuCall> device;

  /// A call of several steps (fused, sparse, all_to_all_v) keeps its place in the order of the
  /// calls: when a step has ended, `next` fills in the one that follows (`algorithm` still tells
  /// that of the one that ended), or returns false. It may throw (then the call has failed) and
  /// runs in the progress context.
  std::function<bool(Operation&)> next;
  std::optional<OpKind> part_of;  // what the user called, where a step is something else
  std::uint8_t step = 0;          // from 1, in a call of several

  OpKind called() const noexcept { return part_of.value_or(kind); }
  /// The most that this rank brings or takes.
  std::size_t bytes() const noexcept { return std::max(in.bytes(), out.bytes()); }
};

/// An operation of `kind` on elements like those of `like`.
Operation operation_of(OpKind kind, const Buffer& like, std::size_t count,
                       const OpOptions& options);
/// For Operation::detail.
std::uint64_t hash_of(std::span<const std::size_t> words) noexcept;

/// "all_reduce bucket 2".
std::string title_of(const Operation& operation);

/// The fingerprint: what must be equal on all ranks, but for `leaving`.
struct Header {
  std::uint32_t magic = 0x48495254;  // "TRIH"
  std::uint16_t version = 1;
  OpKind kind = OpKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::uint8_t leaving = 0;
  std::uint8_t step = 0;
  OpKind part_of = OpKind::Barrier;
  std::int32_t root = 0;
  std::uint32_t total = 0;
  std::uint32_t epoch = 0;
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;
  std::uint64_t detail = 0;  // hash of counts
  std::array<char, 16> algorithm = {};
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

/// The message of fixed size that opens every operation where memory cannot be shared; the data
/// itself travels in it where it fits.
struct Envelope {
  static constexpr std::size_t kPayload = 48;
  Header header;
  std::array<std::byte, kPayload> payload = {};
};

Header header_of(const Operation& operation, std::uint32_t epoch);
std::uint64_t hash_of(const Header& header) noexcept;
bool same_call(const Header& a, Header b) noexcept;
/// "all_reduce(Sum, F32, 100) as call 7"; leaves, counts, algorithm and epoch where `other`
/// differs.
std::string call_text(const Header& header, const Header& other);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
