#include "trireme/tensor/state.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::inline v0 {
namespace {

std::string optimizer_of(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("optimizer") || !json["optimizer"].is_string()) return {};
  return json["optimizer"].get<std::string>();
}

}  // namespace

void require_same_optimizer(const std::string& saved, const std::string& own) {
  const std::string before = optimizer_of(saved), now = optimizer_of(own);
  if (before.empty() || now.empty() || before == now) return;
  throw CheckpointError(
      "the checkpoint holds the state of the optimizer " + before + ", and this run has " + now,
      {.operation = "checkpoint.resume",
       .advice = "Go on with " + before + ", or start anew from its weights."});
}

}  // namespace trireme::inline v0
