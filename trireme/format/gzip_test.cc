#include "trireme/format/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

struct Gzip : ::testing::Test {
  std::string path = ::testing::TempDir() + "gzip_test.gz";
  std::string content;
  Gzip() {
    for (unsigned i = 0; i < 500'000; ++i) content += std::to_string(i * 7919 % 1000) + ' ';
    const gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
  }
  ~Gzip() override { std::filesystem::remove(path); }
  std::string refusal(std::int64_t most = 1 << 30) const {
    try {
      format::read_gzip(path, most);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

TEST_F(Gzip, UnpacksWhatZlibPacked) { EXPECT_EQ(format::read_gzip(path, 1 << 30), content); }

TEST_F(Gzip, ReadsPlainFilesAsTheyAre) {
  std::ofstream(path) << "plain";
  EXPECT_EQ(format::read_gzip(path, 100), "plain");
}

TEST_F(Gzip, RefusesWhatIsCutShortOrDamaged) {
  const auto size = std::filesystem::file_size(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.put('\x55').put('\x56').put('\x57');
  }
  EXPECT_THAT(refusal(), HasSubstr("cannot be unpacked"));
}

TEST_F(Gzip, RefusesWhatEndsEarly) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(refusal(), HasSubstr("cannot be unpacked"));
}

TEST_F(Gzip, RefusesMoreThanWasAllowed) {
  EXPECT_THAT(refusal(1000), HasSubstr("more than 1000 bytes"));
}

TEST_F(Gzip, NamesAFileThatIsNotThere) {
  path += ".not";
  EXPECT_THAT(refusal(), HasSubstr(path));
}

}  // namespace
}  // namespace trireme
