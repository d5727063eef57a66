#include "trireme/comm/mixing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/base/check.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::uint32_t kTag = 0x7a11;  // separates these from the user's messages
constexpr std::size_t kUnderWay = 2;

// Copies elements [begin, begin + count) of the concatenated buffers from or to `packed`.
void copy(std::span<const Buffer> buffers, std::size_t begin, std::size_t count, std::byte* packed,
          bool out_of) {
  std::size_t first = 0;  // index of the buffer's first element
  for (const Buffer& buffer : buffers) {
    const std::size_t from = std::max(begin, first);
    const std::size_t to = std::min(begin + count, first + buffer.count);
    if (from < to) {
      const Buffer part = buffer.slice(from - first, to - from);
      std::byte* place = packed + (from - begin) * size_of(buffer.dtype);
      if (out_of) {
        std::memcpy(part.data, place, part.bytes());
      } else {
        std::memcpy(place, part.data, part.bytes());
      }
    }
    first += buffer.count;
  }
}

// Small enough to stay in the first-level cache while the terms are added one after another.
constexpr std::size_t kBlock = 1024;

// out[i] = weights[0] in[0][i] + weights[1] in[1][i] + ..., added from the left in type T. `out`
// may be one of `in`.
template <class T>
void weighted_sum(std::span<const double> weights, std::span<const std::byte* const> in,
                  std::byte* out, std::size_t count) {
  std::array<T, kBlock> sum;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t length = std::min(kBlock, count - at);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const T* values = reinterpret_cast<const T*>(in[k]) + at;
      const T weight = static_cast<T>(weights[k]);
      if (k == 0) {
        for (std::size_t i = 0; i < length; ++i) sum[i] = weight * values[i];
      } else {
        for (std::size_t i = 0; i < length; ++i) sum[i] += weight * values[i];
      }
    }
    std::copy_n(sum.data(), length, reinterpret_cast<T*>(out) + at);
  }
}

}  // namespace

GossipMixer::GossipMixer(Communicator& world, std::size_t chunk_bytes, OnMessage on_message)
    : world_(world),
      chunk_bytes_(std::max<std::size_t>(chunk_bytes, 64)),
      on_message_(std::move(on_message)),
      chunks_(kUnderWay) {}

void GossipMixer::mix(const plan::MixingRound& round, std::span<const Buffer> buffers) {
  TRIREME_CHECK(round.rows.size() == static_cast<std::size_t>(world_.size()));
  if (buffers.empty()) return;
  std::size_t total = 0;
  for (const Buffer& buffer : buffers) {
    TRIREME_CHECK((buffer.dtype == buffers[0].dtype));
    total += buffer.count;
  }
  const auto& row = round.rows[static_cast<std::size_t>(world_.rank())];
  if (row.size() == 1 && round.receivers(world_.rank()).empty()) return;  // no neighbour
  TRIREME_CHECK((buffers[0].dtype == DType::F32 || buffers[0].dtype == DType::F64));
  const std::size_t most = chunk_bytes_ / size_of(buffers[0].dtype);
  std::size_t started = 0, begun = 0, finished = 0;
  while (finished < begun || started < total) {
    while (started < total && begun - finished < kUnderWay) {
      const std::size_t count = std::min(most, total - started);
      start(round, buffers, chunks_[begun % kUnderWay], started, count);
      started += count;
      ++begun;
    }
    finish(round, buffers, chunks_[finished++ % kUnderWay]);
  }
}

void GossipMixer::start(const plan::MixingRound& round, std::span<const Buffer> buffers,
                        Chunk& chunk, std::size_t begin, std::size_t count) {
  const DType type = buffers[0].dtype;
  const std::size_t bytes = count * size_of(type);
  chunk.begin = begin;
  chunk.count = count;
  chunk.own.resize(bytes);
  copy(buffers, begin, count, chunk.own.data(), false);
  const auto& row = round.rows[static_cast<std::size_t>(world_.rank())];
  chunk.heard.resize(row.size());
  std::vector<Work> works;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i].from == world_.rank()) continue;
    chunk.heard[i].resize(bytes);
    works.push_back(
        world_.recv({chunk.heard[i].data(), count, type}, row[i].from, kTag, {.label = "gossip"}));
  }
  for (const int peer : round.receivers(world_.rank())) {
    works.push_back(world_.send({chunk.own.data(), count, type}, peer, kTag, {.label = "gossip"}));
    if (on_message_) on_message_(peer, bytes, false);
  }
  chunk.work = Work::all(works);
}

void GossipMixer::finish(const plan::MixingRound& round, std::span<const Buffer> buffers,
                         Chunk& chunk) {
  chunk.work.wait();
  const auto& row = round.rows[static_cast<std::size_t>(world_.rank())];
  std::vector<double> weights;
  std::vector<const std::byte*> in;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool own = row[i].from == world_.rank();
    weights.push_back(row[i].weight);
    in.push_back(own ? chunk.own.data() : chunk.heard[i].data());
    if (!own && on_message_) on_message_(row[i].from, chunk.heard[i].size(), true);
  }
  buffers[0].dtype == DType::F32 ? weighted_sum<float>(weights, in, chunk.own.data(), chunk.count)
                                 : weighted_sum<double>(weights, in, chunk.own.data(), chunk.count);
  copy(buffers, chunk.begin, chunk.count, chunk.own.data(), true);
}

}  // namespace trireme::inline v0::comm
