// The job's secret and the proofs made from it.
//
// A Secret travels by inherited descriptor or owner-only file, never in argv, the environment or a
// log. Values; pure functions; thread safe. Failures throw RefusedError or ResourceError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace launch {

inline constexpr std::size_t kSecretBytes = 32;

/// Version of the control plane's messages; both ends must be equal (exit code 10 otherwise).
inline constexpr std::string_view kWireVersion = "trireme 0.1.0, wire 2";

/// `count` bytes from the kernel's random generator.
std::string random_bytes(std::size_t count);
/// A sealed memory file that holds `secret`, close-on-exec. The caller closes it.
int secret_descriptor(std::string_view secret);
/// Reads what secret_descriptor() holds, and closes it.
std::string read_secret_descriptor(int descriptor);
/// At least 16 bytes from a regular file that only its owner, this user, may read or write.
std::string read_secret_file(const std::string& path);

/// HMAC-SHA256 over the parts, each preceded by its length, so that no two lists collide.
std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts);
/// In constant time for equal lengths.
bool same_proof(std::string_view a, std::string_view b);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
