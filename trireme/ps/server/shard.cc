#include "trireme/ps/server/shard.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/ps/copy_for_reader.h"
#include "trireme/ps/worker/optimizer_text.h"

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t kSquared = 4 * kernel::kNormChunk;  // elements of a block that is squared

at::Tensor zeros(std::size_t bytes) {
  return at::zeros({static_cast<std::int64_t>(bytes)}, at::kByte);
}

std::span<std::byte> bytes_of(const at::Tensor& memory) {
  return {static_cast<std::byte*>(memory.data_ptr()), static_cast<std::size_t>(memory.numel())};
}

using Slices = std::vector<ServedModel::Slice>;

std::vector<std::size_t> sizes_of(const Slices& slices) {
  std::vector<std::size_t> sizes;
  for (const ServedModel::Slice& slice : slices) sizes.push_back(slice.size());
  return sizes;
}

// Calls visit(T, at, count) for contiguous elements of type T, `at` bytes from the start.
template <class Visit>
void for_each_part(const Slices& slices, const Spread& spread, Visit visit) {
  for (const ServedModel::Slice& slice : slices)
    spread(slice.size(), [&](std::size_t begin, std::size_t end) {
      slice.dtype == DType::F64 ? visit(double{}, slice.at(begin), end - begin)
                                : visit(float{}, slice.at(begin), end - begin);
    });
}

std::optional<std::uint32_t> first_not_finite(const Slices& slices, const Spread& spread,
                                              const std::byte* memory) {
  for (const ServedModel::Slice& slice : slices) {
    std::atomic<bool> finite{true};
    spread(slice.size(), [&](std::size_t begin, std::size_t end) {
      const tensor::FlatRange part{memory + slice.at(begin), slice.dtype, end - begin};
      if (tensor::flat_math({}).first_not_finite({&part, 1}) == 0) finite = false;
    });
    if (!finite) return slice.parameter;
  }
  return std::nullopt;
}

// The sums of squares of all chunks. `block` returns the address of each block, and may fill the
// room of one block that it gets. Blocks begin at chunks, and fit into a cache.
template <class Block>
std::vector<double> squares_of(const Slices& slices, const Spread& spread, Block block) {
  std::vector<double> all;
  for (const ServedModel::Slice& slice : slices) {
    const std::size_t before = all.size();
    all.resize(before + (slice.size() + kernel::kNormChunk - 1) / kernel::kNormChunk);
    spread(slice.size(), [&](std::size_t begin, std::size_t end) {
      alignas(64) std::byte room[kSquared * sizeof(double)];
      for (std::size_t at = begin; at < end; at += kSquared) {
        const std::size_t stop = std::min(at + kSquared, end);
        const tensor::FlatRange part{block(slice, at, stop, room), slice.dtype, stop - at};
        const std::vector<double> squares = tensor::flat_math({}).squares({&part, 1});
        std::copy(squares.begin(), squares.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(before + at / kernel::kNormChunk));
      }
    });
  }
  return all;
}

template <class T>
void compensate(T* out, const T* gradient, const T* weight, const T* before, double lambda,
                double scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const T g = gradient[i] * static_cast<T>(scale);
    out[i] = g + static_cast<T>(lambda) * g * g * (weight[i] - before[i]);
  }
}

template <class T>
void extrapolate(T* out, const T* now, const T* earlier, double share, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = now[i] + static_cast<T>(share) * (now[i] - earlier[i]);
}

// How much of the last update Shard::predicted() adds.
double share_of(double momentum, std::int64_t staleness) {
  if (staleness <= 0 || momentum <= 0) return 0;
  const auto updates = static_cast<double>(staleness + 1);
  return momentum < 1 ? momentum * (1 - std::pow(momentum, updates)) / (1 - momentum) : updates;
}

}  // namespace

