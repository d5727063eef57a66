#include "trireme/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "trireme/base/utf8.h"

namespace trireme::file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class File : public ::testing::Test {
 protected:
  File() : path_(::testing::TempDir() + "file-" + std::to_string(getpid())) {}
  ~File() override { std::remove(path_.c_str()); }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_;
};

TEST_F(File, IsReadAsItIs) {
  const std::string text = "a\r\n\n\0b\xff no newline at the end" + std::string(200'000, 'x');
  for (const std::string& one : {std::string(), std::string("\0\n", 2), text}) {
    write(one);
    EXPECT_EQ(try_read_file(path_), one);
    EXPECT_EQ(read_file(path_, "the text ", {}), one);
  }
}

TEST_F(File, ThatIsAPipeIsReadToItsEnd) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  std::thread writer([&] { write("through a pipe"); });
  EXPECT_EQ(try_read_file(path_), "through a pipe");
  writer.join();
}

TEST_F(File, ThatCannotBeReadIsNamedWithTheReason) {
  const auto refusal = [](const std::string& path) -> std::string {
    EXPECT_FALSE(try_read_file(path));
    try {
      read_file(path, "the text ", {.operation = "test", .advice = "Give another one."});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal(path_),
              AllOf(HasSubstr("cannot read the text " + path_ + ": No such file or directory"),
                    HasSubstr("Give another one.")));
  EXPECT_THAT(refusal(::testing::TempDir()), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(path_ + std::string(4000, 'x')), HasSubstr("File name too long"));
  // The message shows the beginning of a long path, cut between two characters.
  for (std::size_t length = 297; length < 300; ++length)
    EXPECT_TRUE(is_utf8(refusal(std::string(length, 'x') + "\u6f22\u5b57"))) << length;
}

}  // namespace
}  // namespace trireme::file_test
