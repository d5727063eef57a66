// Token and position embedding in one pass; its backward adds rows in position order.
#include <cstring>
#include <string>

#include "trireme/base/error.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"

namespace trireme::inline v0::tensor {
namespace {

// Writes a row of T to `out` in fp32 or fp64.
template <class T>
void widen(const T* row, Stat<T>* out, std::size_t width) {
  if constexpr (kIsHalf<T>) {
    kernel::convert(row, out, width);
  } else {
    std::memcpy(out, row, width * sizeof(T));
  }
}

class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& tokens,
                            const at::Tensor& any_table,
                            const std::optional<at::Tensor>& any_position) {
    check_tokens(tokens, or_undefined(any_position));
    const at::Tensor ids = tokens.contiguous(), table = any_table.contiguous();
    at::Tensor position;
    if (any_position) {
      position = any_position->contiguous();
      TRIREME_CHECK(position.size(1) == table.size(1));
      TRIREME_CHECK(position.scalar_type() == table.scalar_type());
    }
    const std::int64_t length = ids.size(-1), width = table.size(1), vocab = table.size(0);
    const auto* id = data_of<std::int64_t>(ids);
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
      if (id[i] >= 0 && id[i] < vocab) continue;
      throw ConfigError(
          "token " + std::to_string(id[i]) + " is outside the vocabulary of " +
              std::to_string(vocab),
          {.operation = "embedding", .advice = "The tokenizer and model.vocab must agree."});
    }
    std::vector<std::int64_t> sizes = ids.sizes().vec();
    sizes.push_back(width);
    const at::Tensor out = empty(sizes, stat_type(table.scalar_type()));
    for_type(table.scalar_type(), [&]<class T>() {
      const auto columns = static_cast<std::size_t>(width);
      for (std::int64_t i = 0; i < ids.numel(); ++i) {
        Stat<T>* row = data_of<Stat<T>>(out) + i * width;
        widen(data_of<T>(table) + id[i] * width, row, columns);
        if (!position.defined()) continue;
        kernel::transformer<T>().add(row, data_of<T>(position) + (i % length) * width, row,
                                     columns);
      }
    });
    ctx->save_for_backward({ids});
    ctx->saved_data["table"] = table.sizes();
    ctx->saved_data["type"] = static_cast<std::int64_t>(table.scalar_type());
    ctx->saved_data["positions"] = position.defined() ? position.size(0) : std::int64_t{0};
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const at::Tensor ids = ctx->get_saved_variables()[0], dout = gradients[0].contiguous();
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    const auto positions = ctx->saved_data["positions"].toInt();
    const std::int64_t length = ids.size(-1), width = dout.size(-1);
    const at::Tensor dtable = at::zeros(ctx->saved_data["table"].toIntVector(), dout.options());
    const at::Tensor dposition =
        positions > 0 ? at::zeros({positions, width}, dout.options()) : at::Tensor();
    for_type(dout.scalar_type(), [&]<class S>() {
      const auto* id = data_of<std::int64_t>(ids);
      for (std::int64_t i = 0; i < ids.numel(); ++i) {
        const S* row = data_of<S>(dout) + i * width;
        const auto add_to = [&](const at::Tensor& sums, std::int64_t at) {
          S* sum = data_of<S>(sums) + at * width;
          if constexpr (!kIsHalf<S>)
            kernel::transformer<S>().add(sum, row, sum, static_cast<std::size_t>(width));
        };
        add_to(dtable, id[i]);
        if (positions > 0) add_to(dposition, i % length);
      }
    });
    return {Variable(), narrowed(dtable, type),
            positions > 0 ? narrowed(dposition, type) : Variable()};
  }
};

}  // namespace

void check_tokens(const at::Tensor& tokens, const at::Tensor& position) {
  const auto refuse = [](const std::string& what, const char* advice) {
    throw ConfigError(what, {.operation = "embedding", .advice = advice});
  };
  if (tokens.scalar_type() != at::kLong)
    refuse(std::string("the tokens have the type ") + c10::toString(tokens.scalar_type()),
           "Give the batch int64 tokens.");
  if (position.defined() && tokens.size(-1) > position.size(0))
    refuse("sequences of " + std::to_string(tokens.size(-1)) +
               " positions are longer than the model's " + std::to_string(position.size(0)),
           "Raise model.block.");
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                     const at::Tensor& position) {
  return by_kernels(table) ? EmbeddingFunction::apply(tokens, table, maybe(position))
                           : libtorch::embedding(tokens, table, position);
}

}  // namespace trireme::inline v0::tensor
