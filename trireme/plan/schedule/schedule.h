// A pipeline schedule as a value: the actions of each rank, in order. Schedules are printed, read
// back, checked (schedule_check.h), simulated (pipeline_simulator.h), drawn (show/) and executed.
//
// The model is a chain of stages; a rank owns one or several (chunks). A batch is cut into
// micro-batches; each goes forward through all stages and back. Generators write what is computed;
// with_transfers() adds the sends and receives. Plain values; thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::plan {

/// An action of a rank. In text, F0.1 is the forward pass of micro-batch 1 through stage 0.
enum class ActionKind : std::uint8_t {
  Forward,          // F   inputs of the stage -> its outputs, activations are kept
  Backward,         // B   gradient of the outputs -> of the inputs and of the weights
  BackwardInput,    // I   ... of the inputs alone ("B" in the Zero Bubble papers)
  BackwardWeight,   // W   ... of the weights alone, any time after I
  ForwardBackward,  // F0.4+B7.1   a forward and a whole backward pass, interleaved (DualPipe)
  SendActivation,   // SA  starts to send the stage's outputs to the next stage; returns
  RecvActivation,   // RA  waits for the stage's inputs
  SendGradient,     // SG  starts to send the gradient of the stage's inputs to the stage before
  RecvGradient,     // RG  waits for the gradient of the stage's outputs
  Recompute,        // RC  repeats a forward pass whose activations were not kept
};
inline constexpr int kActionKinds = 10;

struct Action {
  ActionKind kind = ActionKind::Forward;
  int stage = 0, microbatch = 0;
  // Only for a ForwardBackward: its backward pass. 0 for other kinds.
  int backward_stage = 0, backward_microbatch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

struct Schedule {
  std::vector<int> rank_of_stage;
  std::vector<std::vector<Action>> order;  // of each rank

  int stages() const noexcept { return static_cast<int>(rank_of_stage.size()); }
  int ranks() const noexcept { return static_cast<int>(order.size()); }
  /// One more than the largest micro-batch number.
  int microbatches() const noexcept;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// True if the action includes a pass of that direction. A ForwardBackward is both, W is neither.
bool goes_forward(ActionKind kind) noexcept;
bool goes_backward(ActionKind kind) noexcept;
/// True for actions that compute weight gradients: B, W, F+B.
bool adds_gradient(ActionKind kind) noexcept;
/// True for F, B, I, W, F+B, which occupy the device. (A Recompute does, too.)
bool is_pass(ActionKind kind) noexcept;
bool is_transfer(ActionKind kind) noexcept;

/// Calls visit(pass) for both passes of a ForwardBackward, F first, or once for another action.
template <class Visit>
void each_pass(const Action& action, Visit visit) {
  if (action.kind != ActionKind::ForwardBackward) return visit(action);
  visit(Action{ActionKind::Forward, action.stage, action.microbatch});
  visit(Action{ActionKind::Backward, action.backward_stage, action.backward_microbatch});
}

/// "F", "SA"; for a ForwardBackward "F".
std::string_view letters_of(ActionKind kind) noexcept;
/// "F0.1", "F0.4+B7.1", "RA3.0".
std::string text_of(const Action& action);
/// One line per rank, in order: "0: F0.0 F0.1 B0.0 B0.1". parse_schedule reads it back.
std::string text_of(const Schedule& schedule);

/// Reads the form of text_of(). `#` begins a comment, ranks may come in any order, blank lines are
/// skipped. A stage belongs to the rank that names it, and every rank names at least one.
/// ConfigError with `where` (a file's name), the line, and the grid with the cell marked.
Schedule parse_schedule(std::string_view text, const std::string& where = "schedule");

/// A marked cell of the grid: an existing action or, with `missing`, one that should precede it.
struct Mark {
  int rank = 0;
  std::size_t position = 0;
  std::string missing = {};
};
/// The columns around the mark, all ranks: ">F0.1<" marks an action, ">W0.1?<" a missing one.
std::string grid_text(const Schedule& schedule, const Mark& mark);
/// grid_text() for the cells of the ranks' `rows`; `labels` stand before them.
std::string grid_text(const std::vector<std::string>& labels,
                      std::vector<std::vector<std::string>> rows, const Mark& mark);

}  // namespace trireme::inline v0::plan
