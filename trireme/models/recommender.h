// Models for click data, from a sample's numbers and categories to the logit of its probability.
// The rows of the categories are on parameter servers (server_embedding.h).
//
// DLRM (Naumov et al. 2019, arXiv:1906.00091): a bottom MLP makes a row of the numbers; the dot
// products of all pairs of rows, and that row, go through a top MLP. Blocks "bottom.0" ...,
// "embeddings", "interaction", "top.0" ..., "logit".
//
// Wide & deep (Cheng et al. 2016, arXiv:1606.07792): an MLP over all categories' rows and the
// numbers, plus a linear model of both. Blocks "embeddings", "columns", "deep.0" ..., "wide",
// "wide_numbers.0", "logit".
//
// They read the batch fields "numbers" [b, numbers] (float) and "categories" [b, categories] (int64
// ids; all columns share one table, so ids of different columns differ); the output is [b].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

struct RecommenderConfig {
  std::int64_t numbers = 13, categories = 26;  // columns: Criteo's
  std::int64_t width = 16;                     // of a category's row
  std::vector<std::int64_t> bottom = {64};     // DLRM: hidden widths below the interaction
  std::vector<std::int64_t> top = {64, 32};    // hidden widths above it, or of the deep part
  double bound = 0.05;                         // rows begin uniform in [-bound, bound]
  std::int64_t max_rows = 0;                   // 0: no limit
  std::string precision = "fp32";              // of the MLPs; rows are fp32
  std::uint64_t seed = 1;
};

/// ConfigError if a number is below 1.
Blocks make_dlrm(const RecommenderConfig& config);
Blocks make_wide_and_deep(const RecommenderConfig& config);

}  // namespace models
using models::RecommenderConfig;
}  // namespace trireme::inline v0
