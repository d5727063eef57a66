#include "trireme/comm/negotiate/negotiate_table.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {

constexpr int kMostNamed = 10;  // of the ranks that are missing

NegotiationTable::NegotiationTable(const GroupFacts& facts, std::size_t cached_names)
    : facts_(facts), size_(facts.size), cached_names_(cached_names) {}

std::string NegotiationTable::name_of(int rank) const {
  return "rank " + std::to_string(facts_.world_rank(rank));
}

void NegotiationTable::hear(int rank, Record record, std::vector<Record>& answers) {
  switch (record.kind) {
    case RecordKind::Ready:
      return ready(rank, record.name, record.signature, answers);
    case RecordKind::ReadyByNumber: {
      if (record.number == Record::kNoNumber || record.number > by_number_.size()) break;
      const auto known = by_number_[record.number - 1];
      return ready(rank, known.first, known.second, answers);
    }
    case RecordKind::Overdue:
      return refuse_overdue(rank, record.name, answers);
    case RecordKind::Bye:
      if (++byes_ == size_) answers.push_back({.kind = RecordKind::Bye});
      return;
    default:
      break;
  }
  throw RefusedError(name_of(rank) + " sent an invalid record");
}

void NegotiationTable::ready(int rank, const std::string& name, const Signature& signature,
                             std::vector<Record>& answers) {
  const auto at = static_cast<std::size_t>(rank);
  if (const auto refused = refused_.find(name); refused != refused_.end()) {
    std::deque<Refused>& all = refused->second;
    const auto first =
        std::find_if(all.begin(), all.end(), [at](const Refused& one) { return one.owed[at]; });
    if (first != all.end()) {
      first->owed[at] = false;
      answers.push_back(first->record);
      answers.back().to = rank;
      if (--first->left == 0) all.erase(first);
      if (all.empty()) refused_.erase(refused);
      return;
    }
  }
  Row& row = rows_[name];
  if (row.count == 0) {
    row.from.assign(static_cast<std::size_t>(size_), false);
    row.first = rank;
    row.signature = signature;
  } else if (!(row.signature == signature)) {
    row.from[at] = true;
    return refuse(row,
                  {.kind = RecordKind::Refuse,
                   .code = static_cast<std::int32_t>(ExitCode::Mismatch),
                   .name = name,
                   .text = name_of(row.first) + " submitted " + text_of(row.signature) + ", " +
                           name_of(rank) + " " + text_of(signature)},
                  answers);
  }
  if (row.from[at]) return;
  row.from[at] = true;
  if (++row.count < size_) return;
  rows_.erase(name);
  go(name, signature, answers);
}

void NegotiationTable::go(const std::string& name, const Signature& signature,
                          std::vector<Record>& answers) {
  const auto known = numbers_.find(name);
  if (known != numbers_.end() && by_number_[known->second - 1].second == signature) {
    answers.push_back({.kind = RecordKind::GoByNumber, .number = known->second});
    return;
  }
  Record record{.kind = RecordKind::Go, .signature = signature, .name = name};
  if (by_number_.size() < cached_names_) {
    by_number_.emplace_back(name, signature);
    record.number = numbers_[name] = static_cast<std::uint32_t>(by_number_.size());
  }
  answers.push_back(std::move(record));
}

std::string NegotiationTable::missing(const Row& row) const {
  std::string ranks;
  int count = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (row.from[static_cast<std::size_t>(rank)]) continue;
    if (++count > kMostNamed) continue;
    ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(facts_.world_rank(rank));
    // A name that this rank has submitted and others have not.
    for (const auto& [name, other] : rows_) {
      if (!other.from[static_cast<std::size_t>(rank)]) continue;
      ranks += " (which waits for " + name + ")";
      break;
    }
  }
  return count > kMostNamed ? ranks + " and " + std::to_string(count - kMostNamed) + " more"
                            : ranks;
}

void NegotiationTable::refuse_overdue(int rank, const std::string& name,
                                      std::vector<Record>& answers) {
  const auto found = rows_.find(name);
  // If there is no such row, its Go is already on the way to `rank`.
  if (found == rows_.end() || !found->second.from[static_cast<std::size_t>(rank)]) return;
  refuse(found->second,
         {.kind = RecordKind::Refuse,
          .code = static_cast<std::int32_t>(ExitCode::Timeout),
          .name = name,
          .text = "not submitted by " + missing(found->second)},
         answers);
}

void NegotiationTable::refuse(Row& row, Record record, std::vector<Record>& answers) {
  Refused refused{record, row.from, 0};
  refused.owed.flip();
  for (int rank = 0; rank < size_; ++rank) {
    if (refused.owed[static_cast<std::size_t>(rank)]) {
      ++refused.left;
    } else {
      answers.push_back(record);
      answers.back().to = rank;
    }
  }
  rows_.erase(record.name);
  if (refused.left > 0) refused_[record.name].push_back(std::move(refused));
}

}  // namespace trireme::inline v0::comm
