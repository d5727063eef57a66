// Any bytes are refused with CheckpointError or give a manifest that its own text gives again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/storage/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::storage;
  try {
    const Manifest manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!(parse_manifest(to_text(manifest), "again") == manifest)) std::abort();
  } catch (const trireme::CheckpointError&) {
  }
  return 0;
}
