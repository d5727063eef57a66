#include "trireme/comm/communicator.h"

#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/all_reduce_check.h"
#include "trireme/comm/choice/choice.h"
#include "trireme/comm/combine.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/native_run.h"
#include "trireme/comm/nccl/gpu_plan.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

// In larger broadcasts the bytes cost more than the rounds.
constexpr std::size_t kChainBytes = 1u << 20;

std::string text(std::size_t number) { return std::to_string(number); }

}  // namespace

Communicator::Communicator(std::shared_ptr<net::Transport> transport, CommunicatorOptions options)
    : Communicator(Engine::create(std::move(transport), std::move(options))) {}

Communicator::Communicator(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)),
      chooser_(std::make_shared<const Chooser>(
          Chooser::Group{engine_->size(), std::string(engine_->transport().name()),
                         engine_->can_map(), engine_->hosts(), engine_->options().tuning})) {
  // Refuses an impossible default algorithm now. F32 stands for what the job will reduce.
  const std::string& usual = engine_->options().algorithm;
  try {
    choose(usual == kMpiNative ? kMpiNative : std::string_view(), {.dtype = DType::F32});
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

Work Communicator::submit(Operation operation, const OpOptions& options) {
  place(operation, options);
  return engine_->submit(std::move(operation), options.deadline);
}

void Communicator::place(Operation& operation, const OpOptions& options) const {
  const std::string_view named = options.algorithm;
  engine_->place(operation,
                 named == nccl::kNative || engine_->options().algorithm == nccl::kNative);
  const std::string_view called = name_of(operation.called());
  require(operation.on_gpu || named != nccl::kNative, called,
          "algorithm nccl-native is for GPU memory, and this buffer lies in the host's");
  require(!operation.on_gpu || named.empty() || named == "auto" || named == nccl::kNative, called,
          [&] {
            return "algorithm " + std::string(named) +
                   " is for CPU memory, and this buffer lies on a GPU, " +
                   "where there are auto and nccl-native";
          });
}

// Why the network itself cannot reduce this; empty if it can.
std::string Communicator::why_not_native(const Reduced& what) const {
  const net::Transport& transport = engine_->transport();
  const bool exact = what.op == ReduceOp::Min || what.op == ReduceOp::Max ||
                     !kernel::can_divide(what.dtype);  // integers
  if (!transport.can_reduce(DType::F32)) {
    return std::string(transport_name()) == "mpi"
               ? name() + " is a group of the job, and MPI reduces over the whole"
               : "it needs transport mpi, and " + name() + " has " + std::string(transport_name());
  }
  if (!transport.can_reduce(what.dtype))
    return "MPI cannot reduce " + std::string(trireme::name_of(what.dtype));
  if (!exact && engine_->options().reproducible)
    return "MPI adds floats in an order of its own, and this job is reproducible";
  return {};
}

// Must give the same result on all ranks: depends only on the call, the group and the transport.
std::string Communicator::choose(std::string_view wanted, const Reduced& what) const {
  const std::size_t bytes = what.bytes;
  const bool wide = kernel::accumulates_wide(combine_of(what.op), what.dtype);
  if (wanted == kMpiNative || (wanted.empty() && engine_->options().algorithm == kMpiNative)) {
    const std::string reason = size() == 1 ? std::string() : why_not_native(what);
    if (reason.empty()) return size() == 1 ? "naive" : std::string(kMpiNative);
    require(wanted.empty(), "all_reduce",
            [&] { return "algorithm mpi-native cannot be used here: " + reason; });
    wanted = "auto";
  }
  if (wanted.empty()) wanted = engine_->options().algorithm;
  if (wanted == nccl::kNative && engine_->options().gpu) wanted = "auto";  // on the CPU
  check_all_reduce(wanted, {.ranks = size(),
                            .transport = transport_name(),
                            .can_map = engine_->can_map(),
                            .rank = rank()});
  if (wanted == "auto") {
    return size() == 1 ? "naive" : chooser_->choose(OpKind::AllReduce, bytes, what.total, wide);
  }
  return size() == 1 ? "naive" : std::string(wanted);
}

bool Communicator::may_be_direct(OpKind kind, const OpOptions& options) const {
  const std::string_view wanted =
      options.algorithm.empty() ? engine_->options().algorithm : options.algorithm;
  return has_direct_form(kind) && (wanted == "auto" || wanted == "direct");
}

Work Communicator::all_reduce(Buffer inout, ReduceOp op, const OpOptions& options) {
  require(kernel::can_combine(inout.dtype), "all_reduce",
          [&] { return std::string(trireme::name_of(inout.dtype)) + " cannot be reduced"; });
  require(op != ReduceOp::Mean || kernel::can_divide(inout.dtype), "all_reduce",
          "the Mean of integers is not defined");
  Operation operation = operation_of(OpKind::AllReduce, inout, inout.count, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  operation.algorithm =
      choose(options.algorithm, {op, inout.dtype, inout.bytes(), operation.total});
  operation.terms = {{inout, static_cast<std::uint32_t>(rank()), 1}};
  operation.out = std::move(inout);
  return submit(std::move(operation), options);
}

Work Communicator::all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                              const OpOptions& options) {
  require(kernel::can_combine(out.dtype), "all_reduce",
          [&] { return std::string(trireme::name_of(out.dtype)) + " cannot be reduced"; });
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
  operation.algorithm = choose(options.algorithm, {ReduceOp::Sum, out.dtype, out.bytes(), total});
  operation.terms.assign(terms.begin(), terms.end());
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Communicator::broadcast(Buffer inout, int root, const OpOptions& options) {
  require(root >= 0 && root < size(), "broadcast", [&] {
    return "root " + std::to_string(root) + " of " + std::to_string(size()) + " ranks";
  });
  Operation operation = operation_of(OpKind::Broadcast, inout, inout.count, options);
  const bool large = inout.bytes() > kChainBytes && size() > 2;
  operation.algorithm = pick(OpKind::Broadcast, options, large ? "chain" : "binomial");
  operation.may_be_direct = may_be_direct(operation.kind, options);
  operation.root = root;
  operation.in = inout;
  operation.out = std::move(inout);
  return submit(std::move(operation), options);
}

Work Communicator::all_gather(Buffer in, Buffer out, const OpOptions& options) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size()), in.count);
  return all_gather_v(std::move(in), std::move(out), counts, options);
}

