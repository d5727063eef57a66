#include "trireme/optim/optimizer.h"

#include <algorithm>

#include "trireme/optim/slice_optimizer.h"

namespace trireme::inline v0::optim {
namespace {

template <class... Case>
struct Overloaded : Case... {
  using Case::operator()...;
};
template <class... Case>
Overloaded(Case...) -> Overloaded<Case...>;

template <class T>
void append_chunks(const OwnedSlice& slice, std::vector<double>& out) {
  const T* gradient = static_cast<const T*>(slice.gradient);
  const auto count = static_cast<std::size_t>(slice.size());
  for (std::size_t begin = 0; begin < count; begin += kernel::kNormChunk) {
    out.push_back(
        kernel::chunk_square_sum(gradient + begin, std::min(kernel::kNormChunk, count - begin)));
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  return std::visit(Overloaded{[](const AdamW& own) { return make_adamw(own); },
                               [](const Sgd& own) { return make_sgd(own); },
                               [](const Lamb& own) { return make_lamb(own); },
                               [](const Adafactor& own) { return make_adafactor(own); },
                               [](const Lion& own) { return make_lion(own); }},
                    options);
}

double learning_rate_of(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.learning_rate; }, options);
}

int moments_per_element(const OptimizerOptions& options) {
  return std::visit(Overloaded{[](const AdamW&) { return 2; },
                               [](const Sgd& own) { return own.momentum != 0 ? 1 : 0; },
                               [](const Lamb&) { return 2; }, [](const Adafactor&) { return 0; },
                               [](const Lion&) { return 1; }},
                    options);
}

void chunk_squares(const OwnedSlice& slice, std::vector<double>& out) {
  if (slice.master_dtype == DType::F64) {
    append_chunks<double>(slice, out);
  } else {
    append_chunks<float>(slice, out);
  }
}

}  // namespace trireme::inline v0::optim
