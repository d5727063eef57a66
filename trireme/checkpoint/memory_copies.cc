#include "trireme/checkpoint/memory_copies.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/group_of_all.h"
#include "trireme/comm/texts.h"
#include "trireme/storage/saved_tensors.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::checkpoint {

// A shard's place in the memory that holds all shards of a rank.
struct MemoryCopies::Row {
  std::string part, name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
  bool row_of_rank = false;
  std::size_t offset = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(end - begin) * size_of(dtype); }
  std::string tensor() const { return part + '/' + name; }
  bool operator==(const Row&) const = default;
};

namespace {

using nlohmann::json;
using Row = MemoryCopies::Row;

constexpr std::size_t kAlignment = 64;

bool same_tensor(const Row& a, const Row& b) {
  return a.name == b.name && a.part == b.part && a.dtype == b.dtype && a.shape == b.shape;
}

// A tensor that is cut by columns has very many rows, but one run.
json runs_of(const std::vector<Row>& rows) {
  std::vector<std::pair<const Row*, storage::Run>> runs;
  for (const Row& row : rows)
    if (runs.empty() || !same_tensor(*runs.back().first, row) ||
        !runs.back().second.take(row.begin, row.end))
      runs.push_back({&row, {row.begin, row.end - row.begin, 0, 1}});
  json table = json::array();
  for (const auto& [row, run] : runs)
    table.push_back({row->part, row->name, static_cast<int>(row->dtype), row->shape, run.begin,
                     run.length, run.stride, run.count, row->row_of_rank});
  return table;
}

std::vector<Row> rows_from(const json& table) {
  std::vector<Row> rows;
  for (const json& from : table) {
    Row row{.part = from[0].get<std::string>(),
            .name = from[1].get<std::string>(),
            .dtype = static_cast<DType>(from[2].get<int>()),
            .shape = from[3].get<std::vector<std::int64_t>>(),
            .row_of_rank = from[8].get<bool>()};
    const storage::Run run{from[4], from[5], from[6], from[7]};
    for (std::int64_t i = 0; i < run.count; ++i) {
      row.begin = run.begin + i * run.stride;
      row.end = row.begin + run.length;
      rows.push_back(row);
    }
  }
  return rows;
}

// Gives the rows their offsets; returns the bytes of all.
std::size_t place(std::vector<Row>& rows) {
  std::size_t at = 0;
  for (Row& row : rows) {
    row.offset = at;
    at += (row.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return at;
}

std::vector<Row> rows_of(const Shards& shards) {
  std::vector<Row> rows;
  for (const auto& [part, shard] : shards)
    rows.push_back(
        {part, shard.name, shard.dtype, shard.shape, shard.begin, shard.end, shard.row_of_rank});
  return rows;
}

// The rows that ranks which stay have, by tensor.
class Holders {
 public:
  Holders(const std::vector<std::vector<Row>>& all, const std::set<int>& leaving) {
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
      if (!leaving.contains(rank))
        for (const Row& row : all[static_cast<std::size_t>(rank)])
          held_[row.tensor()].push_back({row.begin, {row.end, rank}, {}});
    for (auto& [tensor, rows] : held_) {
      std::sort(rows.begin(), rows.end(),
                [](const RowReach& a, const RowReach& b) { return a.begin < b.begin; });
      for (std::size_t i = 1; i < rows.size(); ++i) join(rows[i], rows[i - 1]);
    }
  }

  /// Whether a rank other than `rank` has all elements of the row in one shard.
  bool is_elsewhere(const Row& row, int rank) const {
    const auto found = held_.find(row.tensor());
    if (found == held_.end()) return false;
    const auto after =
        std::upper_bound(found->second.begin(), found->second.end(), row.begin,
                         [](std::int64_t begin, const RowReach& one) { return begin < one.begin; });
    if (after == found->second.begin()) return false;
    const RowReach& held = *std::prev(after);
    return (held.first.rank == rank ? held.second : held.first).end >= row.end;
  }

 private:
  struct Reach {
    std::int64_t end = -1;
    int rank = -1;
  };
  // A row. `first`: the furthest end of all rows that begin no later, and its rank. `second`: the
  // furthest end on any other rank.
  struct RowReach {
    std::int64_t begin;
    Reach first, second;
  };
  static void join(RowReach& into, const RowReach& before) {
    for (const Reach& one : {before.first, before.second}) {
      if (one.end > into.first.end) {
        if (into.first.rank != one.rank) into.second = into.first;
        into.first = one;
      } else if (one.rank != into.first.rank && one.end > into.second.end) {
        into.second = one;
      }
    }
  }

  std::map<std::string, std::vector<RowReach>> held_;
};

// The next ranks after `rank`, first those on other hosts.
std::vector<int> partners_of(int rank, const std::vector<std::string>& hosts, int copies) {
  const int size = static_cast<int>(hosts.size());
  std::vector<int> others;
  for (int distance = 1; distance < size; ++distance) others.push_back((rank + distance) % size);
  std::stable_partition(others.begin(), others.end(),
                        [&](int other) { return hosts[other] != hosts[rank]; });
  others.resize(std::min<std::size_t>(others.size(), static_cast<std::size_t>(copies)));
  return others;
}

// Adds shards whose memory is a part of `memory`.
void add_shards(KeptStep& step, const std::vector<Row>& rows, const at::Tensor& memory) {
  for (const Row& row : rows) {
    NamedShard shard{.name = row.name,
                     .dtype = row.dtype,
                     .shape = row.shape,
                     .begin = row.begin,
                     .end = row.end,
                     .row_of_rank = row.row_of_rank};
    shard.local = at::from_blob(
        static_cast<std::byte*>(memory.data_ptr()) + row.offset, {row.end - row.begin},
        [memory](void*) {}, at::TensorOptions(tensor::scalar_type_of(row.dtype)));
    step.shards.emplace_back(row.part, std::move(shard));
  }
}

}  // namespace

// Which rank has and sends what. Stays until a part has other shards.
struct MemoryCopies::Layout {
  std::vector<Row> given;          // of own_state(), in its order
  std::vector<std::size_t> order;  // of the shards in memory: those that are sent come first
  std::vector<Row> own;            // in that order
  std::size_t own_bytes = 0, sent_bytes = 0;
  std::vector<int> to;  // ranks
  struct From {
    int rank = 0;
    std::vector<Row> rows;
    std::size_t bytes = 0;
  };
  std::vector<From> from;
  bool needed = false;  // equal on all ranks
};

struct MemoryCopies::Generation {
  std::int64_t steps_done = 0;
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const Layout> layout;
  at::Tensor own;
  std::vector<at::Tensor> theirs;  // as Layout::from
  std::vector<Work> works;
  std::int64_t completed = -1;  // the call in which this rank had waited for the works
};

MemoryCopies::MemoryCopies(Job& job, const MemoryCopyOptions& options)
    : job_(job), options_(options) {}

// Others may still read or write the memory of copies that are on their way.
MemoryCopies::~MemoryCopies() { settle(); }

void MemoryCopies::settle() noexcept {
  for (const Generation& one : generations_)
    for (const Work& work : one.works) try {
        work.wait();
      } catch (const std::exception&) {
        // A rank is lost; nobody touches the memory any more.
      }
}

// Exchanges the tables of all ranks, and derives from them what each one sends where.
void MemoryCopies::lay_out(std::vector<Row> rows) {
  const int rank = job_.rank(), size = job_.size();
  const json mine{{"host", job_.host_name()}, {"rows", runs_of(rows)}};
  std::vector<std::string> hosts;
  std::vector<std::vector<Row>> all;
  for (const std::string& text : comm::exchange_texts(mine.dump(), job_.world(), "memory copies")) {
    const json other = json::parse(text);
    hosts.push_back(other["host"].get<std::string>());
    all.push_back(rows_from(other["rows"]));
  }
  const Holders holders(all, leaving_);
  auto layout = std::make_shared<Layout>();
  // Ranks that survive may be a step apart: then they have all parts only of the step before.
  const bool in_parts =
      std::any_of(all.begin(), all.end(), [&](const auto& one) { return one != all.front(); });
  layout->needed = leaving_.empty() && in_parts;
  for (int one = 0; one < size; ++one) {
    std::vector<Row> sole;
    for (const Row& row : all[one])
      if (!holders.is_elsewhere(row, one)) sole.push_back(row);
    layout->needed = layout->needed || !sole.empty();
    const std::size_t bytes = place(sole);
    for (const int partner : receivers_of(one, hosts)) {
      if (one == rank && bytes > 0) layout->to.push_back(partner);
      if (partner == rank && bytes > 0) layout->from.push_back({one, sole, bytes});
    }
    if (one == rank) layout->sent_bytes = bytes;
  }
  layout->order.resize(rows.size());
  std::iota(layout->order.begin(), layout->order.end(), 0u);
  std::stable_partition(layout->order.begin(), layout->order.end(), [&](std::size_t index) {
    return !holders.is_elsewhere(rows[index], rank);
  });
  for (const std::size_t index : layout->order) layout->own.push_back(rows[index]);
  layout->own_bytes = place(layout->own);
  layout->given = std::move(rows);
  layout_ = std::move(layout);
}

std::vector<int> MemoryCopies::receivers_of(int rank, const std::vector<std::string>& hosts) const {
  if (leaving_.empty()) return partners_of(rank, hosts, options_.copies);
  if (!leaving_.contains(rank)) return {};
  std::vector<int> others = partners_of(rank, hosts, job_.size() - 1);
  std::erase_if(others, [this](int other) { return leaving_.contains(other); });
  others.resize(std::min<std::size_t>(others.size(), 1));
  return others;
}

// Collective: not every rank has heard of the next epoch yet.
std::set<int> MemoryCopies::leaving_ranks() const {
  const auto next = job_.changes().next();
  const json mine = next ? json{next->number, next->members} : json{0, json::array()};
  json newest = mine;
  for (const std::string& text : comm::exchange_texts(mine.dump(), job_.world(), "next ranks"))
    if (json other = json::parse(text); other[0] > newest[0]) newest = std::move(other);
  const auto stay = newest[1].get<std::set<int>>();
  const std::vector<int> members = job_.changes().epoch().members;
  std::set<int> leaving;
  for (int rank = 0; rank < job_.size(); ++rank)
    if (!stay.contains(members.at(static_cast<std::size_t>(rank)))) leaving.insert(rank);
  return leaving;
}

void MemoryCopies::hand_over(const Parts& parts, std::int64_t steps_done,
                             const std::map<std::string, std::string>& metadata) {
  leaving_ = leaving_ranks();
  if (leaving_.empty() || static_cast<int>(leaving_.size()) == job_.size()) return;
  layout_.reset();
  begin(parts, steps_done, metadata);
  ++calls_;
  for (Generation& one : generations_) {
    Work::all(one.works).wait();
    one.completed = calls_;
  }
  try {
    job_.world().barrier().wait();  // no rank leaves before the others have its shards
  } catch (const Error&) {
    // A rank that has passed the barrier may be gone already.
  }
}

void MemoryCopies::begin(const Parts& parts, std::int64_t steps_done,
                         const std::map<std::string, std::string>& metadata) {
  const Shards shards = own_shards(parts);
  if (std::vector<Row> rows = rows_of(shards); !layout_ || layout_->given != rows)
    lay_out(std::move(rows));
  if (!layout_->needed) return;
  if (!group_) group_ = comm::group_of_all(job_.world(), "memory copies");
  const auto memory = [](std::size_t bytes) {
    return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte));
  };
  const auto bytes_of = [](const at::Tensor& tensor, std::size_t bytes) {
    return Buffer::of(std::span(static_cast<std::uint8_t*>(tensor.data_ptr()), bytes));
  };
  Generation next{.steps_done = steps_done, .metadata = metadata, .layout = layout_};
  next.own = memory(layout_->own_bytes);
  for (std::size_t i = 0; i < layout_->own.size(); ++i) {
    const at::Tensor shard = tensor::on_host(shards[layout_->order[i]].second.local);
    std::memcpy(static_cast<std::byte*>(next.own.data_ptr()) + layout_->own[i].offset,
                shard.data_ptr(), layout_->own[i].bytes());
  }
  for (const Layout::From& from : layout_->from) {
    next.theirs.push_back(memory(from.bytes));
    next.works.push_back(group_->recv(bytes_of(next.theirs.back(), from.bytes), from.rank, 0,
                                      {.label = "memory copy"}));
  }
  for (const int rank : layout_->to)
    next.works.push_back(
        group_->send(bytes_of(next.own, layout_->sent_bytes), rank, 0, {.label = "memory copy"}));
  generations_.push_back(std::move(next));
  count();
}

