// A step, or a part of one, as it was recorded on simulated ranks: per rank what was computed and
// sent when, and tables of what the ranks hold. What `trireme show tensor`, `context`, `expert`,
// `zero1` and `overlap` draw (cli/ records them).
//
// Plain values and pure functions; times are seconds of the virtual clock; lines end with a
// newline.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace show {

struct StepSpan {
  enum class Kind { Forward, Backward, Transfer, Update };
  Kind kind = Kind::Forward;
  std::string name;  // "F0", "bucket 2"
  double begin = 0, end = 0;
  std::size_t bytes = 0;  // 0: not said
};

/// What one rank did in one respect ("computes", "world"), by begin.
struct StepLane {
  std::string name;
  std::vector<StepSpan> spans;
};

struct StepTimeline {
  std::string about;
  std::vector<std::vector<StepLane>> ranks;
  double end() const;
};

/// Rows of cells; a cell may belong to a rank, whose colour it gets (-1: to none).
struct StepTable {
  struct Cell {
    std::string text;
    int rank = -1;
  };
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::pair<std::string, std::vector<Cell>>> rows;
};

struct RecordedStep {
  std::string name, about;
  int ranks = 1;
  std::vector<StepTimeline> timelines;
  std::vector<StepTable> tables;
  std::vector<std::string> notes;
};

/// When spans begin, in all timelines, ascending, and the end.
std::vector<double> moments(const RecordedStep& step);
/// "1.5 ms: rank 0 F1, bucket 0; rank 1 nothing": what is under way at `time` in a timeline.
std::string moment_text(const StepTimeline& timeline, double time);
std::string text_of(const RecordedStep& step);
std::string json_of(const RecordedStep& step);
std::string svg_of(const RecordedStep& step);
std::string html_of(const RecordedStep& step);

}  // namespace show
}  // namespace v0
}  // namespace trireme
