#include "trireme/input/batches.h"

#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/base/work_thread.h"
#include "trireme/input/batch_plan.h"
#include "trireme/input/epoch_order.h"
#include "trireme/job/job.h"
#include "trireme/job/job_input.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/sent_batch.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0 {
namespace {

using input::GlobalBatch;
using input::MicroRange;

// Rank `rank`'s share of global batch `number`. samples(first, count) returns the numbers of the
// samples at these positions.
template <class Samples>
Batch read_share(const Dataset& data, std::int64_t number, const GlobalBatch& global,
                 std::int64_t micro, const kernel::Assignment& shares, int rank, Samples samples) {
  Batch batch;
  batch.step = number;
  batch.total = input::num_micro_batches(global, micro);
  batch.global_count = data.count_items(samples(global.first, global.count));
  for (const MicroRange& range : input::share_of(global, micro, shares, rank)) {
    const std::vector<std::int64_t> chosen = samples(range.first, range.count);
    batch.micro.push_back({.index = range.index,
                           .first_sample = range.first,
                           .count = data.count_items(chosen),
                           .fields = data.read(chosen)});
  }
  return batch;
}

// Reads batches in order; used by one thread at a time.
class Reader {
 public:
  Reader(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank)
      : data_(std::move(data)),
        options_(options),
        rank_(rank),
        n_(data_->size()),
        sender_(options.device) {}

  tensor::SentBatch read(std::int64_t position, const kernel::Assignment& dealt) {
    const std::int64_t number = options_.first + position * options_.every;
    const GlobalBatch global = input::global_batch(number, n_, options_.batch);
    const auto chosen = [&](std::int64_t first, std::int64_t count) {
      return samples(global.epoch, first, count);
    };
    return sender_.send(read_share(*data_, number, global, options_.micro, dealt, rank_, chosen));
  }

 private:
  std::vector<std::int64_t> samples(std::int64_t epoch, std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(count));
    if (n_ == 0) {
      std::iota(chosen.begin(), chosen.end(), first);
      return chosen;
    }
    if (epoch != epoch_) {
      order_ = epoch_order(n_, options_.seed, epoch, options_.shuffle);
      epoch_ = epoch;
    }
    std::copy_n(order_.begin() + first, count, chosen.begin());
    return chosen;
  }

  const std::shared_ptr<const Dataset> data_;
  const BatchesOptions options_;
  const int rank_;
  const std::int64_t n_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
  tensor::BatchSender sender_;
};

}  // namespace

struct Batches::Impl {
  // A requested batch; `source` is settled when `batch` has been read.
  struct Slot {
    Slot(std::int64_t number, kernel::Assignment dealt, std::shared_ptr<Waiter> waiter)
        : number(number),
          dealt(std::move(dealt)),
          source(std::move(waiter), nullptr, "input batch") {}
    const std::int64_t number;
    const kernel::Assignment dealt;
    tensor::SentBatch batch;
    WorkSource source;
  };

  Impl(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank,
       AssignmentNow assignment_now, std::shared_ptr<Waiter> waiter)
      : options(options),
        samples(data->size()),
        waiter(std::move(waiter)),
        assignment(std::move(assignment_now)),
        reader(std::move(data), options, rank) {
    if (options.prefetch == 0) return;
    tensor::set_up_kernels(0);  // before two threads run LibTorch's operators
    const SignalsBlocked in_thread;
    thread.emplace();
  }

  void ask_for(std::int64_t number) {
    asked.push_back(std::make_shared<Slot>(number, assignment(), waiter));
    thread->post([this, asked_slot = std::weak_ptr(asked.back())] {
      if (const auto slot = asked_slot.lock()) read_ahead(slot);
    });
  }

  void read_ahead(const std::shared_ptr<Slot>& slot) {
    std::exception_ptr error;
    try {
      tensor::set_up_thread();  // each time: a Strategy that is made later may change the number
      slot->batch = reader.read(slot->number, slot->dealt);
    } catch (...) {
      error = std::current_exception();
    }
    waiter->run([slot, error] { slot->source.settle(error); });
  }

  const BatchesOptions options;
  const std::int64_t samples;
  const std::shared_ptr<Waiter> waiter;
  const AssignmentNow assignment;
  Reader reader;  // used by the prefetch thread; by next() if there is none
  std::int64_t position = 0;
  Duration waited{0};
  std::optional<WorkThread> thread;  // none without prefetch
  // Used by the user thread alone; ascending numbers. The prefetch thread skips dropped slots.
  std::deque<std::shared_ptr<Slot>> asked;
};

Batches::Batches(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank,
                 int size, std::shared_ptr<Waiter> waiter, AssignmentNow assignment) {
  input::check_batch(options.batch, options.micro, size, data->size());
  if (options.first < 0 || options.every < 1)
    throw ConfigError(
        "batches cannot begin at first = " + std::to_string(options.first) +
            " and go on by every = " + std::to_string(options.every),
        {.operation = "batch", .advice = "Give a first of at least 0 and an every of at least 1."});
  if (!assignment) assignment = [size] { return kernel::contiguous(size); };
  impl_ = std::make_unique<Impl>(std::move(data), options, rank, std::move(assignment),
                                 std::move(waiter));
}
Batches::Batches(Batches&&) noexcept = default;
Batches::~Batches() = default;

