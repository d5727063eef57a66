#include "trireme/train/config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/models/figures.h"
#include "trireme/models/models.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::Config with(const std::vector<std::string>& assignments) {
  return train::read_config(
      "", [](const char*) { return nullptr; }, assignments);
}

std::string refusal(const std::vector<std::string>& assignments) {
  try {
    train::Settings settings(with(assignments));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Settings, DefaultsAreValid) {
  const train::Settings settings(with({}));
  EXPECT_EQ(settings.batches.batch % settings.batches.micro, 0);
}

TEST(Settings, ValuesArriveWhereTheyBelong) {
  const train::Settings settings(
      with({"train.beta2=0.95", "train.seed=7", "train.precision=bf16", "timeout=2",
            "train.final_learning_rate=0.5", "comm.algorithm=ring", "train.clip=0.25"}));
  EXPECT_EQ(std::get<AdamW>(settings.optimizer).beta2, 0.95);
  EXPECT_EQ(settings.seed, 7u);
  EXPECT_EQ(settings.batches.seed, 7u);
  EXPECT_EQ(settings.strategy.seed, 7u);
  EXPECT_EQ(settings.strategy.precision, "bf16");
  EXPECT_EQ(settings.job.timeout, std::chrono::seconds(2));
  EXPECT_EQ(settings.schedule.final_rate, 0.5);
  EXPECT_EQ(settings.job.algorithm, "ring");
  EXPECT_EQ(settings.strategy.clip, 0.25);
}

TEST(Settings, AStrategysNameSetsItsKeys) {
  const config::Config config = with({"parallel.strategy=fully_sharded_data_parallel"});
  EXPECT_EQ(config.source("parallel.sync"), "parallel.strategy");
  const train::Settings settings(config);
  EXPECT_EQ(settings.strategy.sync, "zero3");
  EXPECT_EQ(
      train::Settings(with({"parallel.strategy=GPipe", "parallel.pipeline=4"})).strategy.pipeline,
      4);
  EXPECT_THAT(refusal({"parallel.strategy=ZeRO1", "parallel.sync=zero2"}),
              AllOf(HasSubstr("parallel.sync = \"zero2\" (--set)"), HasSubstr("\"ZeRO1\"")));
  EXPECT_THAT(refusal({"parallel.strategy=TPUStrategy"}), HasSubstr("no TPU device"));
}

TEST(Settings, ASavedStrategyMeansTheSameAgain) {
  config::Config again = with({});
  again.read_text(with({"parallel.strategy=1F1B"}).to_toml(), "saved.toml");
  EXPECT_EQ(train::Settings(again).strategy.pipeline, 2);
}

TEST(Settings, TheLossScaleIsFp16s) {
  EXPECT_FALSE(train::Settings(with({"train.precision=bf16"})).strategy.loss_scale);
  const LossScaleOptions usual =
      *train::Settings(with({"train.precision=fp16"})).strategy.loss_scale;
  EXPECT_TRUE(usual.dynamic);
  EXPECT_EQ(usual.initial, 65536);
  EXPECT_EQ(usual.window, 2000);
  const LossScaleOptions moved =
      *train::Settings(with({"train.precision=fp16", "train.initial_loss_scale=256",
                             "train.loss_scale_window=9"}))
           .strategy.loss_scale;
  EXPECT_EQ(moved.initial, 256);
  EXPECT_EQ(moved.window, 9);
  config::Config file = with({"train.precision=fp16"});
  file.read_text("[train]\nloss_scale = 1024\n", "job.toml");
  const LossScaleOptions fixed = *train::Settings(file).strategy.loss_scale;
  EXPECT_FALSE(fixed.dynamic);
  EXPECT_EQ(fixed.initial, 1024);
}

TEST(Settings, RefusesALossScaleThatCannotBe) {
  EXPECT_THAT(
      refusal({"train.loss_scale=1024"}),
      AllOf(HasSubstr(
                "train.loss_scale = \"1024\" cannot be combined with train.precision = \"fp32\""),
            HasSubstr("use fp16")));
  EXPECT_THAT(
      refusal({"train.precision=bf16", "train.initial_loss_scale=2"}),
      HasSubstr(
          "train.initial_loss_scale = 2.0 cannot be combined with train.precision = \"bf16\""));
  EXPECT_THAT(refusal({"train.precision=fp16", "train.loss_scale=1000"}),
              HasSubstr("train.loss_scale = 1000 is not a power of two"));
  EXPECT_THAT(refusal({"train.precision=fp16", "train.loss_scale=automatic"}),
              AllOf(HasSubstr("train.loss_scale is 'automatic'"), HasSubstr("Use dynamic")));
  EXPECT_THAT(refusal({"train.precision=fp16", "train.initial_loss_scale=3"}),
              HasSubstr("train.initial_loss_scale = 3 is not a power of two"));
  EXPECT_THAT(refusal({"train.precision=fp8"}), HasSubstr("fp16"));
}

// The loss scale does not change the identity of runs in other precisions.
TEST(Settings, TheLossScaleDecidesTheBitsOfFp16Alone) {
  const auto identity = [](const std::vector<std::string>& assignments) {
    return train::Settings(with(assignments)).job.identity;
  };
  EXPECT_THAT(identity({}), ::testing::Not(HasSubstr("loss_scale")));
  EXPECT_THAT(
      identity({"train.precision=fp16", "train.loss_scale=64"}),
      AllOf(HasSubstr("train.precision = \"fp16\"\n"), HasSubstr("train.loss_scale = \"64\"\n"),
            HasSubstr("train.initial_loss_scale = 65536.0\n"),
            HasSubstr("train.loss_scale_window = 2000\n")));
}

TEST(Settings, WhatARankComputesWithReachesIt) {
  const train::Settings settings(with({"train.lanes=3", "train.kernel_table=a.toml"}));
  EXPECT_EQ(settings.strategy.lanes, 3);
  EXPECT_EQ(settings.kernel_table, "a.toml");
}

// Registers a model family with its own data.
void register_line() {
  if (train::find_model("line") != nullptr) return;
  train::register_data({.name = "points",
                        .keys = {{"data.order", std::string("any"), "Whose."}},
                        .make = [](const config::Config&) { return train::text_source(8, 1); }});
  train::register_model({.name = "line",
                         .keys = {{"model.slope", 0.5, "Of the line."}},
                         .data = "points",
                         .make = [](const config::Config& config) {
                           return train::TrainingModel{
                               .description = "a line of slope " +
                                              std::to_string(config.number("model.slope")),
                               .blocks = v0::models::make_mlp({.widths = {3, 4, 2}})};
                         }});
}

TEST(DataFamily, TheKeysAreThoseOfTheDataThatIsNamed) {
  register_line();
  EXPECT_EQ(with({"data.name=points", "data.order=none"}).text("data.order"), "none");
  EXPECT_EQ(with({"model.name=line"}).text("data.name"), "points");
  EXPECT_EQ(with({"model.name=resnet18"}).text("train.loss"), "classes");
  EXPECT_THAT(refusal({"data.order=none"}), HasSubstr("no key data.order"));
  EXPECT_THAT(refusal({"data.name=point"}), AllOf(HasSubstr("masked-text"), HasSubstr("points")));
  EXPECT_THAT(refusal({"train.loss=token"}), AllOf(HasSubstr("tokens"), HasSubstr("classes")));
  EXPECT_THAT(train::training_help(), AllOf(HasSubstr("data.order"), HasSubstr("data.augment")));
  const train::Settings other(with({"data.name=masked-text", "train.loss=classes"}));
  EXPECT_EQ(other.model.data->words().counted, "hidden bytes");
  EXPECT_TRUE(other.model.correct);
  EXPECT_EQ(other.model.context, 0);  // its data is not text
}

// The model's defaults are not in the identity, so that older checkpoints still match.
TEST(DataFamily, OtherDataAndAnotherLossDecideTheBits) {
  const auto identity = [](const std::vector<std::string>& assignments) {
    return train::Settings(with(assignments)).job.identity;
  };
  EXPECT_THAT(identity({}), Not(AnyOf(HasSubstr("data.name"), HasSubstr("train.loss"))));
  EXPECT_EQ(identity({"data.name=text", "train.loss=tokens"}), identity({}));
  EXPECT_THAT(identity({"data.name=masked-text"}), HasSubstr("data.name = \"masked-text\"\n"));
  EXPECT_THAT(identity({"train.loss=classes"}), HasSubstr("train.loss = \"classes\"\n"));
}

TEST(ModelFamily, TheKeysAreThoseOfTheModelThatIsNamed) {
  register_line();
  const train::Settings line(with({"model.name=line", "model.slope=2", "data.order=none"}));
  EXPECT_THAT(line.model.description, HasSubstr("slope 2.0"));
  // Also if the name comes after the keys.
  EXPECT_EQ(with({"model.slope=2", "model.name=\"line\""}).number("model.slope"), 2);
  EXPECT_THAT(refusal({"model.name=line", "model.heads=2"}), HasSubstr("no key model.heads"));
  EXPECT_THAT(refusal({"model.slope=2"}), HasSubstr("no key model.slope"));
  EXPECT_THAT(refusal({"model.name=lime"}), AllOf(HasSubstr("gpt"), HasSubstr("line")));
  const config::Config by_variable = train::read_config(
      "",
      [](const char* name) { return std::string(name) == "TRIREME_MODEL_NAME" ? "line" : nullptr; },
      {});
  EXPECT_EQ(by_variable.number("model.slope"), 0.5);
  EXPECT_THAT(train::training_help(), HasSubstr("model.slope"));
}

TEST(ModelFamily, ItsModelKeysDecideTheBits) {
  register_line();
  const std::string identity = with({"model.name=line"}).identity();
  EXPECT_THAT(identity, HasSubstr("model.slope = 0.5"));
  EXPECT_THAT(identity, ::testing::Not(HasSubstr("data.order")));
}

TEST(ModelFamily, ParametersAreCountedWhereItSaysNone) {
  register_line();
  const train::ModelFigures figures =
      train::Settings(with({"model.name=line"})).model.figures(1, {});
  EXPECT_EQ(figures.parameters, 3 * 4 + 4 + 4 * 2 + 2);
  EXPECT_EQ(figures.largest_neighbours, figures.parameters);
  // The tied head counts once in `parameters`, but also in its own block's size.
  const v0::models::GptConfig gpt{.layers = 2, .heads = 2, .width = 16, .block = 4, .vocab = 50};
  EXPECT_EQ(train::count_parameters(v0::models::make_gpt(gpt)).parameters,
            v0::models::num_parameters(gpt));
  EXPECT_EQ(train::count_parameters(v0::models::make_gpt(gpt)).largest_neighbours,
            v0::models::largest_neighbours(gpt));
}

TEST(ModelFamily, ATakenNameAndForeignKeysAreRefused) {
  const auto refused = [](train::ModelFamily family) {
    try {
      train::register_model(std::move(family));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refused({.name = "gpt"}), HasSubstr("\"gpt\" is already registered"));
  EXPECT_THAT(refused({.name = "x", .keys = {{"train.steps", 1.0, ""}}}), HasSubstr("train.steps"));
  EXPECT_THAT(refused({.name = "x", .keys = {{"model.name", 1.0, ""}}}), HasSubstr("model.name"));
  EXPECT_THAT(refused({.name = "x", .keys = {{"data.order", 1.0, ""}}}), HasSubstr("data.order"));
  EXPECT_THAT(refused({.name = "x", .data = "y"}), AllOf(HasSubstr("\"y\""), HasSubstr("text")));
  EXPECT_THAT(refused({.name = "x", .loss = "y"}), AllOf(HasSubstr("\"y\""), HasSubstr("tokens")));
  EXPECT_EQ(train::find_model("x"), nullptr);
}

TEST(Settings, OptimizersTakeTheirNumbers) {
  const train::Settings sgd(with({"optimizer.name=sgd", "optimizer.momentum=0.8",
                                  "optimizer.nesterov=true", "train.weight_decay=0.3"}));
  EXPECT_EQ(std::get<Sgd>(sgd.optimizer).momentum, 0.8);
  EXPECT_TRUE(std::get<Sgd>(sgd.optimizer).nesterov);
  EXPECT_EQ(std::get<Sgd>(sgd.optimizer).weight_decay, 0.3);
  const train::Settings lamb(with({"optimizer.name=lamb", "train.beta1=0.7"}));
  EXPECT_EQ(std::get<Lamb>(lamb.optimizer).beta1, 0.7);
  const train::Settings lion(with({"optimizer.name=lion", "train.beta2=0.7"}));
  EXPECT_EQ(std::get<Lion>(lion.optimizer).beta2, 0.7);
  const train::Settings adafactor(with({"optimizer.name=adafactor", "optimizer.update_clip=2"}));
  EXPECT_EQ(std::get<Adafactor>(adafactor.optimizer).clip, 2);
  const train::Settings ftrl(with({"optimizer.name=ftrl", "optimizer.l1=0.25"}));
  EXPECT_EQ(std::get<Ftrl>(ftrl.optimizer).l1, 0.25);
  EXPECT_THAT(refusal({"optimizer.name=adam"}), HasSubstr("adafactor"));
  EXPECT_THAT(refusal({"optimizer.name=sgd", "optimizer.nesterov=true", "optimizer.dampening=0.1"}),
              HasSubstr("nesterov"));
  EXPECT_THAT(refusal({"train.beta1=1"}), HasSubstr("adamw cannot train with a beta of 1"));
}

TEST(Settings, GroupsAreRead) {
  const train::Settings settings(
      with({"optimizer.groups=match=*.bias weight_decay=0; match=embed.* learning_rate=0.5"}));
  const auto& groups = std::get<AdamW>(settings.optimizer).groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].match, "*.bias");
  EXPECT_EQ(groups[0].weight_decay, 0.0);
  EXPECT_EQ(groups[0].rate_factor, 1);
  EXPECT_EQ(groups[1].rate_factor, 0.5);
  EXPECT_FALSE(groups[1].weight_decay.has_value());
  EXPECT_THAT(refusal({"optimizer.groups=weight_decay=0"}), HasSubstr("which names"));
  EXPECT_THAT(refusal({"optimizer.groups=match=a weight_decay=x"}), HasSubstr("\"x\""));
  EXPECT_THAT(refusal({"optimizer.groups=match=a wd=0"}), HasSubstr("wd=0"));
}

