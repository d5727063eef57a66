#include "trireme/strategy/lane_runner.h"

#include <ATen/ops/full_like.h>

#include "trireme/base/error.h"
#include "trireme/strategy/served.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/loss_gradient.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {

LaneRunner::LaneRunner(const StrategySetup& setup, const models::Blocks& model, ModelPart& whole)
    : setup_(setup), model_(model), whole_(whole) {
  if (setup.options.lanes > 1) note_ = why_one_lane();
}

std::string LaneRunner::why_one_lane() const {
  if (setup_.grid.pipeline != nullptr) return "a rank of a pipeline runs one pass at a time";
  if (setup_.grid.layer != nullptr)
    return "ranks that share a layer go through it together, one micro-batch at a time";
  if (setup_.plan.assignment.members > 1)
    return "under " + setup_.plan.sync + " the ranks compute one micro-batch each at a time";
  for (const auto& [name, buffer] : whole_.store.buffers())
    if (!whole_.statistics.covers(buffer) && !whole_.store.is_frozen(name))
      return "micro-batches must change the buffer \"" + name + "\" one after the other";
  if (!embeddings_in(whole_.blocks).empty())
    return "rows of embeddings come from servers for one micro-batch at a time";
  if (setup_.env.world->transport_name() == "sim") return "simulated ranks are threads already";
  return {};
}

bool LaneRunner::start(std::size_t count) {
  has_run_ = true;
  if (setup_.options.lanes == 1 || !note_.empty()) return false;
  if (const std::string& block = whole_.blocks.drawing_block(); !lanes_ && !block.empty()) {
    note_ = "block \"" + block +
            "\" draws from LibTorch's default generator, one for the whole process";
    return false;
  }
  if (count < 2) return false;
  if (!lanes_) make_lanes();
  return true;
}

void LaneRunner::make_lanes() {
  std::vector<at::Tensor> frozen;
  for (const auto& [name, buffer] : whole_.store.buffers())
    if (whole_.store.is_frozen(name)) frozen.push_back(buffer);
  lanes_ = std::make_unique<Lanes>(
      model_, setup_.options.seed, whole_.store.leaves(),
      LanesOptions{.count = setup_.options.lanes,
                   .recompute = memory::parse_recompute(setup_.options.recompute),
                   .offload_activations = setup_.options.offload_activations,
                   .frozen = std::move(frozen)},
      setup_.env.world->waiter());
  for (int lane = 0; lane < lanes_->count(); ++lane)
    statistics_[&lanes_->stage(lane)] = std::make_unique<BatchStatistics>(lanes_->stage(lane));
}

void LaneRunner::train(const Share& share, std::int64_t step, const StageRunner::SumLoss& loss,
                       const std::function<double(std::int64_t)>& loss_gradient, GradientFeed& feed,
                       ScalarTree& losses, LocalVote& vote) {
  const auto& micros = share.micros;
  const std::uint64_t position =
      tensor::default_generator_position(tensor::at_device(setup_.options.device));
  std::vector<std::vector<double>> pairs(micros.size());
  const auto compute = [&](Stage& blocks, std::size_t task) {
    const at::Tensor sum = checked_loss(loss(blocks.forward(micros[task], step), micros[task]));
    const double gradient = loss_gradient(micros[task].count);
    const tensor::LossGradientScope scope(gradient);
    sum.backward(at::full_like(sum, gradient));
    pairs[task] = statistics_.at(&blocks)->take();
    return sum.item<double>();
  };
  const Lanes::Sink sink = {
      .begin =
          [&](std::size_t task) {
            feed.begin(share.leaves[task], 1 / loss_gradient(micros[task].count));
          },
      .gradient = [&](std::size_t leaf,
                      at::Tensor gradient) { feed.take(leaf, std::move(gradient)); },
      .end =
          [&](std::size_t task, double value, const std::exception_ptr& error) {
            if (error) {
              vote.refuse(describe(tensor::explained(error)));
            } else {
              vote.check_loss(micros[task].index, value);
              vote.count += micros[task].count;
              whole_.statistics.capture(pairs[task]);
            }
            feed.end(error ? 0 : micros[task].count);
            losses.add(value);
          }};
  const observe::TracedScope span(setup_.env.trace.get(), *setup_.env.world->waiter(), "lanes");
  lanes_->run(micros.size(), compute, sink);
  if (position != tensor::default_generator_position(tensor::at_device(setup_.options.device)))
    vote.refuse(20,
                "LibTorch's default generator was drawn from while lanes computed, so the numbers "
                "depend on their timing",
                "Set train.lanes = 1.");
}

}  // namespace trireme::inline v0::parallel
