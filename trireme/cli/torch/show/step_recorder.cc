#include "trireme/cli/torch/show/step_recorder.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

using Kind = show::StepSpan::Kind;

constexpr Duration kForward = std::chrono::milliseconds(1), kBackward = 2 * kForward;

// A block that reports its passes to the recorder.
class TimedBlock final : public models::Block {
 public:
  TimedBlock(std::shared_ptr<models::Block> inner, int number, RankRecorder& recorder)
      : inner_(std::move(inner)), number_(std::to_string(number)), recorder_(recorder) {}
  models::Value forward(std::span<const models::Value> inputs) override {
    recorder_.pass("F" + number_, Kind::Forward, kForward);
    models::Value value = inner_->forward(inputs);
    if (value[0].requires_grad()) value[0] = recorder_.timed(value[0], "B" + number_, kBackward);
    return value;
  }
  std::vector<models::NamedTensor> parameters() override { return inner_->parameters(); }
  std::vector<models::NamedTensor> buffers() override { return inner_->buffers(); }
  void train(bool on) override { inner_->train(on); }

 private:
  const std::shared_ptr<models::Block> inner_;
  const std::string number_;
  RankRecorder& recorder_;
};

// Names of the phases of a call; the span of the whole call covers them.
bool is_part(std::string_view name) {
  return name == "waiting for peers" || name == "transferring" || name == "reducing" ||
         name == "queued" || name == "waiting for the peer";
}

// Puts overlapping spans into separate lanes.
void place(show::StepSpan span, const std::string& name, std::vector<show::StepLane>& lanes) {
  for (show::StepLane& lane : lanes) {
    if (lane.name == name && (lane.spans.empty() || lane.spans.back().end <= span.begin)) {
      lane.spans.push_back(std::move(span));
      return;
    }
  }
  lanes.push_back({name, {std::move(span)}});
}

}  // namespace

void check_ranks(int ranks) { show::check_range("ranks", ranks, 2, 8); }

void RankRecorder::start() {
  begin = waiter->now();
  passes_.clear();
}

void RankRecorder::stop() { end = waiter->now(); }

void RankRecorder::pass(std::string name, Kind kind, Duration cost) {
  const TimePoint from = waiter->now();
  waiter->sleep(cost);
  passes_.push_back({std::move(name), kind, from, waiter->now()});
}

at::Tensor RankRecorder::timed(const at::Tensor& x, std::string name, Duration cost) {
  const at::Tensor y = x.view_as(x);
  y.register_hook([this, name = std::move(name), cost](const at::Tensor& gradient) {
    pass(name, Kind::Backward, cost);
    return gradient;
  });
  return y;
}

std::vector<show::StepLane> RankRecorder::lanes(TimePoint origin) const {
  std::vector<show::StepLane> computes = {{"computes", {}}}, lanes;
  for (const Pass& pass : passes_)
    computes[0].spans.push_back(
        {pass.kind, pass.name, to_seconds(pass.begin - origin), to_seconds(pass.end - origin)});
  const observe::RankTrace traced = trace->collect();
  for (const observe::TraceSpan& span : traced.spans) {
    const TimePoint from{Duration(span.begin)}, to{Duration(span.end)};
    const std::string &name = traced.names[span.name], &lane = traced.lanes[span.lane].first;
    if (from < begin || from >= end || is_part(name)) continue;
    show::StepSpan shown{Kind::Transfer, name, to_seconds(from - origin), to_seconds(to - origin),
                         span.bytes};
    std::replace(shown.name.begin(), shown.name.end(), '_', '-');
    if (lane == "compute" && name == "optimizer") {
      shown.kind = Kind::Update;
      shown.name = "update";
      computes[0].spans.push_back(shown);
    } else if (lane.starts_with("communication ") || lane.starts_with("messages ")) {
      place(std::move(shown), lane.substr(lane.find(' ') + 1), lanes);
    }
  }
  lanes.insert(lanes.begin(), std::move(computes[0]));
  return lanes;
}

show::StepTimeline record_timeline(
    int ranks, std::string about,
    const std::function<void(comm::SimulatedRank&, RankRecorder&)>& body) {
  std::vector<RankRecorder> recorders(static_cast<std::size_t>(ranks));
  comm::SimulationOptions simulation;
  simulation.network.alpha = std::chrono::microseconds(50);
  simulation.network.bytes_per_second = 1e8;
  simulation.network.jitter = Duration(0);
  simulation.network.shared_memory = false;
  simulation.network.one_link = true;
  simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    RankRecorder& recorder = recorders[static_cast<std::size_t>(rank.rank)];
    recorder.waiter = rank.waiter;
    world.trace = recorder.trace;
  };
  comm::simulate(ranks, simulation, [&](comm::SimulatedRank& rank) {
    body(rank, recorders[static_cast<std::size_t>(rank.rank)]);
  });
  TimePoint origin = TimePoint::max();
  for (const RankRecorder& recorder : recorders) origin = std::min(origin, recorder.begin);
  show::StepTimeline timeline{.about = std::move(about)};
  for (const RankRecorder& recorder : recorders) timeline.ranks.push_back(recorder.lanes(origin));
  return timeline;
}

models::Blocks timed_blocks(const models::Blocks& model, RankRecorder& recorder) {
  models::Blocks timed;
  int number = 0;
  for (models::BlockSpec spec : model.specs()) {
    spec.make = [make = spec.make, name = spec.name, number, &recorder] {
      const auto block = make();
      for (models::NamedTensor one : block->parameters()) {
        one.name = name + "." + one.name;
        recorder.parameters.push_back(std::move(one));
      }
      return std::make_shared<TimedBlock>(block, number, recorder);
    };
    timed.add_block(std::move(spec));
    ++number;
  }
  return timed;
}

}  // namespace trireme::inline v0::cli