Shard::Shard(ServedModel model, int server, const OptimizerOptions& optimizer, Spread spread,
             bool predicts, bool keeps_rows, std::span<std::byte> shared)
    : model_(std::move(model)),
      slices_(model_.slices(server)),
      more_uses_(model_.more_uses(server)),
      spread_(std::move(spread)),
      momentum_(predicts ? optim::momentum_of(optimizer) : 0),
      shared_(shared),
      weights_memory_(zeros(shared.empty() ? model_.bytes(server) : 0)),
      sum_memory_(zeros(model_.sum_bytes(server))),
      earlier_memory_(zeros(predicts ? model_.bytes(server) : 0)),
      optimizer_(optim::make_optimizer(optimizer)),
      rows_(model_.tables(), server, model_.servers(), optimizer, keeps_rows),
      updates_(sizes_of(slices_), spread_) {
  require_elementwise(optimizer_->name());
  TRIREME_CHECK((shared_.empty() || shared_.size() == model_.bytes(server)) == true);
  weights_ = shared_.empty() ? bytes_of(weights_memory_) : shared_;
  sum_ = bytes_of(sum_memory_);
  earlier_ = bytes_of(earlier_memory_);
  std::vector<optim::OwnedSlice> slices;
  for (const ServedModel::Slice& slice : slices_) {
    const ServedParameter& parameter = model_.parameters()[slice.parameter];
    slices.push_back({.parameter = slice.parameter,
                      .name = parameter.name,
                      .begin = slice.begin,
                      .end = slice.end,
                      .master_dtype = slice.dtype,
                      .weight = weights_.data() + slice.offset,
                      .gradient = sum_.data() + slice.offset,
                      .decay = parameter.decay});
  }
  std::vector<optim::ParameterInfo> infos;
  for (const ServedParameter& parameter : model_.parameters())
    infos.push_back({parameter.name, parameter.shape});
  optimizer_->attach(slices, infos);
}

void Shard::set_weights(std::span<const std::byte> weights) {
  TRIREME_CHECK(weights.size() == weights_.size());
  if (!weights.empty()) std::memcpy(weights_.data(), weights.data(), weights.size());
  if (!earlier_.empty()) std::memcpy(earlier_.data(), weights.data(), weights.size());
}

std::optional<std::string> Shard::push(std::span<const std::byte> gradient, double rate,
                                       double scale, std::span<const std::byte> before,
                                       double lambda, std::span<const RowsView> rows,
                                       Destination to, bool finite) {
  TRIREME_CHECK(gradient.size() == bytes());
  if (!finite)
    if (const auto broken = ps::first_not_finite(slices_, spread_, gradient.data()))
      return model_.parameters()[*broken].name;
  if (auto broken = rows_.first_not_finite(rows)) return broken;
  if (!rows.empty()) rows_.update(rows, rate, scale);
  if (before.empty() || lambda <= 0) {
    begin_update(gradient.data(), rate, scale, to);
    return std::nullopt;
  }
  TRIREME_CHECK((before.size() == bytes() && !updates_.under_way()) == true);
  for_each_part(slices_, spread_, [&]<class T>(T, std::size_t at, std::size_t count) {
    compensate(reinterpret_cast<T*>(sum_.data() + at),
               reinterpret_cast<const T*>(gradient.data() + at),
               reinterpret_cast<const T*>(weights_.data() + at),
               reinterpret_cast<const T*>(before.data() + at), lambda, scale, count);
  });
  begin_update(sum_.data(), rate, 1, to);
  return std::nullopt;
}

std::span<const std::byte> Shard::predicted(std::int64_t staleness) {
  const double share = share_of(momentum_, staleness);
  if (share == 0) return weights_;
  for_each_part(slices_, spread_, [&]<class T>(T, std::size_t at, std::size_t count) {
    extrapolate(reinterpret_cast<T*>(sum_.data() + at),
                reinterpret_cast<const T*>(weights_.data() + at),
                reinterpret_cast<const T*>(earlier_.data() + at), share, count);
  });
  return sum_.first(weights_.size());
}

