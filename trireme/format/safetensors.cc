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

constexpr std::uint64_t kMaxHeader = 100'000'000;  // as Python's safetensors
constexpr const char* kTorn =
    "The file is torn or was changed: use another copy or an older checkpoint.";

class Parser {
 public:
  Parser(std::uint64_t file_bytes, const RangeReader& read, const std::string& title)
      : file_bytes_(file_bytes), read_(read), title_(title) {}

  SafetensorsIndex parse() {
    const std::string text = header_text();
    Header header;
    try {
      header = parse_header(text);
    } catch (const std::runtime_error& error) {
      refuse("its header is damaged: " + std::string(error.what()), kLengthBytes);
    }
    base_ = kLengthBytes + text.size();
    SafetensorsIndex index;
    index.metadata = std::move(header.metadata);
    std::sort(header.entries.begin(), header.entries.end(),
              [](const HeaderEntry& a, const HeaderEntry& b) {
                return std::tie(a.offsets[0], a.offsets[1], a.name) <
                       std::tie(b.offsets[0], b.offsets[1], b.name);
              });
    std::uint64_t at = 0;
    for (HeaderEntry& entry : header.entries) index.tensors.push_back(place(entry, at));
    if (at != file_bytes_ - base_) {
      refuse("it has " + std::to_string(file_bytes_ - base_) +
                 " bytes of data, but its tensors have " + std::to_string(at),
             file_bytes_);
    }
    return index;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::uint64_t offset,
                           const std::string& advice = kTorn) const {
    throw CheckpointError(title_ + ": " + what, {.operation = "read",
                                                 .label = "offset " + std::to_string(offset) +
                                                          " of " + std::to_string(file_bytes_),
                                                 .advice = advice});
  }

  std::string header_text() const {
    if (file_bytes_ < kLengthBytes) {
      refuse("it is not a safetensors file: " + std::to_string(file_bytes_) + " bytes",
             file_bytes_);
    }
    std::array<std::byte, kLengthBytes> first;
    read_(0, first);
    const std::uint64_t length = header_length(first);
    if (length > kMaxHeader) {
      refuse("it is not a safetensors file: its first 8 bytes give a header of " +
                 std::to_string(length) + " bytes",
             0);
    }
    if (length > file_bytes_ - kLengthBytes) {
      refuse("it is cut short inside its header of " + std::to_string(length) + " bytes",
             file_bytes_);
    }
    std::string text(length, '\0');
    read_(kLengthBytes, std::as_writable_bytes(std::span(text)));
    if (!text.starts_with('{')) refuse("its header does not begin with {", kLengthBytes);
    return text;
  }

  // The place of `entry`, whose bytes must begin at `at` of the data; moves `at` to their end.
  PlacedTensor place(HeaderEntry& entry, std::uint64_t& at) const {
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    const std::uint64_t data_bytes = file_bytes_ - base_;
    const auto fail = [&](const std::string& what) {
      refuse("tensor \"" + entry.name + "\" " + what, base_ + at);
    };
    const auto dtype = dtype_named(entry.dtype);
    if (!dtype)
      refuse("tensor \"" + entry.name + "\" has the type \"" + entry.dtype +
                 "\", which Trireme does not know",
             base_ + at,
             "Convert it to F64, F32, BF16, F16, I64, I32, I16, I8, U8 or BOOL, which it knows.");
    if (end < begin) fail("ends before it begins");
    if (end > data_bytes) {
      fail("lies outside of the file: it ends at byte " + std::to_string(end) + " of " +
           std::to_string(data_bytes) + " of data");
    }
    if (begin != at) fail(begin < at ? "overlaps the one before" : "leaves a hole before it");
    // Signed, so that the elements can be counted in a std::int64_t even if a later dim is 0.
    auto bytes = static_cast<std::int64_t>(size_of(*dtype));
    for (const std::uint64_t dim : entry.shape) {
      if (dim > std::uint64_t{std::numeric_limits<std::int64_t>::max()} ||
          __builtin_mul_overflow(bytes, dim, &bytes)) {
        fail("has a shape that is too large");
      }
    }
    if (static_cast<std::uint64_t>(bytes) != end - begin) {
      fail("has " + std::to_string(end - begin) + " bytes, but its shape and type need " +
           std::to_string(bytes));
    }
    at = end;
    return {std::move(entry.name),
            *dtype,
            {entry.shape.begin(), entry.shape.end()},
            base_ + begin,
            base_ + end};
  }

  const std::uint64_t file_bytes_;
  const RangeReader& read_;
  const std::string& title_;
  std::uint64_t base_ = 0;  // where the data begins
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
  auto& entries = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::uint64_t at = 0;
  for (const TensorView& tensor : tensors) {
    TRIREME_CHECK(tensor.name != "__metadata__");
    const std::uint64_t size = bytes_of(tensor);
    // Names differ, and operator[] would compare each with all before it.
    entries.emplace_back(tensor.name, nlohmann::ordered_json{{"dtype", name_of(tensor.dtype)},
                                                             {"shape", tensor.shape},
                                                             {"data_offsets", {at, at + size}}});
    at += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::uint64_t header_length(std::span<const std::byte, kLengthBytes> first) noexcept {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(first[i]) << (8 * i);
  return length;
}

SafetensorsIndex read_safetensors_index(std::uint64_t file_bytes, const RangeReader& read,
                                        const std::string& title) {
  return Parser(file_bytes, read, title).parse();
}

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& title) {
  SafetensorsIndex index = read_safetensors_index(
      file.size(),
      [&](std::uint64_t at, std::span<std::byte> to) {
        std::ranges::copy(file.subspan(at, to.size()), to.begin());
      },
      title);
  Safetensors content{.metadata = std::move(index.metadata)};
  for (PlacedTensor& tensor : index.tensors)
    content.tensors.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
                               file.subspan(tensor.begin, tensor.end - tensor.begin)});
  return content;
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
  if (header.size() > kMaxHeader)
    throw ConfigError("the names and shapes of " + std::to_string(tensors.size()) +
                          " tensors take " + std::to_string(header.size()) +
                          " bytes, and a safetensors file has room for " +
                          std::to_string(kMaxHeader),
                      {.operation = "save", .advice = "Give the tensors shorter names."});
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
