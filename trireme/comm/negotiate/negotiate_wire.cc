#include "trireme/comm/negotiate/negotiate_wire.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/calls/operation.h"

namespace trireme::inline v0::comm {
namespace {

void append(std::string& stream, const auto& value) {
  stream.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T value() {
    T result{};
    const std::string_view part = text(sizeof result);
    std::memcpy(&result, part.data(), sizeof result);
    return result;
  }
  std::string_view text(std::size_t size) {
    if (size > bytes_.size()) throw RefusedError("a record of a negotiation is cut short");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }

 private:
  std::string_view bytes_;
};

bool by_number(RecordKind kind) {
  return kind == RecordKind::ReadyByNumber || kind == RecordKind::GoByNumber;
}

}  // namespace

std::string text_of(const Signature& signature) {
  std::string text(name_of(signature.kind));
  text += "(";
  if (signature.kind == OpKind::AllReduce) text += std::string(name_of(signature.op)) + ", ";
  if (signature.kind == OpKind::Broadcast) text += "root " + std::to_string(signature.root) + ", ";
  return text + std::string(trireme::name_of(signature.dtype)) + ", " +
         std::to_string(signature.count) + ")";
}

// The format, with sizes in bits: {size of what follows: 16, kind: 8, number: 32}, and for records
// that are not by number {signature: 128, code: 32, size of the name: 16, name, text}.
void RecordWriter::put(const Record& record) {
  std::string body;
  append(body, record.kind);
  append(body, record.number);
  if (!by_number(record.kind)) {
    append(body, record.signature);
    append(body, record.code);
    append(body, static_cast<std::uint16_t>(record.name.size()));
    body += record.name;
    body += record.text;
  }
  TRIREME_CHECK(body.size() <= std::numeric_limits<std::uint16_t>::max());
  append(stream_, static_cast<std::uint16_t>(body.size()));
  stream_ += body;
}

Parcel RecordWriter::take() {
  Parcel parcel;
  parcel.used = static_cast<std::uint16_t>(std::min(Parcel::kBytes, stream_.size() - at_));
  std::memcpy(parcel.bytes.data(), stream_.data() + at_, parcel.used);
  at_ += parcel.used;
  if (at_ == stream_.size()) {
    stream_.clear();
    at_ = 0;
  }
  return parcel;
}

void RecordReader::put(const Parcel& parcel) {
  stream_.append(parcel.bytes.data(), std::min<std::size_t>(parcel.used, Parcel::kBytes));
}

std::optional<Record> RecordReader::take() {
  std::uint16_t size = 0;
  if (stream_.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, stream_.data(), sizeof size);
  if (stream_.size() < sizeof size + size) return std::nullopt;
  Cursor cursor(std::string_view(stream_).substr(sizeof size, size));
  Record record;
  record.kind = cursor.value<RecordKind>();
  record.number = cursor.value<std::uint32_t>();
  if (!by_number(record.kind)) {
    record.signature = cursor.value<Signature>();
    record.code = cursor.value<std::int32_t>();
    const auto name = cursor.value<std::uint16_t>();
    record.name = cursor.text(name);
    const std::size_t head = 1 + 4 + sizeof(Signature) + 4 + 2;
    record.text = cursor.text(size - head - name);
  }
  stream_.erase(0, sizeof size + size);
  return record;
}

}  // namespace trireme::inline v0::comm
