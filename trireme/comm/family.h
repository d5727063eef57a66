// Family: the engines over one transport, that is, a communicator and all groups made from it. They
// share connections and progress; the first failure of one breaks them all with the same error.
//
// Used in the progress context only. Holds weak references to the engines.
#pragma once

#include <exception>
#include <memory>
#include <vector>

namespace trireme::inline v0::comm {

class Engine;

class Family {
 public:
  /// Breaks `engine` at once if the family is broken already.
  void add(const std::shared_ptr<Engine>& engine);
  /// Breaks all engines; the first error wins.
  void fail(const std::exception_ptr& error) noexcept;

 private:
  std::vector<std::weak_ptr<Engine>> members_;
  std::exception_ptr failure_;
};

}  // namespace trireme::inline v0::comm
