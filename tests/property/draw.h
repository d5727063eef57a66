// Draws whole numbers for the property tests.
#pragma once

#include <rapidcheck.h>

namespace trireme {

/// A number of [min, max), each as likely as the others. RapidCheck's own inRange() begins a run
/// with small numbers, so that few of its 100 cases would be of a useful size.
template <class T>
rc::Gen<T> in_range(T min, T max) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(min, max));
}

}  // namespace trireme
