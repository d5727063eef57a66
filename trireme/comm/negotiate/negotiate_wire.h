// The wire format of a negotiation: a stream of records, cut into messages of fixed size, since a
// receive must name its length. Values; only for negotiate*.cc and its tests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/buffer.h"
#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

/// The arguments that must be equal on all ranks under one name.
struct Signature {
  OpKind kind = OpKind::AllReduce;
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::U8;
  std::uint8_t reserved = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 16);
/// "all_reduce(Sum, F32, 100)".
std::string text_of(const Signature& signature);

/// Sent to rank 0: Ready, ReadyByNumber, Overdue, Bye. Sent by it: Go, GoByNumber, Refuse, Bye.
enum class RecordKind : std::uint8_t {
  Ready = 1,
  ReadyByNumber,
  Overdue,
  Go,
  GoByNumber,
  Refuse,
  Bye
};

struct Record {
  static constexpr std::uint32_t kNoNumber = 0;
  RecordKind kind = RecordKind::Bye;
  std::uint32_t number = kNoNumber;  // identifies name and signature in the response cache
  Signature signature;               // Ready, Go
  std::int32_t code = 0;             // Refuse: the ExitCode
  std::string name = {}, text = {};  // text: Refuse
  int to = -1;                       // the rank that rank 0 sends it to; -1: all. Not sent
};

/// One message: a part of the stream of records, which may be cut anywhere.
struct Parcel {
  static constexpr std::size_t kBytes = 254;
  std::uint16_t used = 0;
  std::array<char, kBytes> bytes = {};
};
static_assert(sizeof(Parcel) == 256);

class RecordWriter {
 public:
  void put(const Record& record);
  bool empty() const noexcept { return at_ == stream_.size(); }
  /// The next parcel; only if not empty().
  Parcel take();

 private:
  std::string stream_;
  std::size_t at_ = 0;
};

class RecordReader {
 public:
  void put(const Parcel& parcel);
  /// The next whole record, if there is one. Throws RefusedError if it is malformed.
  std::optional<Record> take();

 private:
  std::string stream_;
};

}  // namespace trireme::inline v0::comm
