#include "trireme/sync/compression/compressor.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/parse_number.h"
#include "trireme/comm/choice/tune.h"
#include "trireme/comm/collectives.h"
#include "trireme/sync/compression/lossy_compressor.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

struct Spec {
  std::string_view name, argument;
};

Spec split(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  if (colon == std::string_view::npos) return {spec, {}};
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

[[noreturn]] void refuse_spec(std::string_view spec, const std::string& why) {
  throw ConfigError("comm.compression = \"" + std::string(spec) + "\": " + why,
                    {.operation = "config",
                     .label = "comm.compression",
                     .advice = "Use none, auto, bf16, f16, topk:0.01, randomk:0.01, powersgd:4 or "
                               "onebit."});
}

double share_of(std::string_view spec, std::string_view argument) {
  const auto share = parse_number<double>(argument);
  if (!(share > 0.0 && share <= 1.0))
    refuse_spec(spec, "the share of elements must be a number above 0 and at most 1");
  return *share;
}

struct PowerSpec {
  int rank = 0;
  std::int64_t exact_steps = 1000;  // PyTorch's powerSGD_hook: start_powerSGD_iter
};

// "4", which is "4,1000", or "4,0".
PowerSpec power_of(std::string_view spec, std::string_view argument) {
  const std::size_t comma = argument.find(',');
  const auto rank = parse_number<int>(argument.substr(0, comma));
  const auto exact = comma == argument.npos
                         ? std::optional(PowerSpec().exact_steps)
                         : parse_number<std::int64_t>(argument.substr(comma + 1));
  if (!rank || *rank < 1 || *rank > 64 || !exact || *exact < 0)
    refuse_spec(spec,
                "the rank must be an integer from 1 to 64, after it (,STEPS) the exact steps");
  return {*rank, *exact};
}

// bf16 pays if half the bytes save more time than the two conversions cost. Measured on a bucket of
// usual size; the same answer on all ranks, since comm::measure gives them the same numbers.
bool half_the_bytes_pay(comm::Communicator& world, const std::vector<BucketShape>& buckets) {
  const auto largest = std::ranges::max_element(buckets, {}, &BucketShape::count);
  if (largest == buckets.end() || largest->count == 0) return false;
  const auto budget = std::chrono::milliseconds(20);
  const at::Tensor full = at::zeros({largest->count}, floats_on(largest->device)),
                   half = full.to(at::kBFloat16);
  const auto time = [&](const at::Tensor& tensor, bool convert) {
    return comm::measure(world, budget, [&] {
      if (convert) half.copy_(full);
      world.all_reduce(tensor::to_buffer(tensor), ReduceOp::Sum, {.label = "compression"}).wait();
      if (convert) full.copy_(half);
    });
  };
  const double plain = time(full, false);
  return time(half, true) < 0.9 * plain;
}

}  // namespace

void Compressor::finish() {
  while (!open_.empty()) {
    const std::vector<Open> round = std::exchange(open_, {});
    for (const Open& one : round) {
      one.work.wait();
      one.then();
    }
  }
  ++steps_;
}

void check_compression(std::string_view spec) {
  const auto [name, argument] = split(spec);
  if (name == "topk" || name == "randomk") return void(share_of(spec, argument));
  if (name == "powersgd") return void(power_of(spec, argument));
  if (!argument.empty()) refuse_spec(spec, std::string(name) + " takes no argument");
  for (const char* known : {"none", "auto", "bf16", "f16", "onebit"}) {
    if (name == known) return;
  }
  refuse_spec(spec, "not known");
}

std::string_view kind_of_compression(std::string_view spec) { return split(spec).name; }

bool keeps_residual(std::string_view spec) {
  const std::string_view name = kind_of_compression(spec);
  return name == "topk" || name == "randomk" || name == "powersgd" || name == "onebit";
}

std::unique_ptr<Compressor> make_compressor(std::string_view spec, comm::Communicator& world,
                                            std::vector<BucketShape> buckets, std::uint64_t seed) {
  check_compression(spec);
  const auto [name, argument] = split(spec);
  if (name == "none" || world.size() == 1) return nullptr;  // alone, nothing crosses a wire
  if (name == "bf16") return make_cast_compressor(world, DType::BF16, std::move(buckets));
  if (name == "f16") return make_cast_compressor(world, DType::F16, std::move(buckets));
  if (name == "onebit") return make_one_bit_compressor(world, std::move(buckets));
  if (name == "topk") {
    return make_top_k_compressor(world, share_of(spec, argument), std::move(buckets));
  }
  if (name == "randomk") {
    return make_random_k_compressor(world, share_of(spec, argument), seed, std::move(buckets));
  }
  if (name == "powersgd") {
    const PowerSpec power = power_of(spec, argument);
    return make_power_compressor(world, power.rank, power.exact_steps, seed, std::move(buckets));
  }
  if (!half_the_bytes_pay(world, buckets)) return nullptr;
  return make_cast_compressor(world, DType::BF16, std::move(buckets));
}

}  // namespace trireme::inline v0::parallel
