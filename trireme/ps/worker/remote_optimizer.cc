#include "trireme/ps/worker/remote_optimizer.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <cstring>
#include <map>

#include "trireme/base/check.h"
#include "trireme/ps/worker/optimizer_text.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::ps {
namespace {

at::Tensor elements(const void* data, std::int64_t begin, std::size_t count, DType dtype,
                    Device device) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(data)) +
             static_cast<std::size_t>(begin) * size_of(dtype);
  return tensor::view_of({.data = at, .count = count, .dtype = dtype, .device = device});
}

}  // namespace

RemoteOptimizer::RemoteOptimizer(const OptimizerOptions& optimizer, const ServerOptions& options,
                                 std::shared_ptr<Waiter> waiter, Servers servers)
    : optimizer_(optimizer),
      options_(options),
      waiter_(std::move(waiter)),
      servers_(std::move(servers)),
      pending_(servers_.epoch > 0) {
  require_elementwise(name());
}

RemoteOptimizer::~RemoteOptimizer() {
  if (rows_) rows_->end();
}

std::shared_ptr<RemoteRows> RemoteOptimizer::set_tables(std::vector<ServedTable> tables) {
  TRIREME_CHECK(client_ == nullptr);
  const auto client = [this]() -> ParameterClient& {
    start();
    return *client_;
  };
  const std::vector<std::string> state =
      std::visit([](const auto& own) { return own.state(); }, optimizer_);
  // Worker 0 saves the rows for all. A worker that is alone in its world loads them, too, if it
  // reads a checkpoint.
  const bool first = servers_.worker == 0;
  rows_ = std::make_shared<RemoteRows>(
      std::move(tables),
      RowStore::Options{
          .state_names = [state] { return state; }, .saves = first, .loads = first || alone()},
      client, [this] { return started_ || goes_on_; });
  return rows_;
}

void RemoteOptimizer::attach(std::span<const optim::OwnedSlice> slices,
                             std::span<const optim::ParameterInfo> parameters,
                             std::shared_ptr<optim::SharedSums>) {
  TRIREME_CHECK(slices.size() == parameters.size());
  slices_.assign(slices.begin(), slices.end());
  std::vector<ServedParameter> served;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const optim::OwnedSlice& slice = slices_[i];
    TRIREME_CHECK(slice.parameter == i);
    served.push_back({parameters[i].name, parameters[i].shape, slice.master_dtype, slice.decay});
    TRIREME_CHECK((slice.begin == 0 && slice.end == served.back().count()) == true);
  }
  client_ = std::make_unique<ParameterClient>(
      waiter_,
      Settings{.model = ServedModel(std::move(served), servers_.count, more_uses_,
                                    rows_ ? rows_->tables() : std::vector<ServedTable>()),
               .optimizer = optimizer_,
               .workers = servers_.workers,
               .server = options_,
               .elastic = servers_.elastic},
      ClientOptions{.worker = servers_.worker,
                    .dial = servers_.dial,
                    .term = servers_.term,
                    .patience = servers_.patience,
                    .epoch = servers_.epoch,
                    .broken = servers_.broken});
}

void RemoteOptimizer::start() {
  if (std::exchange(started_, true) || goes_on_) return;
  if (!alone() && servers_.epoch > 0) client_->begin(restored_count_.value_or(0), /*kept=*/false);
  if (servers_.worker == 0 && !client_->ready()) give_weights();
  client_->pull();
  take_weights();
  pending_ = false;
  state_.clear();  // the servers have what was loaded
  if (rows_) rows_->forget();
}

bool RemoteOptimizer::can_go_on(std::int64_t updates) {
  if (alone() || servers_.epoch == 0) return true;
  client_->begin(updates, /*kept=*/true);
  goes_on_ = client_->ready();
  if (goes_on_) state_.clear();
  if (goes_on_ && rows_) rows_->forget();
  return goes_on_;
}