void MemoryCopies::count() {
  costs_.copy_bytes_sent += static_cast<std::int64_t>(layout_->sent_bytes * layout_->to.size());
  std::size_t bytes = 0;
  for (const Generation& one : generations_) {
    bytes += one.layout->own_bytes;
    for (const Layout::From& from : one.layout->from) bytes += from.bytes;
  }
  costs_.copy_bytes = std::max(costs_.copy_bytes, static_cast<std::int64_t>(bytes));
}

void MemoryCopies::after(const Parts& parts, std::int64_t steps_done,
                         const std::map<std::string, std::string>& metadata, bool now) {
  if (options_.copies == 0 || job_.size() == 1) return;
  ++calls_;
  const TimePoint start = job_.waiter()->now();
  for (Generation& one : generations_) {
    if (one.completed >= 0) continue;
    Work::all(one.works).wait();
    one.completed = calls_;
  }
  costs_.copy_wait += job_.waiter()->now() - start;
  while (generations_.size() > 1 && is_confirmed(generations_[1])) generations_.pop_front();
  if (now || steps_done % options_.every == 0) begin(parts, steps_done, metadata);
}

// A vote of all ranks lies between two calls.
bool MemoryCopies::is_confirmed(const Generation& one) const {
  return one.completed >= 0 && one.completed < calls_;
}

bool MemoryCopies::confirmed() const {
  if (options_.copies == 0 || job_.size() == 1 || (layout_ && !layout_->needed)) return true;
  return std::any_of(generations_.begin(), generations_.end(),
                     [this](const Generation& one) { return is_confirmed(one); });
}

void MemoryCopies::move_to(KeptState& kept) {
  settle();
  for (Generation& one : generations_) {
    KeptStep step{.steps_done = one.steps_done, .metadata = std::move(one.metadata)};
    add_shards(step, one.layout->own, one.own);
    if (one.completed >= 0)
      for (std::size_t i = 0; i < one.theirs.size(); ++i)
        add_shards(step, one.layout->from[i].rows, one.theirs[i]);
    kept.add(std::move(step));
  }
  generations_.clear();
}

}  // namespace trireme::inline v0::checkpoint
