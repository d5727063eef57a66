#include "trireme/train/evaluation/follow_run.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/checkpointer_options.h"
#include "trireme/job/job.h"
#include "trireme/net/alone_transport.h"
#include "trireme/observe/folder_lock.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/train/device.h"
#include "trireme/train/evaluation/checkpoint_evaluator.h"
#include "trireme/train/evaluation/forward_model.h"
#include "trireme/train/run/run_data.h"
#include "trireme/train/run/run_end.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::train {
namespace {

constexpr int kNiceness = 10;                                // the training's processes come first
constexpr Duration kLookAtBucket = std::chrono::seconds(3);  // each look is a request

// The model, with the weights of one checkpoint after the other.
class Follower {
 public:
  Follower(Job& job, const Settings& settings, const WorkerSpec& spec, Device device)
      : job_(job),
        settings_(settings),
        data_(settings, spec),
        batches_(held_out_batches(job, settings, *data_.validation, settings.validate_samples)),
        strategy_(job, settings.model.blocks, forward_options(settings.strategy, device),
                  settings.optimizer) {}

  EvaluatedCheckpoint evaluate(const std::string& folder, std::int64_t step) {
    job_.activity("evaluation");
    load_newest(job_, strategy_, folder);
    const Evaluation found = *train::evaluate(strategy_, settings_.model, batches_);
    return {found.loss, observe::validation_event(
                            static_cast<long>(step), found.loss, static_cast<long>(found.count),
                            std::nullopt, settings_.model.data->words().items, found.accuracy)};
  }

 private:
  Job& job_;
  const Settings& settings_;
  const RunData data_;
  const std::vector<Batch> batches_;
  Strategy strategy_;
};

void follow(Job& job, const Settings& settings, const WorkerSpec& spec, Device device,
            EvaluatorOptions options) {
  Follower follower(job, settings, spec, device);
  if (device.kind != DeviceKind::Cpu)
    options.say("checkpoints are evaluated on " + tensor::at_device(device).str());
  options.waiter = job.waiter();
  options.evaluate = [&](const std::string& folder, std::int64_t step) {
    return follower.evaluate(folder, step);
  };
  options.storage_patience = checkpoint::patience_of(settings.checkpoints.patience);
  options.unit = settings.model.data->words().unit;
  const RunFolder run(spec.folder);
  if (run.checkpoints().is_remote()) options.look = kLookAtBucket;
  CheckpointEvaluator(run, std::move(options)).run();
}

std::function<void(const std::string&)> lines_to(std::FILE* stream) {
  return [stream](const std::string& line) {
    std::fprintf(stream, "%s\n", line.c_str());
    std::fflush(stream);
  };
}

// The spare device may be in use by other jobs.
Device evaluators_device(const WorkerSpec& spec) {
  if (spec.spare_device < 0) return {};
  try {
    return take_device(spec.device, spec.spare_device, 1);
  } catch (const ConfigError& error) {
    lines_to(stderr)(error.message() + "; checkpoints are evaluated on the CPU");
    return {};
  }
}

// As a process of the job `joined`. Null: the job is gone, and its checkpoints stay.
void follow_job(const Job* joined, const Settings& settings, const WorkerSpec& spec) {
  JobOptions options = settings.job;
  options.transport = "auto";
  // A separate job, so that the end of the training's job interrupts no evaluation.
  Job own(std::make_shared<net::AloneTransport>(joined != nullptr ? joined->waiter()
                                                                  : RealWaiter::make()),
          options, nullptr);
  const auto ended = [joined] { return joined == nullptr || joined->finished(); };
  follow(own, settings, spec, evaluators_device(spec),
         {.ended = ended,
          .woken = ended,
          .say = lines_to(stderr),
          .patience = settings.job.timeout_user_code});
}

// Null: the training has ended by itself before this process could join.
std::unique_ptr<Job> join_unless_ended(int argc, char** argv, const std::string& folder) {
  try {
    return std::make_unique<Job>(argc, argv);
  } catch (const Error& error) {
    const bool gone = error.code() == ExitCode::PeerLost || error.code() == ExitCode::Timeout ||
                      error.code() == ExitCode::CoordinatorLost;
    const std::optional<RunEnd> end = gone ? run_end(RunFolder(folder)) : std::nullopt;
    if (!end) throw;
    lines_to(stderr)("the training in " + folder + " has ended after step " + grouped(end->step) +
                     ", before its evaluator came: its checkpoints are evaluated now");
    return nullptr;
  }
}

}  // namespace

void check_evaluator(const Settings& settings, bool rank0_validates) {
  if (settings.job.transport == "sim")
    throw ConfigError(
        "an evaluator cannot be combined with comm.transport = \"sim\"",
        {.operation = "config", .advice = "The evaluator is a process: use another transport."});
  if (settings.checkpoints.every == 0)
    throw ConfigError("an evaluator needs checkpoints, but checkpoint.every is 0",
                      {.operation = "config",
                       .advice = "Set checkpoint.every, in steps: the evaluator evaluates what is "
                                 "saved."});
  if (settings.checkpoints.keep_best > 0 && !rank0_validates)
    throw ConfigError(
        "checkpoint.keep_best compares rank 0's validations, which it leaves to the evaluator",
        {.operation = "config",
         .advice =
             "Leave it out, as the evaluator keeps the best in RUN/best; or add --validate."});
  if (settings.patience > 0 && !rank0_validates)
    throw ConfigError(
        "train.patience counts rank 0's validations, which it leaves to the evaluator",
        {.operation = "config",
         .advice = "Add --validate, so that rank 0 validates as well, or leave out "
                   "train.patience."});
}

int run_evaluator(int argc, char** argv, const WorkerSpec& spec) {
  if (spec.lock >= 0) ::fcntl(spec.lock, F_SETFD, FD_CLOEXEC);
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  const Settings settings = read_settings(spec);
  set_up_process(settings);
  JobOptions options = settings.job;
  options.transport = "auto";  // it takes no part in collectives, so it needs no NCCL
  Job joined(argc, argv, options);
  follow_job(&joined, settings, spec);
  return 0;
}

// When rank 0 comes to the meeting, it has written the run's folder.
int run_launched_evaluator(int argc, char** argv, const std::string& folder) {
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  const std::unique_ptr<Job> joined = join_unless_ended(argc, argv, folder);
  const WorkerSpec spec{.folder = RunFolder::existing(folder).path()};
  const Settings settings = read_settings(spec);
  check_evaluator(settings, /*rank0_validates=*/true);
  set_up_process(settings);
  follow_job(joined.get(), settings, spec);
  return 0;
}

int follow_run(int argc, char** argv, const std::string& run, const std::string& device,
               bool json) {
  const WorkerSpec spec{.folder = RunFolder::existing(run).path()};
  const Settings settings = read_settings(spec);
  ::setpriority(PRIO_PROCESS, 0, kNiceness);
  set_up_process(settings);
  Job job(argc, argv);
  const auto stopped = [&job] { return job.stop_signal() != 0; };
  observe::LockWatch training(spec.folder);
  follow(job, settings, spec, take_device(device),
         {.ended = [&] { return !training.is_locked(); },
          .stopped = stopped,
          .woken = stopped,
          .say = lines_to(json ? stderr : stdout),
          .patience = std::chrono::hours(24 * 365),  // nobody waits for it
          .json = json});
  return job.stop_signal();
}

}  // namespace trireme::inline v0::train
