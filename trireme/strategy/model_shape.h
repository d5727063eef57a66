// ModelShape: what a model family says about its sizes, so that a layout is checked before the
// model is built (option_check.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::parallel {

/// The sizes of a model that ranks may divide, as far as known before its blocks are built.
struct ModelShape {
  struct Share {
    std::string what;  // "4 attention heads"
    std::int64_t count = 0;
  };
  /// Divided among tensor-parallel ranks; empty: no layer can be cut.
  std::vector<Share> shares = {};
  std::int64_t vocabulary = 0;  // rows of the token table; 0: none
  std::int64_t positions = 0;   // of a sequence that ranks can cut; 0: none
  int experts = 0;              // of each mixture; 0: none
};

}  // namespace trireme::inline v0::parallel
