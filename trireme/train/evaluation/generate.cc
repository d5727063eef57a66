#include "trireme/train/evaluation/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace trireme::inline v0::train {
namespace {

// Draws an index from softmax(logits / temperature) over the top k.
std::int32_t draw(std::vector<float>& logits, const GenerateOptions& options,
                  std::mt19937_64& random) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options.temperature <= 0) return order.front();
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));
  const double best = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> weight;
  for (const std::int32_t token : order) {
    const double logit = logits[static_cast<std::size_t>(token)];
    weight.push_back(std::exp((logit - best) / options.temperature));
  }
  const double sum = std::accumulate(weight.begin(), weight.end(), 0.0);
  double left = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

std::vector<float> next_logits(Strategy& strategy, std::vector<std::int64_t> context,
                               std::int64_t multiple) {
  const auto length = static_cast<std::int64_t>(context.size());
  context.resize(static_cast<std::size_t>((length + multiple - 1) / multiple * multiple));
  MicroBatch micro;
  micro.count = static_cast<std::int64_t>(context.size());
  const at::Tensor tokens = at::tensor(context, at::kLong).unsqueeze(0);
  micro.fields.emplace_back("tokens", tokens);
  const at::Tensor logits = strategy.infer(micro).front();  // [1, T, V]
  const at::Tensor last =
      logits.select(0, 0).select(0, length - 1).to(at::kCPU, at::kFloat).contiguous();
  // Tokens above 255 are not bytes.
  const std::int64_t bytes = std::min<std::int64_t>(last.numel(), 256);
  return {last.data_ptr<float>(), last.data_ptr<float>() + bytes};
}

}  // namespace

std::string generate(Strategy& strategy, std::int64_t block, std::string_view prompt,
                     const GenerateOptions& options, const std::function<void(char)>& emit) {
  // Tokens are bytes. An empty prompt becomes a newline, since the model needs a first one.
  std::vector<std::int64_t> context;
  for (const char c : prompt.empty() ? "\n" : prompt)
    context.push_back(static_cast<unsigned char>(c));
  std::mt19937_64 random(options.seed);
  std::string out;
  for (std::int64_t i = 0; i < options.bytes && !(options.ends && options.ends()); ++i) {
    if (static_cast<std::int64_t>(context.size()) > block)
      context.erase(context.begin(), context.end() - block);
    std::vector<float> logits = next_logits(strategy, context, options.multiple);
    const std::int32_t token = draw(logits, options, random);
    context.push_back(token);
    out += static_cast<char>(token);
    if (emit) emit(out.back());
  }
  return out;
}

}  // namespace trireme::inline v0::train
