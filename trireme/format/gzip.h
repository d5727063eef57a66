// Reads a gzip file (RFC 1952) into memory as a whole.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::inline v0::format {

/// The unpacked content of `path`; a file that is not compressed is returned unchanged. Throws
/// ConfigError if it cannot be read, is damaged or truncated, or unpacks to more than `most_bytes`.
std::string read_gzip(const std::string& path, std::int64_t most_bytes);

}  // namespace trireme::inline v0::format
