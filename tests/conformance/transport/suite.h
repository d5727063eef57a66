// The typed suite: one line per transport, and what its tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "groups.h"

namespace trireme::conformance {
using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;
inline const Deadline kSoon = Deadline::in(60s);

/// Bytes that differ for every seed and position.
inline Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::size_t at = 0; at < size; at += sizeof state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t word = state ^ state >> 29;
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, size - at));
  }
  return bytes;
}

template <class T>
std::span<std::byte> raw(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

template <class T>
class Conformance : public ::testing::Test {};
struct Names {
  template <class T>
  static std::string GetName(int) {
    return T::kName;
  }
};
#ifdef TRIREME_CONFORMANCE_MPI
using All = ::testing::Types<Mpi>;
#else
using All = ::testing::Types<Sim, Shm, Tcp, Tcp2, Tcp4, Mixed, Mixed2, GroupOnSim, GroupOnShm>;
#endif
TYPED_TEST_SUITE(Conformance, All, Names);

}  // namespace trireme::conformance
