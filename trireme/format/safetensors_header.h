// Parser of the JSON header of a safetensors file. It uses nlohmann's SAX interface: no tree is
// built, the grammar bounds the depth, and duplicate keys are detected. Internal to format/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::format {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;  // two: begin and end in the data
};

struct Header {
  std::vector<HeaderEntry> entries;  // in file order
  std::map<std::string, std::string> metadata;
};

/// Throws std::runtime_error with the reason, and with the position if `json` is no valid JSON.
Header parse_header(std::string_view json);

}  // namespace trireme::inline v0::format
