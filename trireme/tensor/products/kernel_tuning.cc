#include "trireme/tensor/products/kernel_tuning.h"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

constexpr double kMargin = 1.03;

struct ProductShape {
  std::int64_t rows, in, out;
};
constexpr ProductShape kLinear[] = {{1024, 384, 1536}, {512, 768, 768}};
constexpr ProductShape kSmall[] = {{32, 32, 96}, {128, 64, 256}};
constexpr ProductShape kHead[] = {{64, 64, 256}, {64, 256, 64}};  // scores; weighted values

struct Task {
  double flops;
  std::function<void()> run;
};
using Tasks = std::vector<Task>;

double flops(const ProductShape& shape) {
  return 2.0 * static_cast<double>(shape.rows * shape.in * shape.out);
}

at::Tensor matrix(std::int64_t rows, std::int64_t columns,
                  at::ScalarType type = at::ScalarType::Float) {
  return at::ones({rows, columns}, at::TensorOptions().dtype(type));
}

Tasks linear_tasks(Library KernelTable::*column) {
  const bool small = column == &KernelTable::small || column == &KernelTable::small_bf16;
  const bool in_bf16 = column == &KernelTable::linear_bf16 || column == &KernelTable::small_bf16;
  const bool every = small || in_bf16;  // the column is for all three products
  const at::ScalarType type = in_bf16 ? at::kBFloat16 : at::kFloat;
  Tasks tasks;
  for (const ProductShape& shape : small ? std::span(kSmall) : std::span(kLinear)) {
    const at::Tensor x = matrix(shape.rows, shape.in, type),
                     dy = matrix(shape.rows, shape.out, type),
                     weight = matrix(shape.out, shape.in, type);
    if (every || column == &KernelTable::forward)
      tasks.push_back({flops(shape), [=] { linear_forward(x, weight, {}); }});
    if (every || column == &KernelTable::input_gradient)
      tasks.push_back({flops(shape), [=] { linear_input_gradient(dy, weight); }});
    if (every || column == &KernelTable::weight_gradient)
      tasks.push_back({flops(shape), [=] { linear_weight_gradient(dy, x); }});
  }
  return tasks;
}

// As in attention, the second operand is transposed in the first shape and plain in the second.
template <class T>
Tasks head_tasks(at::ScalarType type) {
  Tasks tasks;
  for (const ProductShape& shape : kHead) {
    const bool scores = shape.out > shape.in;
    const at::Tensor a = matrix(shape.rows, shape.in, type), c = matrix(shape.rows, shape.out);
    const at::Tensor b =
        scores ? matrix(shape.out, shape.in, type) : matrix(shape.in, shape.out, type);
    tasks.push_back({flops(shape), [=] {
                       gemm(Gemm<T>{shape.rows, shape.out, shape.in,
                                    Operand<T>{static_cast<const T*>(a.const_data_ptr()), shape.in},
                                    Operand<T>{static_cast<const T*>(b.const_data_ptr()), b.size(1),
                                               scores ? Form::Transposed : Form::Plain},
                                    c.data_ptr<float>(), shape.out});
                     }});
  }
  return tasks;
}

Tasks tasks_of(Library KernelTable::*column) {
  if (column == &KernelTable::attention) return head_tasks<float>(at::kFloat);
  if (column == &KernelTable::attention_bf16) return head_tasks<BFloat16>(at::kBFloat16);
  return linear_tasks(column);
}

// The best time of at least three runs, and of all that fit into `each`.
double best_seconds(const Task& task, Duration each, const Waiter& clock) {
  double best = 1e30;
  const TimePoint end = clock.now() + each;
  for (int run = 0; run < 3 || clock.now() < end; ++run) {
    const TimePoint start = clock.now();
    task.run();
    best = std::min(best, to_seconds(clock.now() - start));
  }
  return best;
}

// Gives the process its table back, also if a library refuses a product.
struct TableRestored {
  const KernelTable own = kernel_table();
  ~TableRestored() { use_kernel_table(own); }
};

}  // namespace

std::vector<MeasuredProduct> measure_products(Duration each) {
  const TableRestored restored;
  const auto clock = RealWaiter::make();
  std::vector<MeasuredProduct> measured;
  for (const KernelColumn& column : kernel_columns()) {
    const Tasks tasks = tasks_of(column.member);
    for (const Library library : column.choices) {
      KernelTable table = restored.own;
      table.*column.member = library;
      if (!usable(table)) continue;
      use_kernel_table(table);
      double logs = 0;
      for (const Task& task : tasks)
        logs += std::log(task.flops / best_seconds(task, each, *clock) * 1e-9);
      measured.push_back({column.name, column.member, library,
                          std::exp(logs / static_cast<double>(tasks.size()))});
    }
  }
  return measured;
}

KernelTable fastest(const std::vector<MeasuredProduct>& measured) {
  KernelTable table = kernel_table();
  for (const MeasuredProduct& kept : measured) {
    if (kept.library != kernel_table().*kept.column) continue;
    double best = kept.gflops * kMargin;
    for (const MeasuredProduct& other : measured) {
      if (other.column != kept.column || other.gflops <= best) continue;
      best = other.gflops;
      table.*kept.column = other.library;
    }
  }
  return table;
}

}  // namespace trireme::inline v0::tensor
