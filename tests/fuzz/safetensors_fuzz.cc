// Any bytes are refused with CheckpointError, or read so that every tensor lies inside the file.
// Written again, they are read as the same tensors.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::format;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const Safetensors content = parse_safetensors(file, "fuzz");
    std::vector<std::byte> again;
    write_safetensors(content.tensors, content.metadata, [&](std::span<const std::byte> bytes) {
      again.insert(again.end(), bytes.begin(), bytes.end());
    });
    const Safetensors second = parse_safetensors(again, "again");
    if (second.tensors.size() != content.tensors.size()) std::abort();
    if (second.metadata != content.metadata) std::abort();
    for (const TensorView& tensor : content.tensors) {
      const auto same = [&](const TensorView& other) {
        return other.name == tensor.name && other.dtype == tensor.dtype &&
               other.shape == tensor.shape && std::ranges::equal(other.bytes, tensor.bytes);
      };
      if (std::ranges::none_of(second.tensors, same)) std::abort();
    }
  } catch (const trireme::CheckpointError&) {
  }
  return 0;
}
