// PassGraphs: forward and backward of a micro-batch as one graph of the device
// (tensor/devices/device_graph.h), recorded once for each form of micro-batch: the sizes and types
// of its fields, and the gradient at its loss. The first micro-batch of a form runs as usual: the
// set-up of libraries cannot be recorded. Dropout draws new masks in each replay; all other values
// from the host, such as the micro-batch's index, stay as recorded. A form keeps a set of
// gradients, so only the few forms that were used last have a graph.
//
// Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/tensor/batch.h"
#include "trireme/tensor/devices/device_graph.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {

class PassGraphs {
 public:
  /// In memory of the graph: valid, in the order of the current stream, until the next run().
  struct Result {
    at::Tensor loss;
    std::vector<std::pair<std::size_t, at::Tensor>> gradients;  // by leaf, as autograd gave them
  };
  using Passes = std::function<Result(const MicroBatch& micro)>;

  explicit PassGraphs(at::Device device) : device_(device) {}

  /// Runs both passes of `micro`. Null: run them as usual. `passes` is called to record them.
  /// Throws ConfigError if they cannot be recorded.
  const Result* run(const MicroBatch& micro, std::int64_t step, double loss_gradient,
                    const Passes& passes);
  std::int64_t recorded() const noexcept { return recorded_; }
  std::int64_t replayed() const noexcept { return replayed_; }

 private:
  struct Form {
    explicit Form(at::Device device) : streams(device) {}
    MicroBatch input;
    tensor::RecordedStreams streams;
    Result result;
    std::unique_ptr<tensor::DeviceGraph> graph;  // destroyed before what it uses
    std::int64_t used = 0;
  };
  void record(Form& form, const MicroBatch& micro, const Passes& passes) const;
  void make_room();

  const at::Device device_;
  std::map<std::string, std::unique_ptr<Form>> forms_;  // null: it has run as usual
  std::int64_t recorded_ = 0, replayed_ = 0;
};

}  // namespace trireme::inline v0::parallel
