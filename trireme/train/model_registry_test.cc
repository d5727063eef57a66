#include "trireme/train/model_registry.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/train/model_size.h"
#include "trireme/train/schema.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::ModelRegistry;

models::Blocks nothing(const ModelValues&) { return {}; }

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

config::Config read(const ModelRegistry& models, const std::vector<std::string>& assignments) {
  return train::read_config(
      "", [](const char*) { return nullptr; }, assignments, models);
}

TEST(ModelRegistry, TheFirstThatWasAddedIsTheStandardOne) {
  ModelRegistry models("mine");
  EXPECT_EQ(models.standard().name, "gpt");
  models.add("a", {{"width", 4, "channels"}}, nothing);
  models.add("b", {{"depth", 2, "blocks"}, {"block", 8, "tokens"}}, nothing);
  EXPECT_THAT(models.names(), ElementsAre("a", "b", "gpt"));
  EXPECT_EQ(read(models, {}).integer("model.width"), 4);
  EXPECT_EQ(read(models, {}).integer("model.block"), 64);
  EXPECT_EQ(read(models, {"model.name=b"}).integer("model.block"), 8);
  EXPECT_EQ(read(models, {"model.name=gpt", "model.heads=2"}).integer("model.heads"), 2);
  EXPECT_THAT(refusal([&] { read(models, {"model.depth=2"}); }),
              AllOf(HasSubstr("no key model.depth"), HasSubstr("`mine train --help-config`")));
}

TEST(ModelRegistry, AModelsKeysDecideTheBits) {
  ModelRegistry models;
  models.add("a", {{"width", 4, "channels"}}, nothing);
  const std::string base = read(models, {}).identity();
  EXPECT_THAT(base, HasSubstr("model.width = 4"));
  EXPECT_NE(read(models, {"model.width=5"}).identity(), base);
  EXPECT_NE(read(models, {"model.block=32"}).identity(), base);
}

TEST(ModelRegistry, RefusesWhatCannotBe) {
  ModelRegistry models;
  EXPECT_THAT(refusal([&] { models.add("gpt", {}, nothing); }), HasSubstr("already"));
  EXPECT_THAT(refusal([&] {
                models.add("a", {{"name", "x", ""}}, nothing);
              }),
              HasSubstr("model.name"));
  EXPECT_THAT(refusal([&] { models.add("a", {{"x.y", 1, ""}}, nothing); }), HasSubstr("x.y"));
  EXPECT_THAT(refusal([&] {
                models.add("a", {{"x", 1, ""}, {"x", 2, ""}}, nothing);
              }),
              HasSubstr("two keys"));
  EXPECT_THAT(refusal([&] {
                models.add("a", {{"block", 0.5, ""}}, nothing);
              }),
              HasSubstr("no integer"));
}

TEST(ModelValues, AreReadByNameAndType) {
  ModelRegistry models;
  models.add("a",
             {{"width", 4, "channels"}, {"share", 0.5, ""}, {"on", true, ""}, {"how", "x", ""}},
             nothing);
  const config::Config config = read(models, {"train.seed=7", "train.precision=bf16"});
  const ModelValues values("a", models.find("a")->keys, config);
  EXPECT_EQ(values.integer("width"), 4);
  EXPECT_EQ(values.number("width"), 4.0);
  EXPECT_EQ(values.number("share"), 0.5);
  EXPECT_TRUE(values.boolean("on"));
  EXPECT_EQ(values.text("how"), "x");
  EXPECT_EQ(values.block(), 64);
  EXPECT_EQ(values.seed(), 7u);
  EXPECT_EQ(values.precision(), "bf16");
  EXPECT_EQ(values.summary(), "width 4, share 0.5, on true, how x");
  EXPECT_THAT(refusal([&] { values.integer("hight"); }),
              AllOf(HasSubstr("\"hight\""), HasSubstr("width, share, on, how, block")));
  EXPECT_THAT(refusal([&] { values.integer("share"); }), HasSubstr("as an integer"));
  EXPECT_THAT(refusal([&] { values.text("on"); }), HasSubstr("it is true or false"));
}

// What is measured of the program's own GPT is what its formulas say.
TEST(ModelSize, MeasuredIsWhatIsKnown) {
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const config::Config config =
        read(train::own_models(), {std::string("train.precision=") + precision});
    const train::ModelKind& gpt = *train::own_models().find("gpt");
    const ModelValues values("gpt", gpt.keys, config);
    const train::ModelSize known = gpt.size(values, 4);
    const train::ModelSize measured = train::measure_size(gpt.make(values), 4, 64);
    EXPECT_EQ(measured.parameters, known.parameters);
    EXPECT_EQ(measured.largest_neighbours, known.largest_neighbours);
    EXPECT_NEAR(static_cast<double>(measured.activation_bytes),
                static_cast<double>(known.activation_bytes),
                0.15 * static_cast<double>(known.activation_bytes))
        << precision;
  }
}

TEST(ModelSize, DrawsNothingFromTheDefaultGenerator) {
  const config::Config config = read(train::own_models(), {});
  const train::ModelKind& gpt = *train::own_models().find("gpt");
  const ModelValues values("gpt", gpt.keys, config);
  models::Blocks drawing;
  drawing.add_block({.name = "draw", .make = []() -> std::shared_ptr<models::Block> {
                       at::rand({5});
                       throw ConfigError("drawn");
                     }});
  at::manual_seed(5);
  const at::Tensor wanted = at::rand({3});
  at::manual_seed(5);
  EXPECT_THROW(train::measure_size(drawing, 1, 8), ConfigError);
  EXPECT_TRUE(at::rand({3}).equal(wanted));
}

}  // namespace
}  // namespace trireme
