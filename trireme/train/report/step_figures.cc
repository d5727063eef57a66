#include "trireme/train/report/step_figures.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "trireme/base/clock.h"

namespace trireme::inline v0::train {
namespace {

// The figures that are in both kinds of results.
observe::StepFigures common_figures(const auto& result) {
  observe::StepFigures figures{.loss = result.loss,
                               .learning_rate = result.learning_rate,
                               .gradient_norm = result.gradient_norm,
                               .last_rank = result.last_rank,
                               .behind_seconds = to_seconds(result.behind)};
  if (result.skipped_steps > 0) figures.skipped_steps = static_cast<long>(result.skipped_steps);
  return figures;
}

}  // namespace

observe::StepFigures figures_of(const StepResult& result) {
  observe::StepFigures figures = common_figures(result);
  if (result.communication) figures.communication_seconds = to_seconds(*result.communication);
  figures.noise_scale = result.noise_scale;
  figures.loss_scale = result.loss_scale;
  if (result.loss_scale) figures.overflows = static_cast<long>(result.overflows);
  return figures;
}

observe::StepFigures figures_of(const BatchResult& result) {
  observe::StepFigures figures = common_figures(result);
  figures.communication_seconds = to_seconds(result.communication);
  return figures;
}

std::optional<observe::StepFigures> last_step(comm::Communicator& world, bool lacks, long step,
                                              const std::optional<observe::StepFigures>& own) {
  using observe::StepFigures;
  const bool knows = own && own->step == step;
  // Whether rank 0 lacks them, and a rank that has them.
  std::array<std::int64_t, 2> found{world.rank() == 0 && lacks ? 1 : 0, knows ? world.rank() : -1};
  world.all_reduce(Buffer::of(std::span<std::int64_t>(found)), Max, {.label = "last step"}).wait();
  const int source = static_cast<int>(found[1]);
  if (found[0] == 0 || source < 0) return std::nullopt;
  static_assert(std::is_trivially_copyable_v<StepFigures>);
  std::array<std::uint8_t, sizeof(StepFigures)> bytes{};
  if (world.rank() == source) std::memcpy(bytes.data(), &*own, bytes.size());
  world.broadcast(Buffer::of(std::span<std::uint8_t>(bytes)), source, {.label = "last step"})
      .wait();
  if (world.rank() != 0) return std::nullopt;
  StepFigures figures;
  const std::string_view items = figures.items;  // the bytes have another process's pointer
  std::memcpy(&figures, bytes.data(), bytes.size());
  figures.items = items;
  return figures;
}

}  // namespace trireme::inline v0::train
