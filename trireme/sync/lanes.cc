#include "trireme/sync/lanes.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/AutogradState.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/sync/buckets/autograd_hooks.h"
#include "trireme/tensor/determinism.h"

namespace trireme::inline v0::parallel {
namespace {

// One micro-batch in flight: what its lane has produced and the caller has not taken yet.
struct Task {
  std::deque<std::pair<std::size_t, at::Tensor>> gradients;
  bool done = false;
  double value = 0;
  std::exception_ptr error;
};

}  // namespace

struct Lanes::Impl {
  // A copy of the model whose leaves alias the rank's weights, and its thread.
  struct Lane {
    Lane(Impl& owner, const models::Blocks& model, std::uint64_t seed,
         const std::vector<at::Tensor>& weights, const LanesOptions& options)
        : stage(model, seed),
          hooks(aliases(stage, weights), [this, &owner](std::size_t leaf, at::Tensor gradient) {
            owner.push(task, leaf, std::move(gradient));
          }) {
      take_buffers(options.frozen, owner.device);
      stage.seeds_generator(false);
      stage.train(true);
      stage.recompute(options.recompute);
      if (!options.offload_activations.empty())
        stage.offload(
            memory::make_activation_store(options.offload_activations, weights.front().device()));
    }
    // Frozen weights are shared with the rank; other buffers belong to the lane.
    void take_buffers(const std::vector<at::Tensor>& frozen, at::Device device) {
      std::size_t next = 0;
      for (const Stage::Member& member : stage.members())
        for (const models::NamedTensor& own : member.block->buffers()) {
          if (own.frozen) own.tensor.set_data(frozen.at(next++));
          if (own.tensor.device() != device) own.tensor.set_data(own.tensor.to(device));
        }
      TRIREME_CHECK(next == frozen.size());
    }
    Stage stage;
    std::size_t task = 0;  // the current one
    GradientHooks hooks;
    std::thread thread;
  };

  static std::vector<at::Tensor> aliases(const Stage& stage,
                                         const std::vector<at::Tensor>& weights) {
    std::vector<at::Tensor> leaves;
    for (const Stage::Member& member : stage.members()) {
      for (const models::NamedTensor& own : member.block->parameters()) {
        TRIREME_CHECK(leaves.size() < weights.size());
        if (has_gradient_hook(own.tensor))
          throw ConfigError("the factory of block \"" + member.name +
                                "\" returns the same module each time, and every lane needs one",
                            {.operation = "lanes",
                             .advice = "Make a new module in the factory, or use one lane."});
        leaves.push_back(own.tensor);
        leaves.back().set_data(weights[leaves.size() - 1].detach());
      }
    }
    TRIREME_CHECK(leaves.size() == weights.size());
    return leaves;
  }

  Impl(const models::Blocks& model, std::uint64_t seed, const std::vector<at::Tensor>& weights,
       const LanesOptions& options, std::shared_ptr<Waiter> own_waiter)
      : waiter(std::move(own_waiter)),
        device(weights.empty() ? at::kCPU : weights.front().device()) {
    for (int i = 0; i < options.count; ++i)
      lanes.push_back(std::make_unique<Lane>(*this, model, seed, weights, options));
    const SignalsBlocked in_threads;
    try {
      for (const auto& lane : lanes)
        lane->thread = std::thread([this, &own = *lane] { work(own); });
    } catch (...) {  // the system refuses a thread
      end();
      throw;
    }
  }

  ~Impl() { end(); }

  void end() noexcept {
    stop = true;
    ring();
    for (const auto& lane : lanes)
      if (lane->thread.joinable()) lane->thread.join();
  }

  void ring() noexcept {
    bell.fetch_add(1);
    bell.notify_all();
  }

  void push(std::size_t task, std::size_t leaf, at::Tensor gradient) {
    {
      const std::lock_guard lock(mutex);
      tasks[task].gradients.emplace_back(leaf, std::move(gradient));
    }
    waiter->wake();
  }

