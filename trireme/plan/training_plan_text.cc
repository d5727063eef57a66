// The lines of a plan, for people.
#include <sstream>

#include "trireme/base/words.h"
#include "trireme/plan/limited_product.h"
#include "trireme/plan/training_plan.h"

namespace trireme::inline v0::plan {
namespace {

std::string layout_name(const PlannedJob& job);

// "20 %"
std::string bubble_text(const TrainingPlan& plan) {
  return formatted("%.0f %%", 100 * plan.bubble);
}

// "pipeline of 4 stages on 2 ranks (interleaved-1f1b, 20 % bubble) x 2 tensor-parallel ranks x 4,
// plain data parallel"
std::string model_parallel_name(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  std::string name;
  if (job.pipeline > 1) {
    name = "pipeline of " + counted(plan.stages, "stage") + " on " + counted(job.pipeline, "rank") +
           " (" + job.schedule + ", " + bubble_text(plan) +
           " bubble where passes take equal times)";
  }
  if (job.expert > 1)
    name += (name.empty() ? "" : " x ") + counted(job.expert, "expert-parallel rank");
  if (job.context > 1)
    name += (name.empty() ? "" : " x ") + counted(job.context, "context-parallel rank");
  if (job.tensor > 1)
    name += (name.empty() ? "" : " x ") + counted(job.tensor, "tensor-parallel rank") +
            (job.sequence ? " (and sequence parallel)" : "");
  PlannedJob one = job;
  one.ranks = job.data_ranks();
  one.pipeline = one.expert = one.context = one.tensor = 1;
  return name + (one.ranks > 1 ? " x " + std::to_string(one.ranks) + ", " + layout_name(one)
                               : std::string());
}

std::string layout_name(const PlannedJob& job) {
  if (job.exchange.every > 0) return job.exchange.about;
  if (!job.shards()) return "plain data parallel";
  const std::string what = job.shards_weights     ? "all state"
                           : job.shards_gradients ? "optimizer state and gradients"
                                                  : "optimizer state";
  const int replicas = job.ranks / job.owners;
  return job.sharding + " (" + what + " over " + counted(job.owners, "rank") +
         (job.shards_weights ? ", two blocks whole" : "") +
         (replicas > 1 ? "; " + counted(replicas, "replica") : "") + ")";
}

std::string core_line(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.simulated) {
    return "1 core: " + counted(job.ranks, "simulated rank") +
           " take turns in one process; all times are of the virtual clock, on which they compute "
           "side by side";
  }
  const int threads = plan.lanes * job.kernel_threads;  // per rank
  const int wanted = job.ranks_here * threads;
  const int used = std::min(wanted, job.usable_cores);
  std::string line = counted(used, "core") + " for " + counted(job.ranks_here, "rank") + " x " +
                     (plan.lanes > 1 ? counted(plan.lanes, "lane") + " x " : std::string()) +
                     counted(job.kernel_threads, "thread") + "; the job can use " +
                     job.cores_reason;
  if (wanted > job.usable_cores) {
    line += "; ranks share cores, so expect no more speed than with " +
            counted(std::max(1, job.usable_cores / threads), "rank");
  } else if (wanted < job.usable_cores) {
    const int free = job.usable_cores - wanted;
    line += "; " + std::to_string(free) + (free == 1 ? " stays" : " stay") + " free (more ranks" +
            (job.takes_lanes() ? ", or train.lanes," : "") + " would use " +
            (free == 1 ? "it)" : "them)");
  }
  if (plan.lanes < job.lanes)
    line += job.takes_lanes() ? "; " + std::to_string(plan.lanes) + " of " +
                                    std::to_string(job.lanes) + " lanes have a micro-batch"
                              : "; in this layout a rank has one lane";
  return line;
}

std::string time_line(const TrainingPlan& plan) {
  const double step = plan.step_seconds();
  if (step <= 0) return {};
  const double waits = plan.communication.seconds + plan.layers.seconds;
  return "  time     " + duration_text(step) + " a step, predicted: forward and backward " +
         duration_text(plan.compute_seconds) + " + gradients and update " +
         duration_text(plan.update_seconds) +
         (plan.host_seconds > 0 ? " + the host's memory " + duration_text(plan.host_seconds) : "") +
         (waits > 0 ? " + communication " + duration_text(waits) : "") + "; " +
         duration_text(step * static_cast<double>(plan.job.steps)) +
         " in all, without validation\n" + "           (" + plan.job.speed_source + ")\n";
}

std::string device_line(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (!plan.on_device()) return {};
  std::string line = "  device   " + job.device;
  const int sharing = job.ranks_per_device;
  if (job.accelerator != nullptr) line += ": " + std::string(job.accelerator->about);
  if (job.device_bytes() > 0) line += ", " + bytes_text(job.device_bytes());
  if (sharing > 1) line += ", each for " + counted(sharing, "rank");
  if (sharing > 1 && job.device_bytes() > 0)
    line += " of " + bytes_text(job.device_bytes() / sharing);
  return line + "\n";
}

std::string memory_lines(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  const Memory& memory = plan.memory;
  const auto elsewhere = [&](std::int64_t bytes) {
    return " (and " + bytes_text(bytes) + (plan.on_device() ? " on the host)" : " in a file)");
  };
  std::ostringstream out;
  out << "  memory   " << bytes_text(plan.rank_bytes())
      << (plan.on_device() ? " a rank on its device" : " a rank") << ", predicted: weights "
      << bytes_text(memory.weights) << " + gradients " << bytes_text(memory.gradients)
      << " + optimizer " << bytes_text(memory.optimizer)
      << (memory.on_host > 0 ? elsewhere(memory.on_host) : "") << " + activations "
      << bytes_text(memory.activations)
      << (job.recompute == "none" ? "" : " (recompute: " + job.recompute + ")")
      << (job.offloads_activations ? elsewhere(memory.in_file) : "") << " + temporaries "
      << bytes_text(memory.temporaries) << "\n"
      << (plan.on_device() ? "           and on the host: program and LibTorch "
                           : "           + program and LibTorch ")
      << bytes_text(memory.program) << " + kernels " << bytes_text(memory.kernels);
  if (job.ranks > 1) out << " + the group " << bytes_text(memory.group);
  out << (job.tokens_per_sample == 1 ? " + data " : " + text ") << bytes_text(memory.text)
      << (job.ranks > 1 ? " (shared)" : "");
  if (memory.snapshot > 0) out << " + snapshot " << bytes_text(memory.snapshot);
  if (memory.copies > 0) out << " + copies " << bytes_text(memory.copies);
  out << "\n";
  if (job.memory_limit > 0) {
    out << "           (memory.limit is " << bytes_text(job.memory_limit)
        << (plan.keeps_to_limit() ? "" : ": it does not fit; train --fit looks for what does")
        << ")\n";
  }
  if (!plan.fits_device()) out << "           (does not fit: " << device_refusal(plan) << ")\n";
  if (!plan.fits_host()) out << "           (does not fit: " << host_refusal(plan) << ")\n";
  return out.str();
}

std::string items_line(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  const std::string rest = ", " + counted(job.steps, "step") + ", " +
                           grouped(times(plan.tokens_per_step(), job.steps)) + " in all\n";
  if (job.tokens_per_sample == 1)
    return "  samples  " + counted(job.batch, job.sample) + " a step" + rest;
  return "  tokens   " + grouped(plan.tokens_per_step()) + " a step (" +
         counted(job.batch, job.sample) + " x " + std::to_string(job.tokens_per_sample) + ")" +
         rest;
}

std::string few_line(const TrainingPlan& plan) {
  if (plan.job.pipeline == 1 || plan.micro_per_rank >= plan.stages) return {};
  return "  warning  " + counted(plan.micro_per_rank, "micro-batch", "micro-batches") + " for " +
         counted(plan.stages, "pipeline stage") + ": a rank waits " + bubble_text(plan) +
         " of the time; a smaller batch.micro or a larger batch.global fills the pipeline\n";
}

std::string exchange_line(const TrainingPlan& plan) {
  const Exchange& exchange = plan.job.exchange;
  const double seconds = plan.communication.seconds;
  std::string line = "  comm     " + duration_text(seconds * exchange.every) +
                     (exchange.messages > 0 ? " of messages" : " of all-reduce") +
                     " an exchange, one every " + counted(exchange.every, "step") + ": " +
                     duration_text(seconds) + " a step, predicted";
  if (exchange.after > 0)
    line += "; the first " + counted(exchange.after, "step") + " reduce gradients";
  if (!exchange.graph.empty()) line += "\n           (" + exchange.graph + ")";
  line += "\n           (" + plan.communication.source + ")\n";
  if (!exchange.beside.empty()) line += "  servers  " + exchange.beside + "\n";
  if (exchange.bits.empty()) return line;
  return line + "  bits     the weights depend on " + exchange.bits + ": parallel.sync = \"" +
         plan.job.sync + "\" ends the promise of equal bits on any layout\n";
}

// " (shares 3:2:1)"
std::string shares_text(const PlannedJob& job) {
  std::string text;
  for (const std::uint32_t weight : job.shares)
    text += (text.empty() ? " (shares " : ":") + std::to_string(weight);
  return text.empty() ? text : text + ")";
}

}  // namespace

