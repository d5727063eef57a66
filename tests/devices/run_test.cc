// Whole runs on a device, as `trireme train` makes them: with validation, checkpoints and a sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/weights_hash.h"
#include "trireme/cli/checkpoints.h"
#include "trireme/cli/cluster.h"
#include "trireme/format/safetensors.h"
#include "trireme/job/job.h"
#include "trireme/net/alone_transport.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/testing/emulated_device/emulated_device.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/device.h"
#include "trireme/train/evaluation/follow_run.h"
#include "trireme/train/evaluation/forward_model.h"
#include "trireme/train/evaluation/generate.h"
#include "trireme/train/run/run_data.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/training_process.h"

namespace trireme::devices {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kBytes = "\"device_bytes\":";

class DeviceRun : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::register_emulated_device({.devices = 4});
    folder_ = ::testing::TempDir() + "trireme-device-run-" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ + "/text");
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of the text\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A run of this configuration, which goes on if it has a checkpoint.
  train::WorkerSpec prepare(const std::string& name, const std::string& device, int steps,
                            const std::vector<std::string>& more) const {
    const train::RunFolder folder(folder_ + "/" + name);
    const bool resume = folder.newest_step() > 0;
    std::filesystem::create_directories(folder.path());
    std::vector<std::string> values{"data.path=" + folder_ + "/text",
                                    "model.layers=2",
                                    "model.width=16",
                                    "model.heads=2",
                                    "model.block=16",
                                    "batch.global=6",
                                    "batch.micro=1",
                                    "train.validate_every=2",
                                    "train.validate_sequences=7",
                                    "train.sample_bytes=20",
                                    "train.steps=" + std::to_string(steps)};
    values.insert(values.end(), more.begin(), more.end());
    folder.write_config(train::read_config(
        "", [](const char*) -> const char* { return nullptr; }, values));
    return {.folder = folder.path(), .device = device, .resume = resume};
  }

  static void run(int ranks, const train::WorkerSpec& spec) {
    const tensor::LibTorchOnCpu as_devices;
    train::set_up_training(spec);
    cli::run_on_cluster(ranks, {.alpha = 1e-5, .beta = 1e-9},
                        [&](const auto& transport, const auto& tuning) {
                          EXPECT_EQ(train::run_simulated_rank(transport, tuning, spec), 0);
                        });
  }

  /// Trains `name` until `steps` are done. Returns the hash of the weights.
  std::string train(const std::string& name, const std::string& device, int ranks, int steps,
                    const std::vector<std::string>& more = {}) const {
    const train::WorkerSpec spec = prepare(name, device, steps, more);
    run(ranks, spec);
    const auto checkpoint = cli::find_checkpoint(spec.folder);
    EXPECT_EQ(checkpoint->step, steps);
    return cli::hash_of(cli::model_weights(*checkpoint));
  }

  std::string folder_;
};

TEST_F(DeviceRun, GivesTheCpusWeights) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    const std::string key = std::string("train.precision=") + precision;
    EXPECT_EQ(train(std::string("device-") + precision, "emulated", 2, 4, {key}),
              train(std::string("cpu-") + precision, "cpu", 1, 4, {key}));
  }
}

TEST_F(DeviceRun, ACheckpointGoesOnOnTheCpuAndBack) {
  for (const auto& [sync, optimizer] :
       {std::pair{"plain", "adamw"}, {"zero3", "adamw"}, {"zero1", "adafactor"}}) {
    SCOPED_TRACE(sync);
    const std::string name = std::string("moved-") + sync;
    const std::string by = std::string("optimizer.name=") + optimizer;
    const std::vector<std::string> keys{std::string("parallel.sync=") + sync, by};
    train(name, "emulated", 3, 2, keys);
    train(name, "cpu", 2, 4, keys);
    EXPECT_EQ(train(name, "emulated", 2, 6, keys), train("whole", "cpu", 1, 6, {by}));
    std::filesystem::remove_all(folder_ + "/whole");
  }
}

