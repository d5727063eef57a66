// Operation: one call of a collective, filled in by Communicator's typed methods; and its
// fingerprint, the 64 bytes by which ranks see that they made the same call. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/work.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/op_kind.h"

namespace trireme {
inline namespace v0 {
namespace comm {

std::string_view name_of(ReduceOp op) noexcept;

struct Operation {
  OpKind kind = OpKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::size_t count = 0;       // elements of the whole (all_reduce: of out)
  int root = 0;                // broadcast; the peer of send and recv
  std::uint32_t total = 1;     // leaves
  std::uint64_t sequence = 0;  // number of the call
  std::uint32_t user_tag = 0;  // send, recv
  std::vector<Term> terms;     // all_reduce: this rank's
  Buffer in, out;
  std::vector<std::size_t> counts;  // all_gather: elements of each rank
  net::Region region;               // allocate
  std::string label;
  std::string algorithm;
  bool may_be_direct = false;  // the engine may replace `algorithm` by "direct"
  bool leaving = false;        // OpOptions
};

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
  std::uint8_t reserved[2] = {};
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
