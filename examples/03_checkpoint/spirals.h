// The data of both programs.
#pragma once

#include <torch/torch.h>

#include <cmath>

constexpr int kSamples = 58;  // 4 batches of 12 and a short one of 10 in every epoch

// Two interleaved spirals; sample i is a function of i.
struct Spirals : torch::data::datasets::Dataset<Spirals> {
  torch::data::Example<> get(std::size_t index) override {
    const double turn = 0.1 * static_cast<double>(index / 2), side = index % 2 == 0 ? 1 : -1;
    return {torch::tensor({side * turn * std::cos(turn), side * turn * std::sin(turn)})
                .to(torch::kFloat),
            torch::tensor(static_cast<std::int64_t>(index % 2))};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
};
