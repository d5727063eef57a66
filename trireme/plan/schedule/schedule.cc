#include "trireme/plan/schedule/schedule.h"

#include <algorithm>
#include <array>

namespace trireme::inline v0::plan {
namespace {

// The columns that a terminal can show on each side of the marked one.
constexpr std::size_t kBefore = 6, kAfter = 5;

}  // namespace

std::string_view letters_of(ActionKind kind) noexcept {
  constexpr std::array<std::string_view, kActionKinds> kLetters = {"F",  "B",  "I",  "W",  "F",
                                                                   "SA", "RA", "SG", "RG", "RC"};
  return kLetters[static_cast<std::size_t>(kind)];
}

int Schedule::microbatches() const noexcept {
  int count = 0;
  for (const auto& actions : order)
    for (const Action& action : actions)
      count = std::max({count, action.microbatch + 1, action.backward_microbatch + 1});
  return count;
}

bool goes_forward(ActionKind kind) noexcept {
  return kind == ActionKind::Forward || kind == ActionKind::ForwardBackward;
}
bool goes_backward(ActionKind kind) noexcept {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardInput ||
         kind == ActionKind::ForwardBackward;
}
bool adds_gradient(ActionKind kind) noexcept {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardWeight ||
         kind == ActionKind::ForwardBackward;
}
bool is_pass(ActionKind kind) noexcept { return kind <= ActionKind::ForwardBackward; }
bool is_transfer(ActionKind kind) noexcept {
  return kind >= ActionKind::SendActivation && kind <= ActionKind::RecvGradient;
}

std::string text_of(const Action& action) {
  std::string text;
  each_pass(action, [&](const Action& pass) {
    if (!text.empty()) text += "+";
    text += std::string(letters_of(pass.kind)) + std::to_string(pass.stage) + "." +
            std::to_string(pass.microbatch);
  });
  return text;
}

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    text += std::to_string(rank) + ":";
    for (const Action& action : schedule.order[static_cast<std::size_t>(rank)])
      text += " " + text_of(action);
    text += "\n";
  }
  return text;
}

std::string grid_text(const std::vector<std::string>& labels,
                      std::vector<std::vector<std::string>> rows, const Mark& mark) {
  auto& marked = rows[static_cast<std::size_t>(mark.rank)];
  const std::size_t at = std::min(mark.position, marked.size());
  if (!mark.missing.empty())
    marked.insert(marked.begin() + static_cast<std::ptrdiff_t>(at), mark.missing + "?");
  if (at < marked.size()) marked[at] = ">" + marked[at] + "<";
  std::size_t end = 0, label_width = 0;
  for (const auto& row : rows) end = std::max(end, row.size());
  for (const std::string& label : labels) label_width = std::max(label_width, label.size());
  const std::size_t first = at > kBefore ? at - kBefore : 0;
  const std::size_t last = std::min(end, at + kAfter + 1);
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line = labels[r] + std::string(label_width - labels[r].size(), ' ');
    if (first > 0) line += " ...";
    for (std::size_t column = first; column < last; ++column) {
      std::size_t width = 0;
      for (const auto& row : rows)
        width = std::max(width, column < row.size() ? row[column].size() : 0);
      std::string cell = column < rows[r].size() ? rows[r][column] : "";
      cell.resize(width, ' ');
      line += " " + cell;
    }
    if (last < rows[r].size()) line += " ...";
    line.erase(line.find_last_not_of(' ') + 1);
    text += "\n  " + line;
  }
  return text;
}

std::string grid_text(const Schedule& schedule, const Mark& mark) {
  std::vector<std::string> labels;
  std::vector<std::vector<std::string>> rows;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    labels.push_back(std::to_string(rank) + ":");
    rows.emplace_back();
    for (const Action& action : schedule.order[static_cast<std::size_t>(rank)])
      rows.back().push_back(text_of(action));
  }
  return grid_text(labels, std::move(rows), mark);
}

}  // namespace trireme::inline v0::plan