TEST(Settings, SchedulesAreChosenAndScaled) {
  const train::Settings settings(
      with({"train.schedule=wsd", "train.steps=100", "train.warmup=5", "train.learning_rate=0.1",
            "train.final_learning_rate=0", "batch.global=32", "train.base_batch=8"}));
  EXPECT_EQ(settings.schedule.decay, optim::Decay::Stable);
  EXPECT_EQ(settings.schedule.decay_steps, 20);
  EXPECT_DOUBLE_EQ(optim::learning_rate(settings.schedule, 50), 0.4);
  EXPECT_DOUBLE_EQ(optim::learning_rate(settings.schedule, 90), 0.2);
  EXPECT_DOUBLE_EQ(optim::learning_rate_of(settings.optimizer), 0.4);
  EXPECT_THAT(refusal({"train.schedule=one_cycle"}), HasSubstr("train.warmup = 0"));
  EXPECT_THAT(refusal({"train.schedule=step"}), HasSubstr("train.step_every"));
  EXPECT_THAT(refusal({"train.schedule=cosinus"}), HasSubstr("one_cycle"));
}

TEST(Settings, HeadsMustDivideTheWidth) {
  EXPECT_THAT(refusal({"model.width=130", "model.heads=4"}),
              AllOf(HasSubstr("130 / 4"), HasSubstr("leaves 2")));
}

