// All of a Service as one text and one piece of memory, for another copy of its shard. The memory
// has, in this order: the weights, the optimizer's state and the rows of tables (saved.h), the
// weights before the last update (if the shard predicts), the folded sum of the parameters, the sum
// of each table's rows and the rows that it keeps, the weights that workers have, the squares of
// the sums, and the terms of the round that is collected.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/ps/server/service.h"

namespace trireme::inline v0::ps {
namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

// Takes parts of a memory from its front.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::span<const std::byte> memory) : left_(memory) {}
  std::span<const std::byte> take(std::size_t bytes) {
    if (bytes > left_.size()) throw MismatchError("a copy of a shard has fewer bytes than it says");
    const auto part = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return part;
  }
  std::vector<std::byte> take_copy(std::size_t bytes) {
    const auto part = take(bytes);
    return {part.begin(), part.end()};
  }
  void take_into(std::span<std::byte> to) {
    const auto part = take(to.size());
    std::copy(part.begin(), part.end(), to.begin());
  }

 private:
  std::span<const std::byte> left_;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ledger::Worker, client, last, clock, pushes, dropped, late,
                                   repeated, last_late)

namespace {

std::size_t append_rows(std::vector<std::byte>& to, const SparseRows& rows) {
  append(to, std::as_bytes(rows.view().ids));
  append(to, std::as_bytes(std::span(rows.view().rows, rows.size() * rows.width())));
  return rows.size();
}

void restore_rows(std::size_t count, SnapshotReader& from, SparseRows& to) {
  std::vector<std::int64_t> ids(count);
  std::vector<float> rows(count * to.width());
  from.take_into(std::as_writable_bytes(std::span(ids)));
  from.take_into(std::as_writable_bytes(std::span(rows)));
  to.clear();
  for (std::size_t i = 0; i < count; ++i) to.keep(ids[i], &rows[i * to.width()]);
}

// Returns, for each table, the number of rows in its sum and the number of rows that it keeps.
nlohmann::json append_rows(std::vector<std::byte>& to, RowShard& shard) {
  nlohmann::json counts = nlohmann::json::array();
  for (std::size_t i = 0; i < shard.num_tables(); ++i) {
    const SparseRows* previous = shard.previous(i);
    nlohmann::json& both = counts.emplace_back(nlohmann::json::array());
    both.push_back(append_rows(to, shard.sums()[i]));
    both.push_back(previous != nullptr ? append_rows(to, *previous) : 0);
  }
  return counts;
}

void restore_rows(const nlohmann::json& counts, SnapshotReader& from, RowShard& shard) {
  if (counts.size() != shard.num_tables())
    throw MismatchError("a copy of a shard has other tables");
  for (std::size_t i = 0; i < shard.num_tables(); ++i) {
    restore_rows(counts[i].at(0).get<std::size_t>(), from, shard.sums()[i]);
    if (SparseRows* previous = shard.previous(i))
      restore_rows(counts[i].at(1).get<std::size_t>(), from, *previous);
  }
}

}  // namespace

nlohmann::json Rounds::snapshot(std::vector<std::byte>& memory) const {
  append(memory, std::as_bytes(std::span(squares_)));
  nlohmann::json parts = nlohmann::json::array();
  for (const auto& [worker, part] : parts_) {
    parts.push_back({worker, part.client, to_text(part.request), part.memory.size()});
    append(memory, part.memory);
  }
  return {{"number", number_},          {"total", total_},         {"done", done_},
          {"members", members_},        {"committed", committed_}, {"not_finite", not_finite_},
          {"squares", squares_.size()}, {"parts", parts}};
}

