#include "trireme/comm/calls/operation.h"

#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::array<std::string_view, 13> kOperationNames = {
    "all_reduce", "reduce",    "reduce_scatter",   "all_gather", "gather",
    "scatter",    "broadcast", "all_to_all",       "barrier",    "send",
    "recv",       "allocate",  "sparse_all_reduce"};
static_assert(kOperationNames.size() == static_cast<std::size_t>(OpKind::SparseAllReduce) + 1);
constexpr std::array<std::string_view, 5> kReductionNames = {"Sum", "Mean", "Min", "Max",
                                                             "Product"};
static_assert(kReductionNames.size() == static_cast<std::size_t>(ReduceOp::Product) + 1);

std::string text_of(const std::array<char, 16>& name) {
  return {name.data(), strnlen(name.data(), name.size())};
}

}  // namespace

std::string_view name_of(OpKind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < kOperationNames.size() ? kOperationNames[index] : "unknown operation";
}

std::string_view name_of(ReduceOp op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < kReductionNames.size() ? kReductionNames[index] : "unknown reduction";
}

kernel::Combine combine_of(ReduceOp op) noexcept {
  using enum kernel::Combine;
  constexpr kernel::Combine kCombines[kReductionNames.size()] = {Sum, Sum, Min, Max, Product};
  return kCombines[static_cast<std::size_t>(op)];
}

Operation operation_of(OpKind kind, const Buffer& like, std::size_t count,
                       const OpOptions& options) {
  Operation op;
  op.kind = kind;
  op.dtype = like.dtype;
  op.count = count;
  op.label = options.label;
  op.leaving = options.leaving;
  return op;
}

Operation first_step(OpKind part_of, const OpOptions& options,
                     std::function<bool(Operation&)> next) {
  Operation first;
  first.label = options.label;
  first.leaving = options.leaving;
  first.part_of = part_of;
  first.step = 1;
  next(first);
  first.next = std::move(next);
  return first;
}

std::uint64_t hash_of(std::span<const std::size_t> words) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over words
  for (const std::size_t word : words) hash = (hash ^ word) * 0x100000001b3;
  return words.empty() ? 0 : hash;
}

std::string title_of(const Operation& operation) {
  std::string title(name_of(operation.called()));
  if (!operation.label.empty()) title += " " + operation.label;
  return title;
}

Header header_of(const Operation& operation, std::uint32_t epoch) {
  Header header;
  header.kind = operation.kind == OpKind::Recv ? OpKind::Send : operation.kind;
  header.op = operation.op;
  header.dtype = operation.dtype;
  header.root = operation.root;
  header.total = operation.total;
  header.epoch = epoch;
  header.count = operation.count;
  header.sequence = operation.sequence;
  header.detail = operation.detail;
  if (operation.recv_counts.empty()) header.detail ^= hash_of(operation.counts);
  header.detail ^=
      hash_of(std::vector<std::size_t>(operation.shares.begin(), operation.shares.end()));
  header.step = operation.step;
  header.part_of = operation.part_of.value_or(header.kind);  // Send for a Recv
  if (operation.leaving)
    header.leaving = *operation.leaving == ExitCode::Done
                         ? Header::kEnded
                         : static_cast<std::uint8_t>(*operation.leaving);
  const std::size_t length = std::min(operation.algorithm.size(), header.algorithm.size());
  std::memcpy(header.algorithm.data(), operation.algorithm.data(), length);
  return header;
}

bool same_call(const Header& a, Header b) noexcept {
  b.leaving = a.leaving;
  return std::memcmp(&a, &b, sizeof a) == 0;  // no padding
}

std::uint64_t hash_of(const Header& header) noexcept {
  std::uint64_t words[sizeof header / 8], hash = 0x9e3779b97f4a7c15;
  std::memcpy(words, &header, sizeof header);
  for (const std::uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string call_text(const Header& header, const Header& other) {
  std::string text(name_of(header.part_of));
  text += "(";
  const auto add = [&](const std::string& part) {
    if (text.back() != '(') text += ", ";
    text += part;
  };
  if (header.step > 0) {
    std::string step = "step " + std::to_string(header.step);
    if (header.part_of != header.kind) step += " " + std::string(name_of(header.kind));
    add(step);
  }
  switch (header.kind) {
    case OpKind::Reduce:
      add("root " + std::to_string(header.root));
      [[fallthrough]];
    case OpKind::AllReduce:
    case OpKind::ReduceScatter:
      add(std::string(name_of(header.op)));
      break;
    case OpKind::Gather:
    case OpKind::Scatter:
    case OpKind::Broadcast:
      add("root " + std::to_string(header.root));
      break;
    case OpKind::Send:
      add("tag " + std::to_string(static_cast<std::uint32_t>(header.root)));
      break;
    default:
      break;
  }
  if (header.kind != OpKind::Barrier) {
    add(std::string(trireme::name_of(header.dtype)));
    add(std::to_string(header.count));
  }
  if (header.total != other.total) add(std::to_string(header.total) + " leaves");
  if (header.detail != other.detail)
    add((header.part_of == OpKind::AllReduce && header.step == 0 ? "shares #" : "counts #") +
        std::to_string(header.detail % 10000));
  if (header.algorithm != other.algorithm) add("algorithm " + text_of(header.algorithm));
  text += ") as call " + std::to_string(header.sequence);
  if (header.epoch != other.epoch) text += " of epoch " + std::to_string(header.epoch);
  return text;
}

}  // namespace trireme::inline v0::comm
