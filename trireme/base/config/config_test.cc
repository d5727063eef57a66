#include "trireme/base/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::Schema schema() {
  config::Schema schema;
  schema.add({"timeout", 30.0, "Silence, in seconds.", 0.1});
  schema.add({"timeout.user_code", 1800.0, "Seconds.", 1});
  schema.add({"model.layers", std::int64_t{4}, "Blocks.", 1, 1000, {}, true});
  schema.add({"model.name", std::string("gpt"), "Which model.", {}, {}, {"gpt", "mlp"}, true});
  schema.add({"train.learning_rate", 1e-3, "Peak rate.", 0});
  schema.add({"train.reproducible", true, "Same bits.", 0, 1});
  schema.add({.name = "train.scale", .fallback = std::string("auto"), .numbers = true});
  return schema;
}

std::string refusal(const std::function<void(config::Config&)>& act) {
  config::Config config(schema());
  try {
    act(config);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "nothing was thrown";
}

std::string refused_text(const std::string& text) {
  return refusal([&](config::Config& config) { config.read_text(text, "dir/job.toml"); });
}

TEST(Config, ATextMayBeWrittenAsANumberWhereItsKeySaysSo) {
  config::Config config(schema());
  config.read_text("[train]\nscale = 1024\n", "job.toml");
  EXPECT_EQ(config.text("train.scale"), "1024");
  config.read_text("[train]\nscale = 0.5\n", "job.toml");
  EXPECT_EQ(config.text("train.scale"), "0.5");
  config.read_text("[train]\nscale = \"auto\"\n", "job.toml");
  EXPECT_EQ(config.text("train.scale"), "auto");
  EXPECT_THAT(refused_text("[train]\nscale = true\n"), HasSubstr("must be a text"));
  EXPECT_THAT(refused_text("[model]\nname = 7\n"), HasSubstr("must be a text"));
}

TEST(Config, LaterSourcesWin) {
  config::Config config(schema());
  EXPECT_EQ(config.integer("model.layers"), 4);
  EXPECT_EQ(config.source("model.layers"), "default");
  config.read_text("\n[model]\nlayers = 6\n", "dir/job.toml");
  EXPECT_EQ(config.integer("model.layers"), 6);
  EXPECT_EQ(config.source("model.layers"), "job.toml:3");
  config.read_environment([](const char* name) -> const char* {
    return std::string(name) == "TRIREME_MODEL_LAYERS" ? "8" : nullptr;
  });
  EXPECT_EQ(config.integer("model.layers"), 8);
  EXPECT_EQ(config.source("model.layers"), "TRIREME_MODEL_LAYERS");
  config.set("model.layers=10");
  EXPECT_EQ(config.integer("model.layers"), 10);
  EXPECT_EQ(config.source("model.layers"), "--set");
}

TEST(Config, UnknownKeyNamesFileLineAndNearest) {
  EXPECT_THAT(refused_text("[train]\nreproducible = true\nlearning_rat = 1\n"),
              AllOf(HasSubstr("dir/job.toml:3"), HasSubstr("train.learning_rat"),
                    HasSubstr("Did you mean train.learning_rate?")));
}

TEST(Config, AKeyThatIsFarFromAllIsNotCompared) {
  EXPECT_THAT(refused_text("[train]\nnumber_of_transformer_blocks = 1\n"),
              AllOf(HasSubstr("there is no key train.number_of_transformer_blocks"),
                    Not(HasSubstr("Did you mean")), HasSubstr("lists every key")));
}

TEST(Config, ForgottenTableIsFound) {
  EXPECT_THAT(refused_text("learning_rate = 1.0\n"), HasSubstr("train.learning_rate?"));
  EXPECT_THAT(refused_text("[modell]\nlayers = 1\n"), HasSubstr("model.layers?"));
}

TEST(Config, FirstMistakeInTheFileIsReported) {
  EXPECT_THAT(refused_text("[train]\nzzz = 1\n[model]\naaa = 1\n"), HasSubstr("job.toml:2"));
}

TEST(Config, WrongTypeIsNamed) {
  EXPECT_THAT(refused_text("[model]\nlayers = \"six\"\n"),
              AllOf(HasSubstr("job.toml:2"), HasSubstr("model.layers must be an integer"),
                    HasSubstr("string")));
  EXPECT_THAT(refused_text("[model]\nlayers = 6.5\n"), HasSubstr("must be an integer"));
  EXPECT_THAT(refused_text("[train]\nreproducible = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(refusal([](config::Config& c) { c.set("model.layers=4x"); }),
              AllOf(HasSubstr("--set"), HasSubstr("an integer")));
}

TEST(Config, IntegerIsANumber) {
  config::Config config(schema());
  config.read_text("[train]\nlearning_rate = 1\n", "a.toml");
  EXPECT_EQ(config.number("train.learning_rate"), 1.0);
}

TEST(Config, RangeAndChoices) {
  EXPECT_THAT(refused_text("[model]\nlayers = 0\n"), HasSubstr("at least 1"));
  EXPECT_THAT(refused_text("[model]\nname = \"bert\"\n"), HasSubstr("gpt, mlp"));
  EXPECT_THAT(refused_text("[train]\nlearning_rate = nan\n"), HasSubstr("out of range"));
}

TEST(Config, AKeyHasOneValueHoweverItIsWritten) {
  EXPECT_THAT(refused_text("\"model.layers\" = 5\n[model]\nlayers = 6\n"),
              AllOf(HasSubstr("dir/job.toml:3: model.layers has a value already, from job.toml:1"),
                    HasSubstr("Leave one of them out")));
}

TEST(Config, BrokenTomlNamesTheLine) {
  EXPECT_THAT(refused_text("[model]\nlayers = \n"), HasSubstr("dir/job.toml:2"));
}

TEST(Config, AMissingFileIsNamed) {
  EXPECT_THAT(refusal([](config::Config& c) { c.read_file("/nonexistent/x.toml"); }),
              HasSubstr("/nonexistent/x.toml"));
}

TEST(Config, AnEmptyFileIsAnEmptyConfiguration) {
  const std::string path = ::testing::TempDir() + "empty-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path).flush();
  config::Config config(schema());
  config.read_file(path);
  EXPECT_EQ(config.integer("model.layers"), 4);
  EXPECT_EQ(config::text_in_file(path, "model.name"), std::nullopt);
  std::remove(path.c_str());
}

TEST(Config, AssignmentNeedsEquals) {
  EXPECT_THAT(refusal([](config::Config& c) { c.set("model.layers"); }), HasSubstr("key=value"));
  EXPECT_THAT(refusal([](config::Config& c) { c.set("=4"); }),
              AllOf(HasSubstr("=4 names no key"), HasSubstr("key=value")));
}

TEST(Config, WritesWhatItReads) {
  config::Config config(schema());
  config.set("model.layers=12");
  config.set("timeout.user_code=7");
  config.set("train.learning_rate=6e-4");
  config.set("train.reproducible=false");
  const std::string text = config.to_toml();
  EXPECT_THAT(text, AllOf(HasSubstr("layers = 12"), HasSubstr("# --set"), HasSubstr("# default")));
  config::Config again(schema());
  again.read_text(text, "again.toml");
  for (const config::Key& key : again.schema().keys()) {
    EXPECT_EQ(again.value(key.name), config.value(key.name)) << key.name << "\n" << text;
  }
}

TEST(Config, WritesATableOnceWhereverItsKeysStand) {
  config::Schema own;
  own.add({"train.loss", std::string("tokens"), "."});
  own.add({"batch.micro", std::int64_t{2}, "."});
  own.add({"train.steps", std::int64_t{3}, "."});
  config::Config config(own);
  config.assign("train.steps", std::int64_t{4}, "--set");
  config::Config again(own);
  again.read_text(config.to_toml(), "written.toml");
  EXPECT_EQ(again.integer("train.steps"), 4);
}

TEST(Config, TablesBecomeOneText) {
  config::Schema tables;
  tables.add({.name = "a.groups", .fallback = std::string(), .meaning = "", .tables = true});
  tables.add({.name = "a.text", .fallback = std::string(), .meaning = ""});
  config::Config config(tables);
  config.read_text(
      "[[a.groups]]\nmatch = \"*.bias\"\nweight_decay = 0\n[[a.groups]]\nmatch = \"x\"\nrate = "
      "0.5\n",
      "job.toml");
  EXPECT_EQ(config.text("a.groups"), "match=*.bias weight_decay=0; match=x rate=0.5");
  config::Config again(tables);
  again.read_text(config.to_toml(), "written.toml");
  EXPECT_EQ(again.text("a.groups"), config.text("a.groups"));
  EXPECT_THROW(config.read_text("[[a.text]]\nx = 1\n", "job.toml"), ConfigError);
  EXPECT_THROW(config.read_text("[a]\ngroups = [1, 2]\n", "job.toml"), ConfigError);
  const auto refusal = [&](const std::string& line) {
    try {
      config.read_text("[[a.groups]]\n" + line, "job.toml");
    } catch (const ConfigError& error) {
      return error.message();
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal("match = \"a b\""),
              HasSubstr("job.toml:1: a.groups: match = \"a b\" has a space"));
  EXPECT_THAT(refusal("match = \"a;b\""), HasSubstr("match = \"a;b\" has a space or a ';'"));
  EXPECT_THAT(refusal("decay = true"),
              HasSubstr("decay must be a text or a number, not a TOML boolean"));
}

TEST(Config, TextSurvivesQuoting) {
  config::Schema one;
  one.add({"data.path", std::string(), "Path."});
  config::Config config(one), again(one);
  std::string controls = "\x7f\u00e9\u4e2d";
  for (char c = 1; c < 0x20; ++c) controls += c;
  for (const std::string& text : {std::string("a \"b\" \\ c"), std::string("a\rb"), controls}) {
    config.assign("data.path", text, "a\nname.toml:3");
    again.read_text(config.to_toml(), "x.toml");
    EXPECT_EQ(again.text("data.path"), text);
  }
}

TEST(Config, ATextThatTomlCannotHoldIsRefused) {
  config::Schema one;
  one.add({"data.path", std::string(), "Path."});
  config::Config config(one);
  for (const char* bytes : {"data.path=caf\xe9", "data.path=\xc3", "data.path=\xed\xa0\x80"}) {
    try {
      config.set(bytes);
      FAIL() << "taken: " << escaped(bytes);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("--set: data.path"), HasSubstr("UTF-8")));
      EXPECT_TRUE(is_utf8(error.what()));
    }
  }
}

TEST(Utf8, EscapesWhatNoTerminalShows) {
  EXPECT_EQ(escaped("a\nb\x7f \u00e9 \xe9."), "a\\x0ab\\x7f \u00e9 \\xe9.");
  EXPECT_TRUE(is_utf8("\u00e9\u4e2d\U0001F600"));
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));
}

TEST(Config, IdentityHoldsItsKeysOnly) {
  config::Config config(schema());
  EXPECT_EQ(config.identity(), "model.layers = 4\nmodel.name = \"gpt\"\n");
}

TEST(Config, BoundsHaveAllTheirDigits) {
  config::Schema keys;
  keys.add({"train.scale", 65536.0, "Of the loss.", 1, 4294967296.0});
  EXPECT_THAT(keys.help(), HasSubstr("at least 1, at most 4294967296)"));
  config::Config config(keys);
  try {
    config.set("train.scale=4.29497e9");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("It must be at least 1 and at most 4294967296."));
  }
}

TEST(Config, HelpListsEveryKey) {
  const config::Schema keys = schema();
  const std::string help = keys.help();
  for (const config::Key& key : keys.keys()) {
    EXPECT_THAT(help, AllOf(HasSubstr(key.name), HasSubstr(key.meaning)));
  }
  EXPECT_THAT(help, HasSubstr("model.layers = 4  (an integer, at least 1, at most 1000)"));
  EXPECT_THAT(help, HasSubstr("(true or false)"));
}

}  // namespace
}  // namespace trireme
