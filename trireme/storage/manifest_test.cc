#include "trireme/storage/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "trireme/base/error.h"

namespace trireme::storage {
namespace {

using ::testing::HasSubstr;

Manifest sample() {
  return {.step = 500,
          .identity = "model gpt\nseed 1",
          .files = {{"model.safetensors", {.bytes = 12, .chunks = {"ab"}}}},
          .parts = {{"train", "{\"step\":500}"}, {"data", ""}}};
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), 12);
    EXPECT_FALSE(error.advice().empty());
    return error.message();
  }
  return "accepted";
}

std::string changed(const std::function<void(nlohmann::json&)>& change) {
  auto json = nlohmann::json::parse(to_text(sample()));
  change(json);
  return json.dump();
}

TEST(Manifest, ReadsWhatItWrote) {
  EXPECT_EQ(parse_manifest(to_text(sample()), "x"), sample());
  EXPECT_EQ(to_text(sample()), to_text(sample()));
  Manifest before = sample();
  before.version = 2;
  EXPECT_EQ(parse_manifest(to_text(before), "x"), before);
}

TEST(Manifest, NamesTheDamage) {
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not the manifest"));
  EXPECT_THAT(refusal("{}"), HasSubstr("not the manifest"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["step"] = 501; })), HasSubstr("SHA-256"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["step"] = -1; })), HasSubstr("\"step\""));
  EXPECT_THAT(refusal(changed([](auto& j) { j["step"] = "5"; })), HasSubstr("\"step\""));
  for (const std::uint64_t step :
       {std::uint64_t{1} << 62, ~std::uint64_t{0} >> 1, ~std::uint64_t{0}})
    EXPECT_THAT(refusal(changed([&](auto& j) { j["step"] = step; })), HasSubstr("too large"));
  EXPECT_THAT(refusal(changed([](auto& j) { j.erase("identity"); })),
              HasSubstr("a key is missing or unknown"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["more"] = 1; })),
              HasSubstr("a key is missing or unknown"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["parts"]["train"] = 1; })), HasSubstr("train"));
  EXPECT_THAT(
      refusal(changed([](auto& j) { j["files"]["../../x"] = j["files"]["model.safetensors"]; })),
      HasSubstr("not a file name"));
  const auto hashes = [](const nlohmann::json& value) {
    return changed([&](auto& j) { j["files"]["model.safetensors"]["xxh3"] = value; });
  };
  EXPECT_THAT(refusal(hashes(nlohmann::json::array())), HasSubstr("has 0 hashes, and its size is"));
  EXPECT_THAT(refusal(hashes({"ab", "cd"})), HasSubstr("has 2 hashes, and its size is"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["files"]["model.safetensors"]["header"] = 8; })),
              HasSubstr("has 1 hashes, and its size is that of 2 chunks"));
  EXPECT_THAT(refusal(changed([](auto& j) { j["chunk_bytes"] = (1LL << 30) + 1; })),
              HasSubstr("\"chunk_bytes\" is too large"));
  EXPECT_THAT(refusal(changed(
                  [](auto& j) { j["files"]["model.safetensors"]["header"] = kChunkBytes + 1; })),
              HasSubstr("the \"header\" of \"model.safetensors\" is larger than a chunk"));
  EXPECT_THAT(refusal(hashes({7})), HasSubstr("\"xxh3\" has the wrong type"));
}

TEST(Manifest, AnotherVersionNamesThoseThatCanBeRead) {
  for (const int version : {1, 4})
    EXPECT_THAT(refusal(changed([&](auto& j) { j["version"] = version; })),
                AllOf(HasSubstr("version " + std::to_string(version)), HasSubstr("reads 2 to 3")));
  EXPECT_THAT(refusal(changed([](auto& j) { j["version"] = 0; })), HasSubstr("no version"));
}

TEST(Manifest, SurvivesCorruptionAndNeverTakesIt) {
  const std::string whole = to_text(sample());
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::string text = whole;
    for (int change = 1 + static_cast<int>(random() % 3); change > 0 && !text.empty(); --change) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 9);
      } else {
        text[at] = static_cast<char>(random());
      }
    }
    SCOPED_TRACE(round);
    try {
      EXPECT_EQ(parse_manifest(text, "x"), sample());  // only white space may differ
    } catch (const CheckpointError&) {
    }
  }
}

}  // namespace
}  // namespace trireme::storage
