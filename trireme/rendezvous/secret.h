// The job's secret, and proofs made with it.
//
// A secret is passed by inherited descriptor or owner-only file, never in argv, the environment or
// a log. Plain functions; thread safe. Failures throw RefusedError or ResourceError.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace trireme::inline v0::rendezvous {

inline constexpr std::size_t kSecretBytes = 32;

/// Version of the control plane's messages. Both ends must have the same (exit code 10 otherwise).
inline constexpr std::string_view kWireVersion = "trireme 0.1.0, wire 8";

/// `count` bytes from the kernel's random generator.
std::string random_bytes(std::size_t count);
/// A sealed memory file with `secret`, close-on-exec. The caller closes it.
int secret_descriptor(std::string_view secret);
/// Reads and closes a descriptor made by secret_descriptor().
std::string read_secret_descriptor(int descriptor);
/// Reads it and leaves it open for read_secret_descriptor().
std::string peek_secret_descriptor(int descriptor);
/// Reads a secret of at least 16 bytes from a regular file that only this user can access.
std::string read_secret_file(const std::string& path);

/// HMAC-SHA256 over the parts. Each is preceded by its length, so different lists never collide.
std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts);
/// Takes constant time for equal lengths.
bool same_proof(std::string_view a, std::string_view b);

}  // namespace trireme::inline v0::rendezvous