Work Communicator::all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                                const OpOptions& options) {
  require(counts.size() == static_cast<std::size_t>(size()), "all_gather",
          [&] { return text(counts.size()) + " counts for " + std::to_string(size()) + " ranks"; });
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  require(in.count == counts[static_cast<std::size_t>(rank())], "all_gather", [&] {
    return "in holds " + text(in.count) + " elements, counts says " +
           text(counts[static_cast<std::size_t>(rank())]);
  });
  require(out.count == sum && out.dtype == in.dtype, "all_gather", [&] {
    return "out holds " + text(out.count) + " elements, must be " + text(sum) + " of in's type";
  });
  Operation operation = operation_of(OpKind::AllGather, out, sum, options);
  operation.algorithm = pick(OpKind::AllGather, options, "pairwise");
  operation.may_be_direct = may_be_direct(operation.kind, options);
  operation.counts.assign(counts.begin(), counts.end());
  operation.in = std::move(in);
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

Work Communicator::reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options) {
  require(kernel::can_combine(in.dtype), "reduce_scatter",
          [&] { return std::string(trireme::name_of(in.dtype)) + " cannot be reduced"; });
  require(op != ReduceOp::Mean || kernel::can_divide(in.dtype), "reduce_scatter",
          "the Mean of integers is not defined");
  require(in.dtype == out.dtype && in.count == out.count * static_cast<std::size_t>(size()),
          "reduce_scatter", [&] {
            return "in holds " + text(in.count) + " elements, out " + text(out.count) +
                   ", the group " + std::to_string(size()) + " ranks";
          });
  Operation operation = operation_of(OpKind::ReduceScatter, in, in.count, options);
  operation.algorithm = pick(OpKind::ReduceScatter, options, "pairwise");
  operation.may_be_direct = may_be_direct(operation.kind, options);
  operation.op = op;
  operation.total = static_cast<std::uint32_t>(size());
  operation.in = std::move(in);
  operation.out = std::move(out);
  return submit(std::move(operation), options);
}

std::string Communicator::explain_all_reduce(std::size_t bytes) const {
  return chooser_->explain(OpKind::AllReduce, bytes, static_cast<std::uint32_t>(size()));
}

Work Communicator::barrier(const OpOptions& options) {
  return engine_->submit(operation_of(OpKind::Barrier, {}, 0, options), options.deadline);
}

Work Communicator::send(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  require(peer >= 0 && peer < size() && peer != rank(), "send", [&] {
    return "peer " + std::to_string(peer) + " of " + std::to_string(size()) + " ranks";
  });
  Operation operation = operation_of(OpKind::Send, buffer, buffer.count, options);
  operation.root = peer;
  operation.user_tag = tag;
  operation.in = std::move(buffer);
  return submit(std::move(operation), options);
}

Work Communicator::recv(Buffer buffer, int peer, std::uint32_t tag, const OpOptions& options) {
  require(peer >= 0 && peer < size() && peer != rank(), "recv", [&] {
    return "peer " + std::to_string(peer) + " of " + std::to_string(size()) + " ranks";
  });
  Operation operation = operation_of(OpKind::Recv, buffer, buffer.count, options);
  operation.root = peer;
  operation.user_tag = tag;
  operation.out = std::move(buffer);
  return submit(std::move(operation), options);
}

}  // namespace trireme::inline v0::comm
