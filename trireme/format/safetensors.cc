#include "trireme/format/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/format/safetensors_header.h"

namespace trireme::inline v0::format {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // as Python's safetensors

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& title) : file_(file), title_(title) {}

  Safetensors parse() {
    const std::string_view text = header_text();
    Header header;
    try {
      header = parse_header(text);
    } catch (const std::runtime_error& error) {
      refuse("its header is damaged: " + std::string(error.what()), kLengthBytes);
    }
    data_ = file_.subspan(kLengthBytes + text.size());
    Safetensors content;
    content.metadata = std::move(header.metadata);
    std::sort(header.entries.begin(), header.entries.end(),
              [](const HeaderEntry& a, const HeaderEntry& b) {
                return std::tie(a.offsets[0], a.offsets[1], a.name) <
                       std::tie(b.offsets[0], b.offsets[1], b.name);
              });
    std::uint64_t at = 0;
    for (HeaderEntry& entry : header.entries) content.tensors.push_back(view(entry, at));
    if (at != data_.size()) {
      refuse("it has " + std::to_string(data_.size()) + " bytes of data, but its tensors have " +
                 std::to_string(at),
             file_.size());
    }
    return content;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::uint64_t offset) const {
    throw CheckpointError(
        title_ + ": " + what,
        {.operation = "read",
         .label = "offset " + std::to_string(offset) + " of " + std::to_string(file_.size()),
         .advice = "The file is torn or was changed: use another copy or an older checkpoint."});
  }

  std::string_view header_text() const {
    if (file_.size() < kLengthBytes) {
      refuse("it is no safetensors file: " + std::to_string(file_.size()) + " bytes", file_.size());
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      length |= std::to_integer<std::uint64_t>(file_[i]) << (8 * i);
    }
    if (length > kMaxHeader) {
      refuse("it is no safetensors file: a header of " + std::to_string(length) + " bytes", 0);
    }
    if (length > file_.size() - kLengthBytes) {
      refuse("it is cut short inside its header of " + std::to_string(length) + " bytes",
             file_.size());
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + kLengthBytes, length);
    if (!text.starts_with('{')) refuse("its header does not begin with {", kLengthBytes);
    return text;
  }

  // The view of `entry`, whose bytes must begin at `at` of the data; moves `at` to their end.
  TensorView view(HeaderEntry& entry, std::uint64_t& at) const {
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    const std::uint64_t base = file_.size() - data_.size();
    const auto fail = [&](const std::string& what) {
      refuse("tensor \"" + entry.name + "\" " + what, base + at);
    };
    const auto dtype = dtype_named(entry.dtype);
    if (!dtype) fail("has the type \"" + entry.dtype + "\", which Trireme does not know");
    if (end < begin) fail("ends before it begins");
    if (end > data_.size()) {
      fail("lies outside of the file: it ends at byte " + std::to_string(end) + " of " +
           std::to_string(data_.size()) + " of data");
    }
    if (begin != at) fail(begin < at ? "overlaps the one before" : "leaves a hole before it");
    std::uint64_t bytes = size_of(*dtype);
    for (const std::uint64_t dim : entry.shape) {
      if (dim > std::uint64_t{std::numeric_limits<std::int64_t>::max()} ||
          __builtin_mul_overflow(bytes, dim, &bytes)) {
        fail("has a shape that is too large");
      }
    }
    if (bytes != end - begin) {
      fail("has " + std::to_string(end - begin) + " bytes, but its shape and type need " +
           std::to_string(bytes));
    }
    at = end;
    return {std::move(entry.name),
            *dtype,
            {entry.shape.begin(), entry.shape.end()},
            data_.subspan(begin, bytes)};
  }

  const std::span<const std::byte> file_;
  std::span<const std::byte> data_;
  const std::string& title_;
};

std::uint64_t bytes_of(const TensorView& tensor) {
  std::uint64_t bytes = size_of(tensor.dtype);
  for (const std::int64_t dim : tensor.shape) bytes *= static_cast<std::uint64_t>(dim);
  return bytes;
}

std::string header_of(const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const TensorView& tensor : tensors) {
    TRIREME_CHECK(tensor.name != "__metadata__");
    const std::uint64_t size = bytes_of(tensor);
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + size}}};
    at += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& title) {
  return Parser(file, title).parse();
}

void sort_for_file(std::vector<TensorView>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    if (size_of(a.dtype) != size_of(b.dtype)) return size_of(a.dtype) > size_of(b.dtype);
    return a.name < b.name;
  });
}

void write_safetensors(std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const TensorView&, const ByteSink&)>& content,
                       const ByteSink& sink) {
  sort_for_file(tensors);
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) TRIREME_CHECK(names.insert(tensor.name).second);
  const std::string header = header_of(tensors, metadata);
  std::array<std::byte, kLengthBytes> length;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(std::uint64_t{header.size()} >> (8 * i));
  }
  sink(length);
  sink(std::as_bytes(std::span(header)));
  for (const TensorView& tensor : tensors) {
    std::uint64_t given = 0;
    content(tensor, [&](std::span<const std::byte> bytes) {
      given += bytes.size();
      if (!bytes.empty()) sink(bytes);
    });
    TRIREME_CHECK(given == bytes_of(tensor));
  }
}

void write_safetensors(std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(std::span<const std::byte>)>& sink) {
  for (const TensorView& tensor : tensors) TRIREME_CHECK(tensor.bytes.size() == bytes_of(tensor));
  write_safetensors(
      std::move(tensors), metadata,
      [](const TensorView& tensor, const ByteSink& out) { out(tensor.bytes); }, sink);
}

SafetensorsFile::SafetensorsFile(MappedFile file)
    : file_(std::move(file)), content_(parse_safetensors(file_.bytes(), file_.path())) {
  for (std::size_t i = 0; i < content_.tensors.size(); ++i) index_[content_.tensors[i].name] = i;
}

const TensorView* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

}  // namespace trireme::inline v0::format
