#include "trireme/observe/tensorboard.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/observe/events.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::observe {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

// TFRecord masks its CRCs: a CRC of data that contains CRCs is weak.
std::uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

// Little-endian, as in both formats.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  for (std::size_t i = 0; i < sizeof value; ++i)
    bytes[i] = static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

// Protocol buffer wire format: varints, and a field's key is number * 8 + wire type.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string varint_field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
std::string double_field(int number, double value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 1) +
         raw(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(int number, float value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 5) +
         raw(std::bit_cast<std::uint32_t>(value));
}
std::string bytes_field(int number, std::string_view value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(value.size()) +
         std::string(value);
}

// Event's fields: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event_of(long step, const std::string& what) {
  return double_field(1, wall_seconds()) + varint_field(2, static_cast<std::uint64_t>(step)) + what;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t value = ~0u;
  for (const char byte : bytes)
    value = kTable[(value ^ static_cast<unsigned char>(byte)) & 0xff] ^ (value >> 8);
  return ~value;
}

TensorBoardWriter::~TensorBoardWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void TensorBoardWriter::open(const std::string& folder, long first_step) {
  std::error_code ignored;  // fopen reports the error
  std::filesystem::create_directories(folder, ignored);
  const std::string base = folder + "/events.out.tfevents." +
                           std::to_string(static_cast<long>(wall_seconds())) + "." + host_name();
  path_ = base;
  for (int i = 2; std::filesystem::exists(path_, ignored); ++i)
    path_ = base + "." + std::to_string(i);
  file_ = std::fopen(path_.c_str(), "abe");
  if (file_ == nullptr) {
    throw ResourceError("cannot write " + path_ + ": " + std::strerror(errno),
                        {.operation = "tensorboard", .advice = "Give a folder that is writable."});
  }
  try {
    write(event_of(0, bytes_field(3, "brain.Event:2")));
    // SessionLog: status = 1, START = 1.
    if (first_step > 0) write(event_of(first_step, bytes_field(7, varint_field(1, 1))));
  } catch (const ResourceError&) {  // without these, TensorBoard would read the file wrongly
    std::fclose(std::exchange(file_, nullptr));
    std::remove(path_.c_str());
    throw;
  }
}

void TensorBoardWriter::scalar(std::string_view tag, long step, double value) {
  if (file_ == nullptr) return;
  // Summary: value = 1; its fields: tag = 1, simple_value = 2.
  const std::string one = bytes_field(1, tag) + float_field(2, static_cast<float>(value));
  write(event_of(step, bytes_field(5, bytes_field(1, one))));
}

void TensorBoardWriter::write(const std::string& event) {
  const std::string length = raw(static_cast<std::uint64_t>(event.size()));
  const std::string record = length + raw(masked(length)) + event + raw(masked(event));
  // Nobody could read what follows a part of a record.
  if (!append_whole(file_, record)) {
    throw ResourceError("cannot write " + path_ + ": " + std::strerror(errno),
                        {.operation = "tensorboard", .advice = "Free some space there."});
  }
}

}  // namespace trireme::inline v0::observe