// Replaces all weights and state, since the servers may have had others.
void RemoteOptimizer::give_weights() {
  const c10::AutoGradMode no_grad(false);
  std::map<std::string, const at::Tensor*> loaded;
  if (restored_count_)
    for (const NamedShard& one : state_) loaded.emplace(one.name, &one.local);
  const auto rows = restored_count_ && rows_ ? rows_->first_rows() : nullptr;
  for (int server = 0; server < client_->servers(); ++server) {
    Saved saved = client_->read(server);
    SavedText text = SavedText::from_text(saved.text);
    for (const ServedModel::Slice& slice : client_->settings().model.slices(server)) {
      const optim::OwnedSlice& own = slices_[slice.parameter];
      elements(saved.memory.data() + slice.offset, 0, slice.size(), own.master_dtype, {})
          .copy_(elements(own.weight, slice.begin, slice.size(), own.master_dtype, own.device));
    }
    std::size_t at = client_->settings().model.bytes(server);
    std::fill(saved.memory.begin() + static_cast<std::ptrdiff_t>(at), saved.memory.end(),
              std::byte{});
    for (const SavedText::Array& array : text.arrays) {
      if (const auto found = loaded.find(array.name); found != loaded.end())
        elements(saved.memory.data() + at, 0, static_cast<std::size_t>(array.end - array.begin),
                 array.dtype, {})
            .copy_(found->second->flatten().slice(0, array.begin, array.end));
      at += array.bytes();
    }
    text.version = text.step_count = restored_count_.value_or(0) * updates_a_step();
    std::vector<SavedTable> tables;
    if (rows) tables = rows_of_server(*rows, rows_->tables(), server, client_->servers());
    append(saved, std::move(text), tables);
    client_->write(server, saved);
  }
}

void RemoteOptimizer::take_weights() {
  const c10::AutoGradMode no_grad(false);
  for (int server = 0; server < client_->servers(); ++server) {
    for (const ServedModel::Slice& slice : client_->settings().model.slices(server)) {
      const optim::OwnedSlice& own = slices_[slice.parameter];
      const at::Tensor weight =
          elements(own.weight, slice.begin, slice.size(), own.master_dtype, own.device);
      weight.copy_(elements(client_->weights(server).data() + slice.offset, 0, slice.size(),
                            own.master_dtype, {}));
      if (own.compute != nullptr)
        elements(own.compute, slice.begin, slice.size(), own.compute_dtype, own.device)
            .copy_(weight);
    }
  }
}

void RemoteOptimizer::apply(double learning_rate, double scale) {
  const bool scaled = alone() && options_.bound() == 0;  // by this worker
  if (alone() && rows_) {
    if (scaled) rows_->gradients().scale(scale);
    client_->set_rows(rows_->gradients().terms(1));
  }
  if (!alone()) {
    client_->commit(learning_rate, scale);
  } else if (scaled) {
    fill_gradients(scale);
    // Updates by the mean of the gradients that come in time.
    client_->update({{static_cast<std::uint32_t>(servers_.worker), 1}},
                    static_cast<std::uint32_t>(servers_.workers), learning_rate,
                    1.0 / (servers_.workers - options_.backup));
  } else {
    fill_gradients(1);
    // A worker's gradient, of its part of the batch, makes that part of a step. StepEngine has
    // refused gradients that are not finite.
    client_->push(learning_rate / servers_.workers, scale, /*finite=*/true);
    predicted_ = predicts(options_, optimizer_);
  }
  take_weights();
}

void RemoteOptimizer::settle() {
  if (!std::exchange(predicted_, false)) return;
  client_->pull();
  take_weights();
}

void RemoteOptimizer::fill_gradients(double scale) {
  const c10::AutoGradMode no_grad(false);
  for (int server = 0; server < client_->servers(); ++server) {
    const std::span<std::byte> memory = client_->gradient(server);
    for (const ServedModel::Slice& slice : client_->settings().model.slices(server)) {
      const optim::OwnedSlice& own = slices_[slice.parameter];
      const at::Tensor sent =
          elements(memory.data() + slice.offset, 0, slice.size(), own.master_dtype, {});
      sent.copy_(elements(own.gradient, slice.begin, slice.size(), own.master_dtype, own.device));
      if (scale != 1) sent.mul_(scale);
    }
  }
}

std::vector<NamedShard> RemoteOptimizer::state() {
  std::map<std::string, NamedShard> whole;
  for (int server = 0; server < client_->servers(); ++server) {
    Saved saved = client_->read(server);
    std::size_t at = client_->settings().model.bytes(server);
    for (const SavedText::Array& array : SavedText::from_text(saved.text).arrays) {
      const std::int64_t count = c10::multiply_integers(array.shape);
      auto [found, is_new] = whole.try_emplace(array.name);
      if (is_new)
        found->second = {.name = array.name,
                         .dtype = array.dtype,
                         .shape = array.shape,
                         .begin = 0,
                         .end = count,
                         .local = at::zeros({count}, tensor::scalar_type_of(array.dtype))};
      found->second.local.slice(0, array.begin, array.end)
          .copy_(elements(saved.memory.data() + at, 0,
                          static_cast<std::size_t>(array.end - array.begin), array.dtype, {}));
      at += array.bytes();
    }
  }
  std::vector<NamedShard> state;
  for (auto& [name, shard] : whole) state.push_back(std::move(shard));
  if (!started_ && !goes_on_) state_ = state;
  return state;
}

}  // namespace trireme::inline v0::ps
