#include "trireme/ps/worker/server_sync.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/sync/levels/owned_gradients.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::ps {

ServerSync::ServerSync(const parallel::SyncSetup& setup, RemoteOptimizer& optimizer)
    : BucketedSync({.uses = setup.store.uses(),
                    .parameter_of = setup.store.parameter_of(),
                    .slices = setup.store.slices(),
                    .bucket_bytes = setup.options.bucket_bytes,
                    .allocate = [world = &setup.data, device = setup.store.device()](
                                    std::size_t bytes) { return world->allocate(bytes, device); },
                    .before_launch = setup.options.before_launch,
                    .assignment = kernel::contiguous(setup.data.size()),
                    .rank = setup.data.rank()}),
      workers_(setup.data),
      optimizer_(optimizer) {
  if (optimizer_.alone()) return;  // it adds the uses itself, and sends one gradient
  std::vector<bool> used(slices_.size(), false);
  std::vector<std::uint32_t> more;
  for (const std::uint32_t parameter : parameter_of_) {
    if (used[parameter]) more.push_back(parameter);
    used[parameter] = true;
  }
  optimizer_.set_more_uses(std::move(more));
}

void ServerSync::begin(std::uint32_t total, std::span<const parallel::Use>) {
  optimizer_.start();
  reserve(total);
  const std::lock_guard lock(mutex_);
  begin_step(total);
  rounds_ = static_cast<std::uint32_t>(leaves_.size());
  plan_ = parallel::make_leaf_plan(total, workers_.size(), workers_.rank());
  if (RowGradients* rows = optimizer_.row_gradients(); rows && total > 0) rows->begin();
}

void ServerSync::end_micro() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(open_);
  close_from(0);
  if (RowGradients* rows = optimizer_.row_gradients())
    rows->end_micro(leaves_[round_], plan_.steps[round_], weight_);
  open_ = false;
  ++round_;
}

Work ServerSync::finish() {
  if (total_ == 0) return {};  // forward passes only
  {
    const std::lock_guard lock(mutex_);
    TRIREME_CHECK(!open_);
    TRIREME_CHECK(round_ == rounds_);
    announce();
  }
  if (!optimizer_.alone()) {
    if (const RowGradients* rows = optimizer_.row_gradients())
      optimizer_.client().set_rows(rows->terms(plan_.terms.size()));
    fill_terms();
    sums_of_all_ = optimizer_.client().sum(plan_.terms, total_);
  }
  return Work::all(works_);
}

// The first use of a parameter goes where its gradient is expected, later ones behind all of these.
void ServerSync::fill_terms() {
  ParameterClient& client = optimizer_.client();
  for (int server = 0; server < client.servers(); ++server) {
    const std::size_t bytes = client.settings().model.sum_bytes(server);
    const std::span<std::byte> memory = client.gradient(server, plan_.terms.size());
    const auto fill = [&](std::uint32_t use, const ServedModel::Slice& slice) {
      const parallel::BucketLayout::RangeIndex place = layout_.places[use].front();
      const std::size_t first = layout_.part(place).offset + static_cast<std::size_t>(slice.begin);
      for (std::size_t term = 0; term < plan_.terms.size(); ++term) {
        const Buffer to{.data = memory.data() + term * bytes + slice.offset,
                        .count = slice.size(),
                        .dtype = slices_[slice.parameter].master_dtype};
        const Buffer from = sums_.buffer(static_cast<int>(term), place.bucket);
        tensor::view_of(to).copy_(tensor::view_of(from.slice(first, slice.size())));
      }
    };
    std::vector<const ServedModel::Slice*> slice_of(slices_.size(), nullptr);  // by parameter
    for (const ServedModel::Slice& slice : client.settings().model.slices(server))
      slice_of[slice.parameter] = &slice;
    const auto& more = client.settings().model.more_uses(server);
    std::size_t next = 0;  // in more
    for (std::uint32_t use = 0; use < parameter_of_.size(); ++use) {
      const std::uint32_t parameter = parameter_of_[use];
      if (const auto* slice = std::exchange(slice_of[parameter], nullptr))
        fill(use, *slice);
      else if (next < more.size() && more[next].parameter == parameter)
        fill(use, more[next++]);
    }
  }
}

std::optional<parallel::Refusal> ServerSync::refusal() const {
  if (auto refusal = BucketedSync::refusal()) return refusal;
  const RowGradients* rows = optimizer_.row_gradients();
  if (rows == nullptr || !rows->refusal()) return {};
  return parallel::Refusal{.reason = *rows->refusal()};
}

std::vector<double> ServerSync::chunk_squares() {
  if (!optimizer_.alone()) return sums_of_all_.squares;
  std::vector<double> squares = parallel::squares_of(slices_);
  if (const RowGradients* rows = optimizer_.row_gradients())
    for (const double table : rows->squares()) squares.push_back(table);
  return squares;
}

std::int64_t ServerSync::first_overflow() {
  return optimizer_.alone() ? parallel::first_not_finite(slices_) : sums_of_all_.not_finite;
}

}  // namespace trireme::inline v0::ps
