#include "trireme/layers/shared_sums.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "trireme/base/check.h"

namespace trireme::inline v0::parallel {
namespace {

using optim::ChunkSum;
using LeafCounts = std::vector<std::size_t>;

class GatheredSums final : public optim::SharedSums {
 public:
  explicit GatheredSums(comm::Communicator& world) : world_(world) {}

  void complete(std::span<ChunkSum> sums) override {
    learn(sums);
    std::vector<ChunkSum*> split;
    for (ChunkSum& sum : sums)
      if (sum.width() > 0 && owners_.contains(sum.parameter())) split.push_back(&sum);
    if (split.empty()) return;
    add_all(split, gather(split));
  }

 private:
  // The chunks of one parameter that each rank owns.
  using Owners = std::vector<kernel::LeafRange>;

  struct Gathered {
    std::vector<std::int64_t> intervals;  // first and count of every node's values
    std::vector<double> values;
    LeafCounts interval_begin, value_begin;  // per rank, in `intervals` and `values`
  };

  // Learns from the first sums which parameters are split, and among which ranks.
  void learn(std::span<ChunkSum> sums) {
    if (known_) return;
    known_ = true;
    std::map<std::uint32_t, kernel::LeafRange> mine;
    for (const ChunkSum& sum : sums) {
      kernel::LeafRange& range = mine[sum.parameter()];
      for (const ChunkSum::Node& node : sum.nodes()) {
        if (range.count == 0) range = {node.chunks.first, 0};
        if (node.chunks.end() > range.end()) range.count = node.chunks.end() - range.first;
      }
    }
    std::vector<std::uint32_t> own;
    for (const auto& [parameter, range] : mine) own.insert(own.end(), {range.first, range.count});
    const auto size = static_cast<std::size_t>(world_.size());
    std::vector<std::int32_t> sent(own.begin(), own.end()), all(own.size() * size);
    world_
        .all_gather(Buffer::of(std::span(sent)), Buffer::of(std::span(all)),
                    {.label = "owners of chunks"})
        .wait();
    std::size_t index = 0;
    for (const auto& [parameter, range] : mine) {
      Owners owners;
      for (std::size_t rank = 0; rank < size; ++rank) {
        const std::int32_t* entry = &all[rank * own.size() + 2 * index];
        owners.push_back(
            {static_cast<std::uint32_t>(entry[0]), static_cast<std::uint32_t>(entry[1])});
      }
      const auto parts = std::count_if(owners.begin(), owners.end(),
                                       [](kernel::LeafRange one) { return one.count > 0; });
      if (parts > 1) owners_[parameter] = std::move(owners);
      ++index;
    }
  }

  Gathered gather(const std::vector<ChunkSum*>& split) {
    const auto size = static_cast<std::size_t>(world_.size());
    LeafCounts interval_counts(size, 0), value_counts(size, 0);
    for (const ChunkSum* sum : split)
      for (std::size_t rank = 0; rank < size; ++rank)
        interval_counts[rank] += 2 * nodes_of(*sum, rank).size();
    std::vector<std::int64_t> intervals;
    std::vector<double> values;
    for (const ChunkSum* sum : split) {
      for (const ChunkSum::Node& node : sum->nodes()) {
        intervals.push_back(static_cast<std::int64_t>(node.first));
        intervals.push_back(static_cast<std::int64_t>(node.values.size()));
        values.insert(values.end(), node.values.begin(), node.values.end());
      }
    }
    Gathered all;
    all.interval_begin = begins(interval_counts);
    all.intervals.resize(all.interval_begin.back());
    gather_v(intervals, all.intervals, interval_counts, "intervals of chunk sums");
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t i = all.interval_begin[rank]; i < all.interval_begin[rank + 1]; i += 2)
        value_counts[rank] += static_cast<std::size_t>(all.intervals[i + 1]);
    all.value_begin = begins(value_counts);
    all.values.resize(all.value_begin.back());
    gather_v(values, all.values, value_counts, "chunk sums");
    return all;
  }

  void add_all(const std::vector<ChunkSum*>& split, Gathered all) {
    for (ChunkSum* sum : split) {
      std::vector<ChunkSum::Node> nodes;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_.size()); ++rank) {
        for (const kernel::LeafRange chunks : nodes_of(*sum, rank)) {
          std::size_t& interval = all.interval_begin[rank];
          std::size_t& value = all.value_begin[rank];
          const auto first = static_cast<std::size_t>(all.intervals[interval]);
          const auto count = static_cast<std::size_t>(all.intervals[interval + 1]);
          const double* begin = all.values.data() + value;
          nodes.push_back({chunks, first, {begin, begin + count}});
          interval += 2;
          value += count;
        }
      }
      if (sum->nodes().empty()) continue;  // this rank owns none of it
      std::sort(nodes.begin(), nodes.end(),
                [](const auto& a, const auto& b) { return a.chunks < b.chunks; });
      ChunkSum whole(sum->parameter(), sum->num_chunks(), sum->width());
      for (ChunkSum::Node& node : nodes) whole.add(std::move(node));
      sum->complete(whole.total());
    }
  }

  std::vector<kernel::LeafRange> nodes_of(const ChunkSum& sum, std::size_t rank) const {
    return kernel::maximal_nodes(owners_.at(sum.parameter())[rank], sum.num_chunks());
  }

  static LeafCounts begins(const LeafCounts& counts) {
    LeafCounts begin(counts.size() + 1, 0);
    std::partial_sum(counts.begin(), counts.end(), begin.begin() + 1);
    return begin;
  }

  template <class T>
  void gather_v(std::vector<T>& mine, std::vector<T>& all, const LeafCounts& counts,
                std::string_view label) {
    TRIREME_CHECK(mine.size() == counts[static_cast<std::size_t>(world_.rank())]);
    world_
        .all_gather_v(Buffer::of(std::span<T>(mine)), Buffer::of(std::span<T>(all)), counts,
                      {.label = label})
        .wait();
  }

  comm::Communicator& world_;
  bool known_ = false;
  std::map<std::uint32_t, Owners> owners_;  // of split parameters
};

}  // namespace

std::shared_ptr<optim::SharedSums> make_shared_sums(comm::Communicator& world) {
  return std::make_shared<GatheredSums>(world);
}

}  // namespace trireme::inline v0::parallel