  // The next task that may start, if there is one.
  std::optional<std::size_t> claim() {
    const std::lock_guard lock(mutex);
    if (next < tasks.size() && next < taken + lanes.size()) return next++;
    return std::nullopt;
  }

  // Body of a lane's thread. It sleeps on `bell` (a futex) while no task may start.
  void work(Lane& lane) {
    tensor::set_up_thread();
    // A device's backward pass must run in this thread, too, since it reads thread-local state.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    if (!device.is_cpu()) at::accelerator::setDeviceIndex(device.index());
    while (!stop) {
      const std::uint32_t heard = bell.load();
      const std::optional<std::size_t> claimed = claim();
      if (!claimed) {
        if (!stop) bell.wait(heard);
        continue;
      }
      lane.task = *claimed;
      compute_one(lane);
    }
  }

  void compute_one(Lane& lane) {
    double value = 0;
    std::exception_ptr error;
    try {
      value = (*compute)(lane.stage, lane.task);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      Task& task = tasks[lane.task];
      task.value = value;
      task.error = error;
      task.done = true;
    }
    waiter->wake();
  }

  // Passes one task's gradients to the sink as they arrive.
  void take(std::size_t index, const Sink& sink) {
    if (sink.begin) sink.begin(index);
    while (true) {
      waiter->wait_until(
          [&] {
            const std::lock_guard lock(mutex);
            return tasks[index].done || !tasks[index].gradients.empty();
          },
          TimePoint::max());
      std::deque<std::pair<std::size_t, at::Tensor>> arrived;
      bool done = false;
      {
        const std::lock_guard lock(mutex);
        arrived.swap(tasks[index].gradients);
        done = tasks[index].done;
      }
      for (auto& [leaf, gradient] : arrived) sink.gradient(leaf, std::move(gradient));
      if (done) break;
    }
    const Task& task = tasks[index];
    sink.end(index, task.value, task.error);
    {
      const std::lock_guard lock(mutex);
      ++taken;
    }
    ring();
  }

  // Waits for tasks in flight, because they read the arguments of run().
  void let_run_out() {
    waiter->wait_until(
        [this] {
          const std::lock_guard lock(mutex);
          std::size_t finished = 0;
          for (std::size_t i = 0; i < next; ++i) finished += tasks[i].done ? 1 : 0;
          return finished == next;
        },
        TimePoint::max());
    const std::lock_guard lock(mutex);
    tasks.clear();
    next = taken = 0;
  }

  void run(std::size_t count, const Compute& work, const Sink& sink) {
    {
      const std::lock_guard lock(mutex);
      tasks = std::deque<Task>(count);
      next = taken = 0;
      compute = &work;
    }
    ring();
    std::exception_ptr error;
    try {
      for (std::size_t index = 0; index < count; ++index) take(index, sink);
    } catch (...) {
      error = std::current_exception();
      const std::lock_guard lock(mutex);
      tasks.resize(next);  // starts no further task
    }
    let_run_out();
    if (error) std::rethrow_exception(error);
  }

  const std::shared_ptr<Waiter> waiter;
  const at::Device device;
  std::mutex mutex;
  std::deque<Task> tasks;  // of this run
  std::size_t next = 0;    // the first task that no lane has started
  std::size_t taken = 0;   // by the sink
  const Compute* compute = nullptr;
  std::atomic<std::uint32_t> bell{0};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Lane>> lanes;
};

Lanes::Lanes(const models::Blocks& model, std::uint64_t seed, const std::vector<at::Tensor>& leaves,
             const LanesOptions& options, std::shared_ptr<Waiter> waiter)
    : impl_(std::make_unique<Impl>(model, seed, leaves, options, std::move(waiter))) {}

Lanes::~Lanes() = default;

int Lanes::count() const noexcept { return static_cast<int>(impl_->lanes.size()); }

const Stage& Lanes::stage(int lane) const {
  return impl_->lanes[static_cast<std::size_t>(lane)]->stage;
}

void Lanes::run(std::size_t tasks, const Compute& compute, const Sink& sink) {
  impl_->run(tasks, compute, sink);
}

}  // namespace trireme::inline v0::parallel
