#include "trireme/input/batches.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/input/batch_plan.h"
#include "trireme/input/epoch_order.h"
#include "trireme/tensor/devices/sent_batch.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0 {
namespace {

using input::GlobalBatch;
using input::MicroRange;

MicroBatch read_micro(const Dataset& data, const MicroRange& range,
                      std::span<const std::int64_t> samples) {
  MicroBatch micro;
  micro.index = range.index;
  micro.first_sample = range.first;
  micro.count = data.count_items(samples);
  micro.fields = data.read(samples);
  return micro;
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
    Batch batch;
    batch.step = number;
    batch.total = input::num_micro_batches(global, options_.micro);
    batch.global_count = data_->count_items(samples(global, global.first, global.count));
    for (const MicroRange& range : input::share_of(global, options_.micro, dealt, rank_)) {
      batch.micro.push_back(read_micro(*data_, range, samples(global, range.first, range.count)));
    }
    return sender_.send(std::move(batch));
  }

 private:
  std::vector<std::int64_t> samples(const GlobalBatch& global, std::int64_t first,
                                    std::int64_t count) {
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(count));
    if (n_ == 0) {
      std::iota(chosen.begin(), chosen.end(), first);
      return chosen;
    }
    if (global.epoch != epoch_) {
      order_ = epoch_order(n_, options_.seed, global.epoch, options_.shuffle);
      epoch_ = global.epoch;
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
    const SignalsBlocked in_thread;
    if (options.prefetch > 0) thread = std::thread([this] { read_ahead(); });
  }

  ~Impl() {
    stop = true;
    ring();
    if (thread.joinable()) thread.join();
  }

  void ring() noexcept {
    requests.fetch_add(1);
    requests.notify_one();
  }

  void ask_for(std::int64_t number) {
    auto slot = std::make_shared<Slot>(number, assignment(), waiter);
    asked.push_back(slot);
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(slot));
    }
    ring();
  }

  // The prefetch thread. It sleeps on `requests` (a futex).
  void read_ahead() {
    while (!stop) {
      const std::uint32_t seen = requests.load();
      std::shared_ptr<Slot> slot;
      {
        const std::lock_guard lock(mutex);
        if (!queue.empty()) {
          slot = queue.front();
          queue.pop_front();
        }
      }
      if (slot == nullptr) {
        if (!stop) requests.wait(seen);
        continue;
      }
      std::exception_ptr error;
      try {
        slot->batch = reader.read(slot->number, slot->dealt);
      } catch (...) {
        error = std::current_exception();
      }
      waiter->run([slot, error] { error ? slot->source.fail(error) : slot->source.complete(); });
    }
  }

  const BatchesOptions options;
  const std::int64_t samples;
  const std::shared_ptr<Waiter> waiter;
  const AssignmentNow assignment;
  Reader reader;  // used by the prefetch thread; by next() if there is none
  std::int64_t position = 0;
  Duration waited{0};
  std::deque<std::shared_ptr<Slot>> asked;  // used by the user thread alone; ascending numbers
  std::mutex mutex;
  std::deque<std::shared_ptr<Slot>> queue;  // not yet taken by the prefetch thread
  std::atomic<std::uint32_t> requests{0};
  std::atomic<bool> stop{false};
  std::thread thread;
};

Batches::Batches(std::shared_ptr<const Dataset> data, const BatchesOptions& options, int rank,
                 int size, std::shared_ptr<Waiter> waiter, AssignmentNow assignment) {
  input::check_batch(options.batch, options.micro, size, data->size());
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
  const std::lock_guard lock(impl_->mutex);
  impl_->queue.clear();
  impl_->position = position;
}

Duration Batches::time_waited() const noexcept { return impl_->waited; }

std::string Batches::metadata() const {
  return nlohmann::json{{"position", impl_->position},
                        {"batch", impl_->options.batch},
                        {"seed", impl_->options.seed},
                        {"samples", impl_->samples},
                        {"shuffle", impl_->options.shuffle ? 1 : 0},
                        {"every", impl_->options.every}}
      .dump();
}

void Batches::restored(const std::string& metadata) {
  const auto saved = nlohmann::json::parse(metadata, nullptr, false);
  const auto number = [&](const char* key) -> std::int64_t {
    if (!saved.is_object() || !saved.contains(key) || !saved[key].is_number_integer()) {
      throw CheckpointError(std::string("the saved input position lacks \"") + key + "\"",
                            {.operation = "resume", .advice = "Resume from an older checkpoint."});
    }
    return saved[key].get<std::int64_t>();
  };
  const auto same = [&](const char* key, std::int64_t mine) {
    if (number(key) == mine) return;
    throw CheckpointError(std::string("the checkpoint's input differs: ") + key + " was " +
                              std::to_string(number(key)) + " and is " + std::to_string(mine),
                          {.operation = "resume",
                           .advice = "Resume with the data and batch of the checkpoint's run."});
  };
  same("batch", impl_->options.batch);
  same("seed", static_cast<std::int64_t>(impl_->options.seed));
  same("samples", impl_->samples);
  // Older checkpoints lack them.
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
  TRIREME_CHECK(data.size() > 0);
  TRIREME_CHECK(batch > 0);
  TRIREME_CHECK(micro > 0);
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
    Batch out;
    out.step = number;
    out.total = num_micro_batches(global, micro);
    out.global_count = data.count_items(samples(global.first, global.count));
    for (const MicroRange& range : share_of(global, micro, shares, rank)) {
      out.micro.push_back(read_micro(data, range, samples(range.first, range.count)));
    }
    batches.push_back(std::move(out));
  }
  return batches;
}

MicroBatch example_of(const Dataset& data, std::int64_t micro) {
  return fixed_share(data, micro, micro, 1, kernel::contiguous(1), 0).front().micro.front();
}

}  // namespace input

}  // namespace trireme::inline v0
