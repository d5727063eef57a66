// ScopedValue: a variable of one thread has another value while this object lives. Scopes nest. The
// same thread destroys it.
#pragma once

#include <utility>

namespace trireme::inline v0::tensor {

template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~ScopedValue() { variable_ = std::move(outer_); }
  ScopedValue(const ScopedValue&) = delete;

 private:
  T& variable_;
  T outer_;
};

}  // namespace trireme::inline v0::tensor
