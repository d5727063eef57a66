#include "trireme/show/collective/cost.h"

#include "trireme/base/words.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

std::string coefficient(double value) {
  std::string text = fixed(value, 2);
  if (text.ends_with(".00")) text.resize(text.size() - 3);
  return text;
}

}  // namespace

plan::CostShape shape_of(const Recording& recording) {
  if (is_direct(recording.kind, recording.algorithm)) return {.rounds = recording.rounds()};
  const auto* entry = comm::find_algorithm(recording.kind, recording.algorithm);
  plan::CostShape shape =
      comm::shape_of(*entry, recording.ranks, leaves_of(recording.kind, recording.ranks),
                     recording.root, recording.host_of_rank);
  // The routes' buffer has a chunk for every pair of ranks, but S is one rank's buffer.
  if (recording.kind == comm::OpKind::AllToAll) shape.sent *= recording.ranks;
  return shape;
}

std::string formula_of(const plan::CostShape& shape) {
  std::string text = coefficient(shape.messages) + " α + " + coefficient(shape.sent) + " S β";
  if (shape.added > 0) text += " + " + coefficient(shape.added) + " S γ";
  return text;
}

std::string rate_text(double per_byte) {
  double rate = 1e-6 / per_byte;
  const char* unit = "MB/s";
  for (const char* larger : {"GB/s", "TB/s"}) {
    if (rate < 999.5) break;
    rate /= 1000;
    unit = larger;
  }
  return formatted("%.3g ", rate) + unit;
}

}  // namespace trireme::inline v0::show
