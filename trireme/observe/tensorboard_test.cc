#include "trireme/observe/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::observe {
namespace {

namespace fs = std::filesystem;

std::string fresh_folder(const std::string& name) {
  const fs::path folder =
      fs::temp_directory_path() / ("trireme-" + name + "-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  return folder.string();
}

std::string only_file(const std::string& folder) {
  std::string found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
    found = entry.path().string();
  }
  std::ifstream file(found, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::uint32_t unmasked(std::uint32_t value) {
  const std::uint32_t rotated = value - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

TEST(Crc32c, HasTheValuesOfTheRfc) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

// Records have valid checksums; the second one is the scalar, with all bytes but the time checked.
TEST(TensorBoardWriter, WritesFramedEvents) {
  const std::string folder = fresh_folder("board");
  {
    TensorBoardWriter writer;
    writer.scalar("ignored", 1, 1);
    EXPECT_FALSE(writer.is_open());
    writer.open(folder);
    writer.scalar("loss/train", 300, 0.5);
  }
  const std::string bytes = only_file(folder);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::uint32_t check = 0;
    std::memcpy(&length, &bytes[at], 8);
    std::memcpy(&check, &bytes[at + 8], 4);
    EXPECT_EQ(unmasked(check), crc32c(std::string_view(bytes).substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    std::memcpy(&check, &bytes[at + 12 + length], 4);
    EXPECT_EQ(unmasked(check), crc32c(events.back()));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 2u);
  constexpr std::string_view kVersion(
      "\x10\0\x1a\x0d"
      "brain.Event:2",
      17);
  constexpr std::string_view kLoss(
      "\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a"
      "loss/train"
      "\x15\0\0\0\x3f",
      24);
  EXPECT_EQ(std::string_view(events[0]).substr(9), kVersion);
  EXPECT_EQ(std::string_view(events[1]).substr(9), kLoss);
  fs::remove_all(folder);
}

TEST(TensorBoardWriter, NamesThePathThatCannotBeWritten) {
  TensorBoardWriter writer;
  try {
    writer.open("/proc/trireme");
    FAIL() << "no error";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/trireme/events.out"), std::string::npos);
  }
}

// The system cannot even say whether such a file exists.
TEST(TensorBoardWriter, NamesTheFolderWhoseNameIsTooLong) {
  TensorBoardWriter writer;
  EXPECT_THROW(writer.open(::testing::TempDir() + std::string(300, 'x')), ResourceError);
}

}  // namespace
}  // namespace trireme::observe
