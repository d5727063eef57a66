// gzip (RFC 1952): a compressed file, whole, in memory.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {
inline namespace v0 {
namespace format {

/// What `path` holds when it is unpacked; a file that is not compressed as it is. Throws
/// ConfigError where it cannot be read, is damaged or cut short, or unpacks to more than
/// `most_bytes`.
std::string read_gzip(const std::string& path, std::int64_t most_bytes);

}  // namespace format
}  // namespace v0
}  // namespace trireme
