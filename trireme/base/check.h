// TRIREME_CHECK(a == b): checks an invariant of Trireme itself. On failure it throws CheckFailure
// (exit code 20) with both values. Never use it for mistakes of a user or a peer.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

class CheckFailure : public Error {
 public:
  explicit CheckFailure(std::string message)
      : Error(ExitCode::UserCode, std::move(message),
              {.advice = "This is a bug in Trireme: please report it with this line."}) {}
};

namespace detail {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& values);

template <class T>
concept Printable = requires(std::ostream& out, const T& value) {
  out << value;
};

template <class T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (Printable<T>) {
    out << value;
  } else {
    out << "?";
  }
}

// Splits a comparison so that both sides can be printed: (Decomposer() << a) == b.
template <class L>
struct Left {
  const L& left;
#define TRIREME_CHECK_OPERATOR(op)                \
  template <class R>                              \
  std::string operator op(const R& right) const { \
    if (left op right) [[likely]]                 \
      return {};                                  \
    std::ostringstream out;                       \
    print(out, left);                             \
    out << " " #op " ";                           \
    print(out, right);                            \
    return out.str();                             \
  }
  TRIREME_CHECK_OPERATOR(==)
  TRIREME_CHECK_OPERATOR(!=)
  TRIREME_CHECK_OPERATOR(<)
  TRIREME_CHECK_OPERATOR(<=)
  TRIREME_CHECK_OPERATOR(>)
  TRIREME_CHECK_OPERATOR(>=)
#undef TRIREME_CHECK_OPERATOR
  operator std::string() const { return static_cast<bool>(left) ? std::string() : "false"; }
};
struct Decomposer {
  template <class L>
  Left<L> operator<<(const L& left) const {
    return {left};
  }
};

}  // namespace detail

#define TRIREME_CHECK(expression)                                                            \
  do {                                                                                       \
    _Pragma("GCC diagnostic push") _Pragma(                                                  \
        "GCC diagnostic ignored \"-Wparentheses\"") if (std::string trireme_values =         \
                                                            (::trireme::detail::Decomposer() \
                                                             << expression);                 \
                                                        !trireme_values.empty())             \
        [[unlikely]] ::trireme::detail::check_failed(__FILE__, __LINE__, #expression,        \
                                                     trireme_values);                        \
    _Pragma("GCC diagnostic pop")                                                            \
  } while (false)

}  // namespace trireme::inline v0