TEST_F(DeviceRun, AModelCutInFourGoesOnAsOneOnTheCpu) {
  const std::vector<std::string> cut{"parallel.pipeline=2", "parallel.tensor=2"};
  train("cut", "emulated", 4, 2, cut);
  EXPECT_EQ(train("cut", "emulated", 4, 4, cut), train("cut-cpu", "cpu", 4, 4, cut));
}

// As `trireme eval` and `trireme generate` do.
TEST_F(DeviceRun, ATrainedModelIsEvaluatedAndWritesThere) {
  for (const std::string& offload : {std::string(), folder_}) {
    const std::string name = "written" + std::to_string(offload.size());
    train(name, "cpu", 1, 2,
          offload.empty() ? std::vector<std::string>() : std::vector{"memory.offload=" + offload});
    const train::RunFolder folder(folder_ + "/" + name);
    const train::Settings settings(train::read_config(folder.config()));
    const auto found = [&](Device device) {
      const tensor::LibTorchOnCpu as_devices;
      Job job(std::make_shared<net::AloneTransport>(RealWaiter::make()), {}, nullptr);
      Strategy strategy(job, settings.model.blocks,
                        train::forward_options(settings.strategy, device), settings.optimizer);
      EXPECT_EQ(train::load_newest(job, strategy, folder.checkpoint()), 2);
      const train::RunData data(settings, {.folder = folder.path()});
      const auto batches = train::held_out_batches(job, settings, *data.validation, 5);
      const auto result = train::evaluate(strategy, settings.model, batches);
      return std::pair(result->loss,
                       train::generate(strategy, settings.model.context, "line ", {.bytes = 20}));
    };
    testing::reset_emulated_stats();
    EXPECT_EQ(found({DeviceKind::Other, 0}), found({}));
    EXPECT_GT(testing::emulated_stats().operations, 0u);
  }
}

// As `trireme eval RUN --follow --device` does.
TEST_F(DeviceRun, CheckpointsAreFollowedThere) {
  const auto losses = [&](const std::string& name, const std::string& device) {
    train(name, "cpu", 1, 4, {"checkpoint.every=2"});
    const tensor::LibTorchOnCpu as_devices;
    std::string program = "trireme";
    char* arguments[] = {program.data(), nullptr};
    EXPECT_EQ(train::follow_run(1, arguments, folder_ + "/" + name, device, false), 0);
    std::vector<std::string> found;
    std::ifstream events(folder_ + "/" + name + "/evaluator.jsonl");
    for (std::string line; std::getline(events, line);)
      if (const auto at = line.find("\"loss\":"); at != std::string::npos)
        found.push_back(line.substr(at, line.find(',', at) - at));
    return found;
  };
  const std::vector<std::string> on_cpu = losses("followed-cpu", "cpu");
  EXPECT_EQ(on_cpu.size(), 2u);
  testing::reset_emulated_stats();
  EXPECT_EQ(losses("followed-device", "emulated"), on_cpu);
  EXPECT_GT(testing::emulated_stats().operations, 0u);
}

TEST_F(DeviceRun, WantOfMemorySaysWhatWasPlanned) {
  try {
    train("huge", "emulated", 1, 1,
          {"model.width=2048", "model.layers=4", "model.heads=1", "train.sample_bytes=0"});
    FAIL() << "1 GiB held it";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the device has no memory left: emulated:0"),
                                    HasSubstr("bytes were asked for"), HasSubstr("batch.micro")));
  }
}

// The model has room, but not what a micro-batch of it saves. Every rank tells it.
TEST_F(DeviceRun, WantOfMemoryInAStepSaysWhatWasPlanned) {
  train::WorkerSpec full = prepare("full", "emulated", 1,
                                   {"model.width=512", "model.layers=12", "model.block=512",
                                    "batch.global=64", "batch.micro=32"});
  full.predicted_bytes = 2'000'000'000;
  try {
    run(2, full);
    FAIL() << "1 GiB held it";
  } catch (const ResourceError& error) {
    EXPECT_EQ(error.exit_code(), 171);
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("rank 0 refused the step: the device has no memory left: emulated:"),
              HasSubstr("bytes were asked for"), HasSubstr("the plan had 2.0 GB of tensors"),
              HasSubstr("batch.micro")));
  }
}

