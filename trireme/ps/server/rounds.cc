#include "trireme/ps/server/rounds.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/ps/rows/row_message.h"

namespace trireme::inline v0::ps {
namespace {

// The rows of terms (of each table, node by node), grouped by node.
std::vector<std::vector<RowsView>> by_node(const std::vector<RowsView>& rows, std::size_t tables) {
  std::vector<std::vector<RowsView>> nodes;
  for (std::size_t i = 0; i < rows.size(); i += tables)
    nodes.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(i),
                       rows.begin() + static_cast<std::ptrdiff_t>(i + tables));
  return nodes;
}

}  // namespace

// Views of a worker's terms in `memory`: the parameters, and for each node the rows of each table.
Terms Rounds::terms_of(const Request& request, std::span<const std::byte> memory,
                       const Shard& shard) {
  const std::size_t nodes = request.nodes.size();
  const auto [dense, rows] =
      divided(shard.rows().tables(), nodes, request.rows, memory, nodes * shard.sum().size());
  shard.rows().check(rows);
  return {request.nodes, dense, by_node(rows, shard.rows().num_tables())};
}

void Rounds::check(const Request& request, const Terms& terms, const Shard& shard) const {
  const std::size_t bytes = terms.memory.size();
  if (request.round > number_)
    throw MismatchError("it is in round " + std::to_string(request.round) + ", the server in " +
                        std::to_string(number_));
  if (request.nodes.size() > 64 || bytes != request.nodes.size() * shard.sum().size())
    throw MismatchError("it sends " +
                        counted(static_cast<std::int64_t>(request.nodes.size()), "term") + " in " +
                        std::to_string(bytes) + " bytes");
  for (const kernel::LeafRange& node : request.nodes)
    if (node.count == 0 || node.end() > request.total || !kernel::is_node(node, request.total))
      throw MismatchError("it sends a term that is no node of the sum");
  if (!parts_.empty() && request.total != total_)
    throw MismatchError("its batch has " + std::to_string(request.total) +
                        " micro-batches, that of another worker " + std::to_string(total_));
}

Rounds::Taken Rounds::take(int client, const Request& request, std::span<const std::byte> memory,
                           const Shard& shard) {
  readers_.erase(request.worker);
  Terms terms = terms_of(request, memory, shard);
  check(request, terms, shard);
  if (request.round + 1 == number_ && members_.contains(request.worker)) return Taken::Repeated;
  if (request.round < number_) return Taken::Late;
  total_ = request.total;
  parts_[request.worker] = {
      .client = client, .request = request, .terms = std::move(terms), .memory = memory};
  return Taken::Collected;
}

bool Rounds::complete(int workers, int backup) const {
  const int there = workers - static_cast<int>(done_.size());
  const int needed = std::max(std::min(workers - backup, there), 1);
  return static_cast<int>(parts_.size()) >= needed && readers_.empty();
}

Rounds::Closed Rounds::close(Shard& shard) {
  std::vector<Terms> terms;
  for (const auto& [worker, part] : parts_)
    if (!part.terms.nodes.empty()) terms.push_back(part.terms);
  shard.fold(terms, total_);
  squares_ = shard.chunk_squares();
  for (const ExactSum& table : shard.rows().squares())
    for (const std::uint64_t limb : table.limbs()) squares_.push_back(std::bit_cast<double>(limb));
  const auto broken = shard.first_not_finite();
  not_finite_ = broken ? static_cast<std::int64_t>(*broken) : -1;
  committed_ = false;
  ++number_;
  members_.clear();
  Closed closed{.clients = clients()};
  if (!parts_.empty()) {
    const Request& first = parts_.begin()->second.request;
    closed.rate = first.rate, closed.scale = first.scale;
  }
  for (const auto& [worker, client] : closed.clients) members_.insert(worker);
  parts_.clear();
  return closed;
}

Rounds::Commit Rounds::commit(std::int64_t round) {
  if (round + 1 != number_) return Commit::Over;
  return std::exchange(committed_, true) ? Commit::Again : Commit::First;
}

std::map<int, int> Rounds::clients() const {
  std::map<int, int> all;
  for (const auto& [worker, part] : parts_) all.emplace(worker, part.client);
  return all;
}

void Rounds::restart(bool closed, int workers) {
  committed_ = true;
  number_ = closed ? 1 : 0;
  members_.clear();
  for (int worker = 0; closed && worker < workers; ++worker) members_.insert(worker);
}

}  // namespace trireme::inline v0::ps
