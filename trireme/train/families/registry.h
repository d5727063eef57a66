// Registry: values under names (models, data, losses), in the order in which they were added.
// Adding is not thread safe, reading is.
#pragma once

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::inline v0::train {

template <class T>
class Registry {
 public:
  /// `kind`: the word for an entry in errors, such as "model".
  Registry(std::string kind, std::initializer_list<T> built_in)
      : kind_(std::move(kind)), all_(built_in) {}

  /// Throws ConfigError if the name is empty or taken.
  void add(T one) {
    if (one.name.empty())
      throw ConfigError("a " + kind_ + " has no name",
                        {.operation = "register", .advice = "Give it a name."});
    if (find(one.name) != nullptr)
      throw ConfigError("a " + kind_ + " \"" + one.name + "\" is already registered",
                        {.operation = "register", .advice = "Give it another name."});
    all_.push_back(std::move(one));
  }
  /// nullptr if there is no entry of that name. The pointer stays valid.
  const T* find(const std::string& name) const {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const T& one) { return one.name == name; });
    return found == all_.end() ? nullptr : &*found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const T& one : all_) names.push_back(one.name);
    return names;
  }

 private:
  const std::string kind_;
  std::deque<T> all_;
};

}  // namespace trireme::inline v0::train
