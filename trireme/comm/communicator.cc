#include "trireme/comm/communicator.h"

#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/operation.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

// In larger broadcasts the bytes cost more than the rounds.
constexpr std::size_t kChainBytes = 1u << 20;

std::string text(std::size_t number) { return std::to_string(number); }

}  // namespace

Communicator::Communicator(std::shared_ptr<net::Transport> transport, CommunicatorOptions options)
    : Communicator(Engine::create(std::move(transport), std::move(options))) {}

Communicator::Communicator(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {
  try {
    selection_ = std::make_shared<const Selection>(*engine_);
  } catch (...) {  // ~Communicator will not run, and the engine must stop polling
    engine_->close();
    throw;
  }
}

Communicator::~Communicator() { engine_->close(); }

int Communicator::rank() const noexcept { return engine_->rank(); }
int Communicator::size() const noexcept { return engine_->size(); }
const std::string& Communicator::name() const noexcept { return engine_->options().name; }
std::string_view Communicator::transport_name() const noexcept {
  return engine_->transport().name();
}
bool Communicator::can_map() const noexcept { return engine_->can_map(); }
bool Communicator::reproducible() const noexcept { return engine_->options().reproducible; }
std::shared_ptr<Waiter> Communicator::waiter() const { return engine_->transport().waiter(); }
std::exception_ptr Communicator::failure() const noexcept { return engine_->failure(); }
Duration Communicator::time_waited() const noexcept { return engine_->time_waited(); }
void Communicator::abort(std::exception_ptr error) noexcept { engine_->abort(std::move(error)); }
Arena Communicator::allocate(std::size_t bytes, Device device) {
  return engine_->allocate(bytes, device);
}

void Communicator::refuse(std::string_view operation, const std::string& what) const {
  throw ConfigError(
      what, {.rank = rank(), .operation = std::string(operation), .advice = "Correct the call."});
}

Work Communicator::submit(Operation&& operation, const OpOptions& options) {
  place(operation, *engine_, options.algorithm);
  return engine_->submit(std::move(operation), options.deadline);
}

// Of a collective with one algorithm that is usual.
Work Communicator::run(Operation&& operation, Buffer in, Buffer out, std::string_view usual,
                       const OpOptions& options) {
  operation.algorithm = selection_->pick(operation.kind, options.algorithm, usual);
  operation.may_be_direct = selection_->may_be_direct(operation.kind, options.algorithm);
  operation.in = std::move(in);
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Communicator::all_reduce(Buffer inout, ReduceOp op, const OpOptions& options) {
  require_reducible(inout.dtype, op, "all_reduce");
  Operation operation = operation_of(OpKind::AllReduce, inout, inout.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  operation.algorithm =
      selection_->all_reduce(options.algorithm, {op, inout.dtype, inout.bytes(), operation.total});
  operation.terms.push_back({inout, static_cast<std::uint32_t>(rank()), 1});
  operation.out = std::move(inout);
  return submit(std::move(operation), options);
}

Work Communicator::all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                              const OpOptions& options) {
  require_reducible(out.dtype, ReduceOp::Sum, "all_reduce");
  require(total > 0, "all_reduce", "a sum of no leaves");
  const auto nodes = kernel::maximal_nodes(kernel::contiguous_share(total, size(), rank()), total);
  require(terms.size() == nodes.size(), "all_reduce", [&] {
    return text(terms.size()) + " terms given, " + text(nodes.size()) + " are this rank's of " +
           text(total) + " leaves";
  });
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    require(
        terms[i].first == nodes[i].first && terms[i].count == nodes[i].count, "all_reduce", [&] {
          return "term " + text(i) + " is [" + text(terms[i].first) + ", +" + text(terms[i].count) +
                 "), must be [" + text(nodes[i].first) + ", +" + text(nodes[i].count) + ")";
        });
    require(terms[i].value.count == out.count && terms[i].value.dtype == out.dtype, "all_reduce",
            [&] { return "term " + text(i) + " differs from `out` in count or type"; });
  }
  Operation operation = operation_of(OpKind::AllReduce, out, out.count, options);
  operation.total = total;
  operation.algorithm =
      selection_->all_reduce(options.algorithm, {ReduceOp::Sum, out.dtype, out.bytes(), total});
  operation.terms.assign(terms.begin(), terms.end());
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Communicator::broadcast(Buffer inout, int root, const OpOptions& options) {
  require_root(root, "broadcast");
  Operation operation = operation_of(OpKind::Broadcast, inout, inout.count, options);
  const bool large = inout.bytes() > kChainBytes && size() > 2;
  operation.root = root;
  return run(std::move(operation), inout, std::move(inout), large ? "chain" : "binomial", options);
}

Work Communicator::all_gather(Buffer in, Buffer out, const OpOptions& options) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size()), in.count);
  return all_gather_v(std::move(in), std::move(out), counts, options);
}

Work Communicator::all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                                const OpOptions& options) {
  require_counts(counts, "all_gather");
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  require(in.count == counts[static_cast<std::size_t>(rank())], "all_gather", [&] {
    return "in holds " + text(in.count) + " elements, counts says " +
           text(counts[static_cast<std::size_t>(rank())]);
  });
  require(out.count == sum && out.dtype == in.dtype, "all_gather", [&] {
    return "out holds " + text(out.count) + " elements, must be " + text(sum) + " of in's type";
  });
  Operation operation = operation_of(OpKind::AllGather, out, sum, options);
  operation.counts.assign(counts.begin(), counts.end());
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

Work Communicator::reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options) {
  require_reducible(in.dtype, op, "reduce_scatter");
  require(in.dtype == out.dtype && in.count == out.count * static_cast<std::size_t>(size()),
          "reduce_scatter", [&] {
            return "in holds " + text(in.count) + " elements, out " + text(out.count) +
                   ", the group " + std::to_string(size()) + " ranks";
          });
  Operation operation = operation_of(OpKind::ReduceScatter, in, in.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  return run(std::move(operation), std::move(in), std::move(out), "pairwise", options);
}

std::string Communicator::explain_all_reduce(std::size_t bytes) const {
  return selection_->chooser().explain(OpKind::AllReduce, bytes,
                                       static_cast<std::uint32_t>(size()));
}

Work Communicator::barrier(const OpOptions& options) {
  return engine_->submit(operation_of(OpKind::Barrier, {}, 0, options), options.deadline);
}

Work Communicator::send(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  Operation operation = message(OpKind::Send, buffer, peer, tag, options);
  operation.in = std::move(buffer);
  return submit(std::move(operation), options);
}

Work Communicator::recv(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  Operation operation = message(OpKind::Recv, buffer, peer, tag, options);
  operation.out = std::move(buffer);
  return submit(std::move(operation), options);
}

Operation Communicator::message(OpKind kind, const Buffer& buffer, int peer, std::uint32_t tag,
                                const OpOptions& options) const {
  require(peer >= 0 && peer < size() && peer != rank(), name_of(kind), [&] {
    return "peer " + std::to_string(peer) + " of " + std::to_string(size()) + " ranks";
  });
  Operation operation = operation_of(kind, buffer, buffer.count, options);
  operation.root = peer;
  operation.user_tag = tag;
  return operation;
}

}  // namespace trireme::inline v0::comm
