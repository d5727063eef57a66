#include "trireme/tensor/saved_count.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

std::int64_t saved_count(const nlohmann::json& saved, const char* key) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000;
  const auto refuse = [&](const std::string& what) {
    throw CheckpointError("the checkpoint's metadata " + what,
                          {.operation = "checkpoint.resume",
                           .advice = "It was not written by this program: resume from another "
                                     "checkpoint, or start anew."});
  };
  if (!saved.is_object() || !saved.contains(key)) refuse(std::string("lacks \"") + key + "\"");
  const nlohmann::json& value = saved[key];
  if (!value.is_number_integer() || value < 0 || value > kMost)
    refuse(std::string("has ") + key + " = " + value.dump() +
           ", which is not a count from 0 to 10^15");
  return value.get<std::int64_t>();
}

void require_saved(const nlohmann::json& saved, const char* key, std::int64_t own,
                   const std::string& whose) {
  const auto refuse = [&](const std::string& what) {
    throw CheckpointError("the checkpoint's " + whose + " " + what,
                          {.operation = "resume",
                           .advice = "Resume with the data and batch of the checkpoint's run."});
  };
  if (!saved.is_object() || !saved.contains(key) || !saved[key].is_number_integer())
    refuse(std::string("lacks \"") + key + "\"");
  const auto before = saved[key].get<std::int64_t>();
  if (before != own)
    refuse(std::string("differs: ") + key + " was " + std::to_string(before) + " and is " +
           std::to_string(own));
}

}  // namespace trireme::inline v0
