// printable() leaves no control byte and is idempotent; the compiler's output may be anything.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trireme/format/printable.h"
#include "trireme/input/compiler_headers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string shown = format::printable(text);
  if (format::printable(shown) != shown) std::abort();
  const auto control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
  };
  if (std::ranges::any_of(shown, control)) std::abort();
  for (const std::string& folder : input::parse_include_folders(text)) {
    if (folder.find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