TEST_F(DeviceRun, ADeviceThatIsNotThereIsNamed) {
  const std::vector<std::string> one{"train.steps=1"};
  try {
    train("none", "nonsense", 1, 1, one);
    FAIL() << "it trained";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("nonsense:0 cannot be used"));
  }
}

TEST_F(DeviceRun, EventsTellTheDevicesMemory) {
  train("told", "emulated", 2, 2);
  std::ifstream events(train::RunFolder(folder_ + "/told").events());
  int steps = 0, told = 0;
  for (std::string line; std::getline(events, line);) {
    steps += line.find("\"event\":\"step\"") != std::string::npos;
    told += line.find(kBytes) != std::string::npos;
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(told, steps);
}

// A process may train more than once.
TEST_F(DeviceRun, TheMostMemoryIsOfThisTrainingAlone) {
  const auto most = [&](const std::string& name, const std::vector<std::string>& more) {
    train(name, "emulated", 1, 1, more);
    std::ifstream events(train::RunFolder(folder_ + "/" + name).events());
    long bytes = 0;
    for (std::string line; std::getline(events, line);)
      if (const auto at = line.find(kBytes); at != std::string::npos)
        bytes = std::stol(line.substr(at + kBytes.size()));
    return bytes;
  };
  const long large = most("large", {"model.width=256"});
  EXPECT_LT(most("small", {}), large);
}

TEST_F(DeviceRun, ATrialMeasuresTheDevicesMemory) {
  train::WorkerSpec spec = prepare("trial", "emulated", 2, {});
  spec.trial = true;
  testing::reset_emulated_peak(0);
  run(1, spec);
  std::ifstream events(train::RunFolder(spec.folder).events());
  std::string trial;
  std::getline(events, trial);
  EXPECT_THAT(trial, HasSubstr("\"measured_memory_bytes\":" +
                               std::to_string(testing::emulated_memory(0).peak_allocated)));
}

TEST_F(DeviceRun, TheReportNamesEveryDeviceAndItsMemory) {
  const train::DeviceReport report = train::report_devices(train::devices_here());
  EXPECT_EQ(report.kinds, "cpu, emulated");
  ASSERT_EQ(report.devices.size(), 4u);
  EXPECT_THAT(report.devices[3],
              AllOf(HasSubstr("emulated:3, "), HasSubstr(" free of "), HasSubstr("GB")));
}

TEST_F(DeviceRun, OtherOptionsOfAStep) {
  const std::string kept = train("kept", "cpu", 1, 3);
  for (const char* memory :
       {"memory.recompute=full", "memory.offload_activations=host", "memory.offload=host"}) {
    train(memory, "emulated", 2, 2, {memory});
    EXPECT_EQ(train(memory, "emulated", 2, 3, {memory}), kept) << memory;
  }
  std::vector<std::string> average{"train.ema=0.9", "train.precision=bf16"};
  const std::string averaged = train("average-cpu", "cpu", 1, 3, average);
  EXPECT_EQ(train("average", "emulated", 2, 3, average), averaged);
  average.insert(average.end(), {"memory.offload=host", "parallel.sync=zero3"});
  train("average-host", "emulated", 3, 2, average);
  EXPECT_EQ(train("average-host", "emulated", 2, 3, average), averaged);
}

#if __has_include(<ATen/core/GraphImplInterface.h>)
TEST_F(DeviceRun, GraphsGoOnFromACheckpointAndSayWhatTheyDid) {
  const std::vector<std::string> keys{"train.graphs=true", "model.dropout=0.1"};
  train("graphs", "emulated", 2, 2, keys);
  ::testing::internal::CaptureStdout();
  const std::string hash = train("graphs", "emulated", 1, 4, keys);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("1 graph recorded, replayed for 11 micro-batches"));
  EXPECT_EQ(hash, train("eager-cpu", "cpu", 1, 4, {"model.dropout=0.1"}));
}
#endif

}  // namespace
}  // namespace trireme::devices
