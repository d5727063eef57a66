#include "trireme/train/report/last_step.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace trireme::inline v0::train {

using observe::StepFigures;

std::optional<StepFigures> last_step(comm::Communicator& world, bool lacks, long step,
                                     const std::optional<StepFigures>& own) {
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