std::string host_refusal(const TrainingPlan& plan) {
  const int ranks = plan.job.ranks_here, servers = plan.job.servers_here;
  const bool one = ranks + servers == 1;
  return counted(ranks, "rank") + (servers > 0 ? " and " + counted(servers, "server") : "") +
         (one ? " is" : " are") + " predicted to take " + bytes_text(plan.host_total()) +
         (one ? "" : " together") + ", and " + plan.job.host_memory_reason;
}

std::string device_refusal(const TrainingPlan& plan) {
  const int sharing = plan.job.ranks_per_device;
  return "the tensors of a rank are predicted to take " + bytes_text(plan.rank_bytes()) + ", and " +
         (plan.job.accelerator != nullptr ? "an " + std::string(plan.job.accelerator->about)
                                          : "the device") +
         " has " + bytes_text(plan.job.device_bytes()) +
         (sharing > 1 ? " for " + counted(sharing, "rank") : "");
}

std::string explain(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  std::ostringstream out;
  out << "Plan for " << job.name << " on " << counted(job.ranks, "rank") << "\n"
      << "  model    " << job.model << "; " << counted(job.parameters, "parameter") << ", "
      << job.precision << "\n"
      << "  data     " << job.data << "\n"
      << "  layout   " << (job.model_ranks() > 1 ? model_parallel_name(plan) : layout_name(job))
      << ": " << counted(plan.micro_batches, "micro-batch", "micro-batches") << " of "
      << counted(job.micro, job.sample) << " a step";
  if (job.ranks > 1) {
    const bool equal = job.shares.empty() && plan.micro_batches % job.data_ranks() == 0;
    out << (equal ? ", " : ", at most ") << plan.micro_per_rank
        << (job.model_ranks() > job.pipeline ? " in each copy of the model; "
            : job.pipeline > 1               ? " in each pipeline; "
                                             : " on each rank" + shares_text(job) + "; ")
        << job.transport << " transport";
    // Messages to servers or neighbours reduce nothing, except in the steps before the first one.
    if (job.exchange.messages == 0 || job.exchange.after > 0)
      out << ", " << job.algorithm << " all-reduce";
  }
  out << "\n" << items_line(plan) << device_line(plan) << memory_lines(plan) << job.recompute_table;
  if (plan.open_sums > 2) {
    out << "           (" << plan.open_sums
        << " gradient sums are open at a time; a larger batch.micro needs fewer)\n";
  }
  out << state_cost_lines(plan) << few_line(plan);
  for (const auto& [name, size] : {std::pair{"parallel.expert", job.expert},
                                   {"parallel.context", job.context},
                                   {"parallel.tensor", job.tensor}}) {
    if (size == 1) continue;
    out << "  bits     " << name << " = " << size
        << " adds in another order than one process: weights agree within a tolerance, and are "
           "the same bits for every other parallel.*\n";
  }
  if (plan.layers.seconds > 0)
    out << "  layers   " << duration_text(plan.layers.seconds)
        << " of all-reduce among tensor-parallel ranks a step, predicted, and waited for: "
        << plan.job.layer_sums << " a micro-batch, of " << bytes_text(job.layer_sum_bytes) << "\n"
        << "           (" << plan.layers.source << ")\n";
  if (job.exchange.every > 0 && (job.ranks > 1 || !job.exchange.beside.empty())) {
    out << exchange_line(plan);
  } else if (job.data_ranks() > 1) {
    out << "  comm     " << duration_text(plan.communication.seconds)
        << (job.shards() ? " of reduce-scatter and all-gather" : " of all-reduce")
        << " a step, predicted, less what computing hides"
        << (job.compression == "none" ? "" : " and " + job.compression + " saves") << "\n"
        << "           (" << plan.communication.source << ")\n";
  }
  if (job.evaluator)
    out << "  evaluator 1 process beside the ranks, with a whole copy of the model: "
        << bytes_text(plan.evaluator_bytes()) << "\n";
  out << time_line(plan);
  if (!plan.on_device()) out << "  cores    " << core_line(plan) << "\n";
  return out.str();
}

}  // namespace trireme::inline v0::plan
