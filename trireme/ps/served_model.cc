#include "trireme/ps/served_model.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shape_text.h"
#include "trireme/base/words.h"
#include "trireme/sync/levels/ownership.h"

namespace trireme::inline v0::ps {
namespace {

constexpr int kMostServers = 65'536;
constexpr std::size_t kAlignment = 64;

std::string describe(const ServedParameter& parameter) {
  return tensor_text(parameter.dtype, parameter.shape) +
         (parameter.decay ? "" : " without weight decay");
}

[[noreturn]] void refuse_text() {
  refuse("parameter server", "the description of a served model cannot be read",
         "Run the same version of Trireme in all processes.");
}

ServedParameter parameter_of(const nlohmann::json& one) {
  ServedParameter parameter{.name = one.at("name").get<std::string>(),
                            .shape = one.at("shape").get<std::vector<std::int64_t>>(),
                            .decay = one.at("decay").get<bool>()};
  const auto dtype = dtype_named(one.at("dtype").get<std::string>());
  if (!dtype || (*dtype != DType::F32 && *dtype != DType::F64)) refuse_text();
  parameter.dtype = *dtype;
  std::int64_t elements = 1;
  for (const std::int64_t size : parameter.shape)
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) refuse_text();
  return parameter;
}

ServedTable served_table_of(const nlohmann::json& one) {
  ServedTable table{one.at(0), one.at(1), one.at(2), one.at(3), one.at(4)};
  if (table.width < 1 || table.width > 65'536 || table.max_rows < 0) refuse_text();
  return table;
}

std::string describe(const ServedTable& table) {
  return "of rows of " + std::to_string(table.width) + " elements, which begin within " +
         number_text(table.bound) + " by seed " + std::to_string(table.seed) +
         (table.max_rows > 0 ? ", at most " + grouped(table.max_rows) : "");
}

// A sentence on the first difference of two lists; empty: none. `label` precedes a name.
template <class Item>
std::string first_difference(const std::vector<Item>& own, const std::vector<Item>& theirs,
                             const std::string& kind, const std::string& label) {
  for (std::size_t i = 0; i < std::max(own.size(), theirs.size()); ++i) {
    if (i >= own.size()) return "its " + label + theirs[i].name + " is not on the server";
    if (i >= theirs.size()) return "it has no " + label + own[i].name + ", the server has";
    if (own[i] == theirs[i]) continue;
    if (own[i].name != theirs[i].name)
      return "its " + kind + " " + std::to_string(i) + " is " + theirs[i].name +
             ", the server's is " + own[i].name;
    return "its " + label + own[i].name + " is " + describe(theirs[i]) + ", the server's is " +
           describe(own[i]);
  }
  return {};
}

}  // namespace

std::int64_t ServedParameter::count() const noexcept { return c10::multiply_integers(shape); }

ServedModel::ServedModel(std::vector<ServedParameter> parameters, int servers,
                         std::vector<std::uint32_t> more_uses, std::vector<ServedTable> tables)
    : parameters_(std::move(parameters)),
      more_uses_(std::move(more_uses)),
      tables_(std::move(tables)) {
  TRIREME_CHECK(servers >= 1);
  std::vector<parallel::Unit::Member> members;
  for (std::uint32_t i = 0; i < parameters_.size(); ++i)
    members.push_back({i, parameters_[i].count(), size_of(parameters_[i].dtype), 0});
  parallel::Ownership ownership(servers);
  ownership.add(std::move(members));
  const parallel::Unit& unit = ownership.units().front();
  for (int server = 0; server < servers; ++server) {
    const std::size_t first = unit.cuts[static_cast<std::size_t>(server)];
    std::vector<Slice>& slices = slices_.emplace_back();
    for (const parallel::Piece& piece : ownership.pieces()[static_cast<std::size_t>(server)]) {
      const parallel::Unit::Member& member = unit.members[piece.parameter];
      const std::size_t at = member.offset + static_cast<std::size_t>(piece.begin) * member.width;
      // A parameter without elements is server 0's, wherever it would lie.
      slices.push_back({piece.parameter, parameters_[piece.parameter].dtype, piece.begin, piece.end,
                        piece.size() > 0 ? at - first : 0});
    }
    bytes_.push_back(unit.counts()[static_cast<std::size_t>(server)]);
  }
  add_more_uses();
}

void ServedModel::add_more_uses() {
  for (int server = 0; server < servers(); ++server) {
    std::vector<Slice>& more = more_slices_.emplace_back();
    std::size_t end = bytes(server);
    for (const std::uint32_t parameter : more_uses_) {
      for (Slice slice : slices(server)) {
        if (slice.parameter != parameter) continue;
        slice.offset = end;
        more.push_back(slice);
        end += (slice.bytes() + kAlignment - 1) / kAlignment * kAlignment;
      }
    }
    sum_bytes_.push_back(end);
  }
}

std::string ServedModel::to_text() const {
  nlohmann::json list = nlohmann::json::array();
  for (const ServedParameter& parameter : parameters_)
    list.push_back({{"name", parameter.name},
                    {"shape", parameter.shape},
                    {"dtype", name_of(parameter.dtype)},
                    {"decay", parameter.decay}});
  nlohmann::json tables = nlohmann::json::array();
  for (const ServedTable& table : tables_)
    tables.push_back({table.name, table.width, table.bound, table.seed, table.max_rows});
  return nlohmann::json{
      {"servers", servers()}, {"parameters", list}, {"more_uses", more_uses_}, {"tables", tables}}
      .dump();
}

ServedModel ServedModel::from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const int servers = json.at("servers").get<int>();
    if (servers < 1 || servers > kMostServers) refuse_text();
    std::vector<ServedParameter> parameters;
    for (const nlohmann::json& one : json.at("parameters")) parameters.push_back(parameter_of(one));
    auto more_uses = json.at("more_uses").get<std::vector<std::uint32_t>>();
    for (const std::uint32_t parameter : more_uses)
      if (parameter >= parameters.size()) refuse_text();
    std::vector<ServedTable> tables;
    for (const nlohmann::json& one : json.at("tables")) tables.push_back(served_table_of(one));
    return {std::move(parameters), servers, std::move(more_uses), std::move(tables)};
  } catch (const nlohmann::json::exception&) {
    refuse_text();
  }
}

std::string ServedModel::difference(const ServedModel& other) const {
  if (servers() != other.servers())
    return "it expects " + std::to_string(other.servers()) + " servers, and this is one of " +
           std::to_string(servers());
  const std::string text = first_difference(parameters_, other.parameters_, "parameter", "");
  return text.empty() ? first_difference(tables_, other.tables_, "table", "table ") : text;
}

std::string ServedModel::describe() const {
  std::size_t all = 0;
  for (const std::size_t bytes : bytes_) all += bytes;
  std::string text;
  for (int server = 0; server < servers(); ++server) {
    const auto own = static_cast<double>(bytes(server));
    text += "server " + std::to_string(server) + ": ";
    if (own == 0) {
      text += "nothing, because the parameters have fewer parts than there are servers\n";
      continue;
    }
    char share[16];
    std::snprintf(share, sizeof share, "%.1f%%", 100 * own / static_cast<double>(all));
    text += bytes_text(own) + " (" + share + ") of " +
            counted(static_cast<std::int64_t>(slices(server).size()), "parameter") +
            ", as many bytes in each direction of a step and worker\n";
  }
  for (const ServedTable& table : tables_)
    text += "table " + table.name + ": rows of " + counted(table.width, "element") +
            ", spread over all servers by their ids\n";
  return text;
}

}  // namespace trireme::inline v0::ps