Batch Batches::next() {
  Impl& impl = *impl_;
  const TimePoint start = impl.waiter->now();
  tensor::SentBatch batch;
  if (impl.options.prefetch <= 0) {
    batch = impl.reader.read(impl.position, impl.assignment());
  } else {
    // The ranks' shares have changed since these were read.
    if (!impl.asked.empty() && impl.asked.front()->dealt != impl.assignment()) seek(impl.position);
    while (static_cast<int>(impl.asked.size()) <= impl.options.prefetch) {
      const std::int64_t number = impl.position + static_cast<std::int64_t>(impl.asked.size());
      if (impl.options.steps > 0 && number >= impl.options.steps && !impl.asked.empty()) break;
      impl.ask_for(number);
    }
    const auto slot = impl.asked.front();
    impl.asked.pop_front();
    TRIREME_CHECK(slot->number == impl.position);
    try {
      slot->source.work().wait(Deadline::never());  // file reads have no deadline
    } catch (...) {
      seek(impl.position);  // the next call reads this batch again
      throw;
    }
    batch = std::move(slot->batch);
  }
  impl.waited += impl.waiter->now() - start;
  ++impl.position;
  return batch.arrive();
}

std::int64_t Batches::position() const noexcept { return impl_->position; }

void Batches::seek(std::int64_t position) {
  TRIREME_CHECK(position >= 0);
  impl_->asked.clear();
  impl_->position = position;
}

Duration Batches::time_waited() const noexcept { return impl_->waited; }

std::string Batches::metadata() const {
  return nlohmann::json{
      {"position", impl_->position},   {"batch", impl_->options.batch},
      {"micro", impl_->options.micro}, {"seed", impl_->options.seed},
      {"samples", impl_->samples},     {"shuffle", impl_->options.shuffle ? 1 : 0},
      {"every", impl_->options.every}}
      .dump();
}

void Batches::restored(const std::string& metadata) {
  const auto saved = nlohmann::json::parse(metadata, nullptr, false);
  const auto same = [&](const char* key, std::int64_t own) {
    require_saved(saved, key, own, "input");
  };
  same("batch", impl_->options.batch);
  same("seed", static_cast<std::int64_t>(impl_->options.seed));
  same("samples", impl_->samples);
  // Older checkpoints lack these.
  if (saved.contains("micro")) same("micro", impl_->options.micro);
  if (saved.contains("shuffle")) same("shuffle", impl_->options.shuffle ? 1 : 0);
  if (saved.contains("every")) same("every", impl_->options.every);
  seek(saved_count(saved, "position"));
}

void Batches::Iterator::advance() {
  const BatchesOptions& options = owner_->impl_->options;
  if (options.steps > 0 && owner_->position() >= options.steps) {
    owner_ = nullptr;
  } else {
    batch_ = owner_->next();
  }
}

namespace input {

std::vector<Batch> fixed_share(const Dataset& data, std::int64_t batch, std::int64_t micro,
                               std::int64_t count, const kernel::Assignment& shares, int rank) {
  if (data.size() < 1 || batch < 1 || micro < 1 || count < 1)
    throw ConfigError(
        std::to_string(count) + " fixed batches of " + std::to_string(batch) +
            " samples, in micro-batches of " + std::to_string(micro) + ", of " +
            (data.size() == 0 ? "an endless dataset"
                              : "a dataset of " + std::to_string(data.size()) + " samples"),
        {.operation = "batch",
         .advice = "Give a dataset that has an end, such as TextDataset::fixed_windows(), and "
                   "positive numbers."});
  const std::int64_t full = std::min(count, data.size() / batch);
  const std::int64_t num_batches = std::max<std::int64_t>(full, 1);
  const std::int64_t per_batch = full > 0 ? batch : data.size();
  const std::int64_t chosen = num_batches * per_batch;
  std::vector<Batch> batches;
  for (std::int64_t number = 0; number < num_batches; ++number) {
    const GlobalBatch global{.first = number * per_batch, .count = per_batch};
    const auto samples = [&](std::int64_t first, std::int64_t amount) {
      std::vector<std::int64_t> picked(static_cast<std::size_t>(amount));
      for (std::int64_t i = 0; i < amount; ++i) {
        picked[static_cast<std::size_t>(i)] = (first + i) * data.size() / chosen;
      }
      return picked;
    };
    batches.push_back(read_share(data, number, global, micro, shares, rank, samples));
  }
  return batches;
}

MicroBatch example_of(const Dataset& data, std::int64_t micro) {
  return fixed_share(data, micro, micro, 1, kernel::contiguous(1), 0).front().micro.front();
}

}  // namespace input

std::vector<Batch> fixed_batches(const Job& job, const Dataset& data, std::int64_t batch,
                                 std::int64_t micro, std::int64_t count) {
  return input::fixed_share(data, batch, micro, count, job.input().assignment(), job.rank());
}

Batches batches(const Job& job, std::shared_ptr<const Dataset> data,
                const BatchesOptions& options) {
  // Ranks of one pipeline share their micro-batches.
  return Batches(std::move(data), options, job.rank(), job.input().assignment().size(),
                 job.waiter(), [&job] { return job.input().assignment(); });
}

}  // namespace trireme::inline v0
