// A training step, or a part of one, recorded on simulated ranks: when each rank computed and sent
// what, and tables of what the ranks hold. `trireme show tensor`, `context`, `expert`, `zero1` and
// `overlap` draw it (cli/torch/show records it).
//
// Plain values and pure functions; times are seconds of the virtual clock; lines end with a
// newline.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace trireme::inline v0::show {

struct StepSpan {
  enum class Kind { Forward, Backward, Transfer, Update };
  Kind kind = Kind::Forward;
  std::string name;  // "F0", "bucket 2"
  double begin = 0, end = 0;
  std::size_t bytes = 0;  // 0: not known
};

/// One kind of activity of one rank ("computes", "world"), sorted by begin.
struct StepLane {
  std::string name;
  std::vector<StepSpan> spans;
};

struct StepTimeline {
  std::string about;
  std::vector<std::vector<StepLane>> ranks;
  double end() const;
};

/// Rows of cells. A cell may belong to a rank and then has its colour (-1: none).
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

/// The times at which spans of any timeline begin, ascending, and the end.
std::vector<double> moments(const RecordedStep& step);
/// "1.5 ms: rank 0 F1, bucket 0; rank 1 nothing": the activity at `time` in a timeline.
std::string moment_text(const StepTimeline& timeline, double time);
std::string text_of(const RecordedStep& step);
std::string json_of(const RecordedStep& step);
std::string svg_of(const RecordedStep& step);
std::string html_of(const RecordedStep& step);

}  // namespace trireme::inline v0::show