TEST(Settings, WhatDecidesTheBitsIsTheIdentity) {
  const std::string base = with({}).identity();
  for (const char* change :
       {"train.seed=9", "batch.micro=2", "train.precision=bf16", "train.kernel_threads=2",
        "train.beta2=0.5", "model.layers=2", "model.dropout=0.1", "optimizer.name=lion",
        "train.schedule=linear", "optimizer.groups=match=*.bias weight_decay=0"}) {
    EXPECT_NE(with({change}).identity(), base) << change;
  }
  for (const char* change :
       {"comm.algorithm=ring", "comm.transport=tcp", "comm.sockets=2", "timeout=5",
        "checkpoint.every=3", "comm.bucket_bytes=4096", "train.lanes=4"}) {
    EXPECT_EQ(with({change}).identity(), base) << change;
  }
}

// Ranks that train their own copies do not compute the bits of the other layouts.
TEST(Settings, LocalStepsAreOfTheIdentityWhereTheyAreUsed) {
  const auto identity = [](std::vector<std::string> assignments) {
    return train::Settings(with(assignments)).job.identity;
  };
  const std::string plain = identity({});
  EXPECT_EQ(identity({"parallel.sync=zero3"}), plain);
  EXPECT_EQ(identity({"parallel.pipeline=4", "parallel.schedule=zb-h1"}), plain);
  EXPECT_EQ(identity({"parallel.local_steps=5"}), plain);
  const std::string local = identity({"parallel.sync=local_sgd"});
  EXPECT_NE(local, plain);
  EXPECT_NE(identity({"parallel.sync=local_sgd", "parallel.local_steps=5"}), local);
  EXPECT_NE(identity({"parallel.sync=local_sgd", "parallel.post_local_after=5"}), local);
  const train::Settings settings(
      with({"parallel.sync=local_sgd", "parallel.local_steps=5", "parallel.post_local_after=20"}));
  EXPECT_EQ(settings.strategy.sync, "local_sgd");
  EXPECT_EQ(settings.strategy.local.steps, 5);
  EXPECT_EQ(settings.strategy.local.post_local_after, 20);
  EXPECT_EQ(settings.checkpoints.identity, settings.job.identity);
  EXPECT_EQ(identity({"parallel.sync=local_sgd", "parallel.elastic=0.5"}), local);
  const std::string diloco = identity({"parallel.sync=diloco"});
  EXPECT_NE(identity({"parallel.sync=diloco", "parallel.outer_rate=0.5"}), diloco);
  EXPECT_NE(identity({"parallel.sync=diloco", "parallel.outer_momentum=0.5"}), diloco);
  EXPECT_NE(identity({"parallel.sync=gossip", "parallel.graph=ring"}),
            identity({"parallel.sync=gossip"}));
  EXPECT_NE(identity({"parallel.sync=easgd", "parallel.elastic=0.5"}),
            identity({"parallel.sync=easgd"}));
}

TEST(Settings, WhatIsNotThereYetIsRefused) {
  EXPECT_THAT(refusal({"parallel.sync=central"}), HasSubstr("plain"));
  EXPECT_THAT(refusal({"memory.recompute=\"all\""}), HasSubstr("none, selective, full, every-K"));
}

}  // namespace
}  // namespace trireme
