// Parser of the text form of a schedule.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "trireme/base/refuse.h"
#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {
namespace {

// The largest number in a file: a larger one is a typing error and would cost memory.
constexpr unsigned kLargest = 9999;

bool take_number(std::string_view& text, int& value) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number > kLargest) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  value = static_cast<int>(number);
  return true;
}

// Takes one pass from the front of `text`: letters, stage, a dot, micro-batch.
std::optional<Action> take_pass(std::string_view& text) {
  std::size_t letters = 0;
  while (letters < text.size() && text[letters] >= 'A' && text[letters] <= 'Z') ++letters;
  Action action;
  int kind = 0;
  for (; kind < kActionKinds; ++kind) {
    action.kind = static_cast<ActionKind>(kind);
    if (letters_of(action.kind) == text.substr(0, letters)) break;
  }
  if (kind == kActionKinds) return std::nullopt;
  text.remove_prefix(letters);
  if (!take_number(text, action.stage) || text.empty() || text.front() != '.') return std::nullopt;
  text.remove_prefix(1);
  if (!take_number(text, action.microbatch)) return std::nullopt;
  return action;
}

std::optional<Action> action_of(std::string_view text) {
  std::optional<Action> action = take_pass(text);
  if (!action || text.empty()) return action;
  if (text.front() != '+' || action->kind != ActionKind::Forward) return std::nullopt;
  text.remove_prefix(1);
  const std::optional<Action> back = take_pass(text);
  if (!back || !text.empty() || back->kind != ActionKind::Backward) return std::nullopt;
  action->kind = ActionKind::ForwardBackward;
  action->backward_stage = back->stage;
  action->backward_microbatch = back->microbatch;
  return action;
}

struct Line {
  int number = 0;  // in the file, from 1
  std::string label;
  std::vector<std::string> cells;
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(" \t\r"), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

class ScheduleParser {
 public:
  ScheduleParser(std::string_view text, const std::string& where) : where_(where) { split(text); }

  Schedule schedule() {
    Schedule schedule;
    schedule.order.resize(lines_.size());
    for (std::size_t index = 0; index < lines_.size(); ++index) {
      const int rank = rank_of(index);
      if (lines_[index].cells.empty()) refuse_idle(index, rank);
      for (std::size_t i = 0; i < lines_[index].cells.size(); ++i) {
        const std::string& cell = lines_[index].cells[i];
        const std::optional<Action> action = action_of(cell);
        if (!action) {
          fail(
              index, i, "\"" + cell + "\" is no action",
              "Write F0.1 for the forward pass of micro-batch 1 through stage 0; B is its backward "
              "pass, I and W the two halves of that, F0.4+B7.1 two passes side by side; numbers go "
              "to " +
                  std::to_string(kLargest) + ".");
        }
        own(schedule, rank, index, i, action->stage);
        if (action->kind == ActionKind::ForwardBackward)
          own(schedule, rank, index, i, action->backward_stage);
        schedule.order[static_cast<std::size_t>(rank)].push_back(*action);
      }
    }
    check_stages(schedule);
    return schedule;
  }

 private:
  static constexpr int kNobody = -1;

  void split(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      line = line.substr(0, line.find('#'));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) {
        refuse("schedule", where_ + ":" + std::to_string(number) + ": a line without a rank",
               "Begin it with the rank: \"0: F0.0 F0.1 B0.0 B0.1\".");
      }
      const auto label = words_of(line.substr(0, colon));
      lines_.push_back(
          {number, label.size() == 1 ? label[0] : "", words_of(line.substr(colon + 1))});
    }
    if (lines_.empty()) {
      refuse("schedule", where_ + " holds no schedule",
             "Write a line a rank: \"0: F0.0 F0.1 B0.0 B0.1\".");
    }
  }

  // Ranks are 0 to n-1, each once.
  int rank_of(std::size_t index) {
    int rank = 0;
    std::string_view rest = lines_[index].label;
    const bool good =
        take_number(rest, rank) && rest.empty() && static_cast<std::size_t>(rank) < lines_.size();
    if (!good || !line_of_rank_.emplace(rank, index).second) {
      refuse("schedule",
             where_ + ":" + std::to_string(lines_[index].number) + ": \"" + lines_[index].label +
                 "\" is " + (good ? "there twice" : "no rank of " + std::to_string(lines_.size())),
             "Give one line to each rank, numbered from 0.");
    }
    return rank;
  }

  [[noreturn]] void refuse_idle(std::size_t index, int rank) const {
    refuse("schedule",
           where_ + ":" + std::to_string(lines_[index].number) + ": rank " + std::to_string(rank) +
               " has no action",
           "Give every rank the passes of at least one stage, or leave its line out.");
  }

  void own(Schedule& schedule, int rank, std::size_t index, std::size_t position, int stage) {
    const auto place = static_cast<std::size_t>(stage);
    if (place >= schedule.rank_of_stage.size()) schedule.rank_of_stage.resize(place + 1, kNobody);
    int& owner = schedule.rank_of_stage[place];
    if (owner == kNobody) owner = rank;
    if (owner != rank) {
      fail(index, position,
           "stage " + std::to_string(stage) + " is on rank " + std::to_string(owner) +
               " and on rank " + std::to_string(rank),
           "A stage's passes all stand in one rank's line.");
    }
  }

  void check_stages(const Schedule& schedule) const {
    const auto& owners = schedule.rank_of_stage;
    const auto hole = std::find(owners.begin(), owners.end(), kNobody);
    if (hole == owners.end()) return;
    refuse("schedule", where_ + " names no pass of stage " + std::to_string(hole - owners.begin()),
           "Number the stages from 0 without a gap.");
  }

  [[noreturn]] void fail(std::size_t index, std::size_t position, const std::string& what,
                         const std::string& advice) const {
    std::vector<std::string> labels;
    std::vector<std::vector<std::string>> rows;
    for (const Line& line : lines_) {
      labels.push_back(line.label + ":");
      rows.push_back(line.cells);
    }
    const std::string grid =
        grid_text(labels, std::move(rows), {static_cast<int>(index), position});
    refuse("schedule", where_ + ":" + std::to_string(lines_[index].number) + ": " + what,
           advice + grid);
  }

  std::string where_;
  std::vector<Line> lines_;
  std::map<int, std::size_t> line_of_rank_;
};

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& where) {
  return ScheduleParser(text, where).schedule();
}

}  // namespace trireme::inline v0::plan
