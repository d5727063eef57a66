#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/storage/s3/address.h"
#include "trireme/storage/storage.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string refused_address(const std::string& address) {
  try {
    check_address(address);
  } catch (const ConfigError& error) {
    EXPECT_FALSE(error.advice().empty());
    return error.message();
  }
  return "accepted";
}

TEST(Location, FoldersAndFileUrlsAreFoldersOfThisMachine) {
  EXPECT_EQ(open_location("runs/a").path, "runs/a");
  EXPECT_EQ(open_location("file:///shared/a%20b/").path, "/shared/a b");
  EXPECT_EQ(open_location("file://localhost/shared").path, "/shared");
  EXPECT_FALSE(open_location("file:///x").storage->is_remote());
  EXPECT_EQ(refused_address("a/b://c"), "accepted") << "a folder with an odd name";
}

TEST(Location, ARunSaysWhereItsCheckpointsAre) {
  const fs::path run = fs::path(::testing::TempDir()) / ("run_" + std::to_string(::getpid()));
  fs::create_directories(run);
  const auto configure = [&](const char* text) { std::ofstream(run / "config.toml") << text; };
  EXPECT_EQ(checkpoint_path_of((run / "missing").string()), "");
  EXPECT_EQ(checkpoint_path_of(run.string()), "");
  configure("[checkpoint]\npath = \"s3://models/a\"\n");
  EXPECT_EQ(checkpoint_path_of(run.string()), "s3://models/a");
  configure("[checkpoint]\npath = \"\"\n");
  EXPECT_EQ(checkpoint_path_of(run.string()), "");
  configure("[checkpoint\n");
  EXPECT_EQ(checkpoint_path_of(run.string()), "") << "what reads the configuration says so";
  configure("[checkpoint]\npath = \"s3://models/a\"\n");
  fs::create_directory(run / "checkpoint");
  EXPECT_EQ(checkpoint_path_of(run.string()), "")
      << "a copy of the run's configuration, as in RUN/best";
  fs::remove_all(run);
}

TEST(Location, WhatCannotBeAPlaceIsNamed) {
  EXPECT_THAT(refused_address("file://host/shared"), HasSubstr("names a host"));
  EXPECT_THAT(refused_address("file:///a%2"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused_address("file:///a%zz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused_address("file:///a%00"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refused_address("gs://bucket/x"), HasSubstr("cannot be kept in gs://bucket/x"));
  EXPECT_THAT(refused_address("s3://"), HasSubstr("not the name of a bucket"));
  EXPECT_THAT(refused_address("s3://Models/x"),
              HasSubstr("\"Models\" is not the name of a bucket"));
  EXPECT_THAT(refused_address("s3://models//x"), HasSubstr("empty part"));
  EXPECT_THAT(refused_address("s3://models/a/../b"), HasSubstr("\"..\""));
  EXPECT_EQ(refused_address("s3://models"), "accepted");
  EXPECT_EQ(refused_address("s3://models/runs/caf\xc3\xa9/"), "accepted");
}

TEST(Location, NoPlaceIsNotTheRootFolder) {
  EXPECT_EQ(refused_address(""), "accepted") << "checkpoint.path = \"\" is RUN/checkpoint";
  try {
    open_location("");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is empty"));
  }
}

TEST(Location, TheEnvironmentNamesTheService) {
  std::map<std::string, std::string> values;
  const auto get = [&](const char* name) -> const char* {
    return values.contains(name) ? values[name].c_str() : nullptr;
  };
  EXPECT_THROW(s3::service_of(get), ConfigError);
  values = {{"AWS_ACCESS_KEY_ID", "key"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
  EXPECT_EQ(s3::url_of(s3::service_of(get), "models", "a b/c"),
            "https://models.s3.us-east-1.amazonaws.com/a%20b/c");
  values["AWS_DEFAULT_REGION"] = "eu-west-1";
  EXPECT_EQ(s3::url_of(s3::service_of(get), "my.models", ""),
            "https://s3.eu-west-1.amazonaws.com/my.models/");
  values["AWS_ENDPOINT_URL"] = "http://a";
  values["TRIREME_S3_ENDPOINT"] = "http://127.0.0.1:9000/";
  EXPECT_EQ(s3::url_of(s3::service_of(get), "models", "x"), "http://127.0.0.1:9000/models/x");
  values["TRIREME_S3_ENDPOINT"] = "127.0.0.1:9000";
  EXPECT_THROW(s3::service_of(get), ConfigError);
}

class RenamedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "from");
  }
  void TearDown() override { fs::remove_all(folder_); }
  int rename(int reported, bool really) {
    return renamed(from_, to_, [&] {
      if (really) fs::rename(from_, to_);
      return reported;
    });
  }
  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("renamed_" + std::to_string(::getpid()));
  const std::string from_ = folder_ / "from", to_ = folder_ / "to";
};

// An NFS client that got no reply asks again, and hears that there is no `from` any more.
TEST_F(RenamedTest, ARenameWhoseReplyWasLostIsDone) {
  EXPECT_EQ(rename(ENOENT, true), 0);
  EXPECT_TRUE(fs::exists(to_));
}

TEST_F(RenamedTest, ARenameThatWasNotDoneKeepsItsError) {
  EXPECT_EQ(rename(EIO, false), EIO);
  fs::create_directories(fs::path(to_) / "other");  // another folder of that name
  EXPECT_EQ(rename(ENOTEMPTY, false), ENOTEMPTY);
  fs::remove_all(from_);
  EXPECT_EQ(rename(ENOENT, false), ENOENT);
}

}  // namespace
}  // namespace trireme::storage