void Shard::fold(std::span<const Terms> workers, std::uint32_t total) {
  std::vector<kernel::LeafRange> nodes;
  std::vector<const std::byte*> memory;
  std::vector<std::vector<RowsView>> rows;
  std::uint32_t covered = 0;
  for (const Terms& terms : workers) {
    TRIREME_CHECK(terms.memory.size() == terms.nodes.size() * sum_.size());
    for (std::size_t i = 0; i < terms.nodes.size(); ++i) {
      nodes.push_back(terms.nodes[i]);
      memory.push_back(terms.memory.data() + i * sum_.size());
      covered += terms.nodes[i].count;
    }
    rows.insert(rows.end(), terms.rows.begin(), terms.rows.end());
  }
  // A batch with parts left out has no tree: operands are added as if they were one leaf each, the
  // first to the second, their sum to the third.
  std::vector<kernel::FoldStep> steps;
  if (covered == total) {
    steps = kernel::fold_steps(nodes, total);
  } else {
    TRIREME_CHECK(nodes.size() <= std::numeric_limits<std::uint16_t>::max() + 1u);
    for (std::size_t i = 1; i < nodes.size(); ++i)
      steps.push_back({0, static_cast<std::uint16_t>(i)});
  }
  if (!rows.empty() || nodes.empty()) {
    TRIREME_CHECK(rows.size() == nodes.size());
    rows_.fold(rows, steps);
  }
  const tensor::FlatMath& math = tensor::flat_math({});
  const auto fold_to = [&](const ServedModel::Slice& slice, std::size_t begin, std::size_t end,
                           std::byte* to) {
    std::vector<const void*> parts;
    for (const std::byte* term : memory) parts.push_back(term + slice.at(begin));
    if (parts.empty()) {  // the workers that had parts of the batch have left
      math.clear(to, slice.at(end) - slice.at(begin));
    } else {
      math.fold(slice.dtype, steps, parts, to, end - begin);
    }
  };
  const auto fold_block = [&](const ServedModel::Slice& slice, std::size_t begin, std::size_t end,
                              std::byte* room) {
    fold_to(slice, begin, end, room);
    copy_for_reader(sum_.data() + slice.at(begin), room, slice.at(end) - slice.at(begin),
                    sum_.size());
    return room;
  };
  squares_ = squares_of(slices_, spread_, fold_block);
  if (more_uses_.empty()) return;
  for (const ServedModel::Slice& more : more_uses_) {
    spread_(more.size(), [&](std::size_t begin, std::size_t end) {
      fold_to(more, begin, end, sum_.data() + more.at(begin));
    });
    for (const ServedModel::Slice& slice : slices_)
      if (slice.parameter == more.parameter)
        math.add_into(sum_.data() + slice.offset, sum_.data() + more.offset, slice.dtype,
                      slice.size());
  }
  squares_ = squares_of(slices_, spread_,
                        [&](const ServedModel::Slice& slice, std::size_t begin, auto...) {
                          return sum_.data() + slice.at(begin);
                        });
}

// If all squares are finite, so are all elements.
std::optional<std::uint32_t> Shard::first_not_finite() const {
  const bool finite = std::all_of(squares_.begin(), squares_.end(),
                                  [](double square) { return std::isfinite(square); });
  if (!finite)
    if (const auto parameter = ps::first_not_finite(slices_, spread_, sum_.data()))
      return parameter;
  if (rows_.first_not_finite()) return static_cast<std::uint32_t>(model_.parameters().size());
  return std::nullopt;
}

void Shard::apply(double rate, double scale, Destination to) {
  rows_.apply(rate, scale);
  begin_update(sum_.data(), rate, scale, to);
}

void Shard::give_weights(std::span<std::byte> to) {
  TRIREME_CHECK(to.size() == bytes());
  updates_.begin([this, to](std::size_t slice, std::size_t begin, std::size_t end) {
    const std::size_t at = slices_[slice].at(begin), bytes = slices_[slice].at(end) - at;
    copy_for_reader(to.data() + at, weights_.data() + at, bytes, to.size());
  });
}

// An update under way, as its blocks need it.
struct Shard::Update {
  optim::PartUpdate part;
  const std::byte* gradient;
  std::span<std::byte> out;  // a worker's memory, or none
  double share;              // of the last update, in what is written there
};

// Copies a block before and after its update, while it is in a cache.
template <class T>
void Shard::update_block(const Update& update, std::size_t slice, std::size_t begin,
                         std::size_t end) {
  T copy[Sweep::kBlock];
  const std::size_t at = slices_[slice].at(begin), count = end - begin;
  const auto* weights = reinterpret_cast<const T*>(weights_.data() + at);
  if (!earlier_.empty()) {
    std::copy_n(weights, count, copy);
    copy_for_reader(earlier_.data() + at, copy, count * sizeof(T), earlier_.size());
  }
  update.part(slice, begin, end, update.gradient + at);
  if (update.out.empty()) return;
  if (update.share > 0) extrapolate(copy, weights, copy, update.share, count);
  copy_for_reader(update.out.data() + at, update.share > 0 ? copy : weights, count * sizeof(T),
                  update.out.size());
}

void Shard::begin_update(const std::byte* gradient, double rate, double scale, Destination to) {
  TRIREME_CHECK((to.memory.empty() || to.memory.size() == bytes()) == true);
  Update update{optimizer_->begin_parts(rate, scale), gradient, to.memory,
                share_of(momentum_, to.staleness)};
  updates_.begin(
      [this, update = std::move(update)](std::size_t slice, std::size_t begin, std::size_t end) {
        slices_[slice].dtype == DType::F64 ? update_block<double>(update, slice, begin, end)
                                           : update_block<float>(update, slice, begin, end);
      });
}

std::span<const std::byte> Shard::weights() const {
  TRIREME_CHECK(!updates_.under_way());
  return weights_;
}

}  // namespace trireme::inline v0::ps