void Rounds::restore(const nlohmann::json& json, SnapshotReader& from, const Shard* shard) {
  json.at("number").get_to(number_);
  json.at("total").get_to(total_);
  json.at("done").get_to(done_);
  json.at("members").get_to(members_);
  json.at("committed").get_to(committed_);
  json.at("not_finite").get_to(not_finite_);
  squares_.resize(json.at("squares").get<std::size_t>());
  from.take_into(std::as_writable_bytes(std::span(squares_)));
  parts_.clear();
  for (const auto& one : json.at("parts")) {
    if (shard == nullptr) throw MismatchError("a copy of a shard has terms and no parameters");
    Contribution& part = parts_[one.at(0).get<int>()];
    part.client = one.at(1).get<int>();
    const auto request = one.at(2).get<std::string>();
    part.request = request_from(std::as_bytes(std::span(request)));
    part.own = from.take_copy(one.at(3).get<std::size_t>());
    part.memory = part.own;
    part.terms = terms_of(part.request, part.memory, *shard);
  }
}

Saved Service::snapshot() {
  finish();
  release();
  nlohmann::json json{{"ready", ready_},           {"version", version_},
                      {"epoch", epoch_},           {"attempt", attempt_},
                      {"squares_of", squares_of_}, {"has_weights", has_weights_}};
  Saved all;
  if (settings_) {
    Saved shard = save(*shard_, version_);
    json["settings"] = settings_->to_text();
    json["shard"] = shard.text;
    json["shard_bytes"] = shard.memory.size();
    json["workers"] = ledger_->workers();
    json["histogram"] = ledger_->histogram();
    all.memory = std::move(shard.memory);
    append(all.memory, shard_->earlier());
    append(all.memory, shard_->sum());
    json["rows"] = append_rows(all.memory, shard_->rows());
  }
  auto& waiting = json["waiting"] = nlohmann::json::array();
  for (const Waiting& one : waiting_)
    waiting.push_back({one.client, one.worker, to_text(one.reply)});
  auto& before = json["before"] = nlohmann::json::array();
  for (const auto& [worker, weights] : before_) {
    before.push_back({worker, weights.size()});
    append(all.memory, weights);
  }
  json["rounds"] = rounds_.snapshot(all.memory);
  all.text = json.dump();
  return all;
}

void Service::restore(std::string_view text, std::span<const std::byte> memory) {
  SnapshotReader from(memory);
  try {
    const auto json = nlohmann::json::parse(text);
    settings_.reset(), ledger_.reset();
    if (json.contains("settings")) {
      settings_ = Settings::from_text(json.at("settings").get<std::string>());
      if (server_ >= settings_->model.servers()) throw MismatchError("there is no such shard");
      shard_ = make_shard(*settings_, server_, spread_);
      fill(*shard_, json.at("shard").get<std::string>(),
           from.take(json.at("shard_bytes").get<std::size_t>()), 0);
      from.take_into(shard_->earlier());
      from.take_into(shard_->sum());
      restore_rows(json.at("rows"), from, shard_->rows());
      ledger_.emplace(settings_->server.bound());
      ledger_->restore(json.at("workers").get<std::map<int, Ledger::Worker>>(),
                       json.at("histogram").get<std::map<std::int64_t, std::int64_t>>());
    }
    json.at("ready").get_to(ready_);
    json.at("version").get_to(version_);
    json.at("epoch").get_to(epoch_);
    json.at("attempt").get_to(attempt_);
    json.at("squares_of").get_to(squares_of_);
    json.at("has_weights").get_to(has_weights_);
    waiting_.clear(), before_.clear();
    for (const auto& one : json.at("waiting")) {
      const auto reply = one.at(2).get<std::string>();
      waiting_.push_back({one.at(0).get<int>(), one.at(1).get<int>(),
                          reply_from(std::as_bytes(std::span(reply)))});
    }
    for (const auto& one : json.at("before"))
      before_[one.at(0).get<int>()] = from.take_copy(one.at(1).get<std::size_t>());
    rounds_.restore(json.at("rounds"), from, shard_.get());
  } catch (const nlohmann::json::exception&) {
    throw MismatchError("a copy of a shard has a description that cannot be read");
  }
}

}  // namespace trireme::inline v0::ps
