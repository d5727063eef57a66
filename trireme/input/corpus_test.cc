#include "trireme/input/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/input/compiler_headers.h"

namespace trireme::input {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CorpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("corpus_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::string refusal(const CorpusOptions& options) {
    try {
      load_corpus(options);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_FALSE(error.advice().empty());
      return error.what();
    }
    return "accepted";
  }
  fs::path folder_;
};

TEST_F(CorpusTest, CutsAFileAtNineTenths) {
  std::string text;
  for (int i = 0; i < 1005; ++i) text += static_cast<char>(i % 256);  // all bytes, also zero
  const Corpus corpus = load_corpus({.path = write("a.bin", text)});
  EXPECT_EQ(corpus.train.size(), 904u);
  EXPECT_EQ(corpus.train + corpus.validation, text);
  EXPECT_EQ(corpus.num_files, 1);
}

TEST_F(CorpusTest, AFolderOfOneFileIsCutLikeTheFile) {
  write("sub/only", std::string(100, 'x'));
  const Corpus corpus = load_corpus({.path = folder_.string()});
  EXPECT_EQ(corpus.train.size(), 90u);
  EXPECT_EQ(corpus.validation.size(), 10u);
}

TEST_F(CorpusTest, CutsAFolderByFileWhateverTheOrderOnDisk) {
  std::string train, validation;
  for (int i = 99; i >= 0; --i) {
    const std::string name = "d" + std::to_string(i % 7) + "/f" + std::to_string(i);
    write(name, name + "\n");
  }
  const Corpus corpus = load_corpus({.path = folder_.string()});
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i)
    names.push_back("d" + std::to_string(i % 7) + "/f" + std::to_string(i));
  std::sort(names.begin(), names.end());
  for (const auto& name : names) (held_out(name) ? validation : train) += name + "\n";
  EXPECT_EQ(corpus.train, train);
  EXPECT_EQ(corpus.validation, validation);
  EXPECT_EQ(corpus.num_files, 100);
  EXPECT_FALSE(validation.empty());
}

TEST_F(CorpusTest, TwoFilesGiveBothParts) {
  for (int i = 0; i < 20; ++i) {
    fs::remove_all(folder_);
    write("a" + std::to_string(i), std::string(50, 'a'));
    write("b" + std::to_string(i), std::string(50, 'b'));
    const Corpus corpus = load_corpus({.path = folder_.string(), .block = 40});
    EXPECT_EQ(corpus.train.size(), 50u);
    EXPECT_EQ(corpus.validation.size(), 50u);
  }
}

TEST_F(CorpusTest, TheHashSeesTextAndCut) {
  const std::string a = load_corpus({.path = write("a", "0123456789abcdefghij")}).hash;
  const std::string b = load_corpus({.path = write("b", "0123456789abcdefghiJ")}).hash;
  EXPECT_NE(a, b);
  EXPECT_EQ(a, load_corpus({.path = write("c", "0123456789abcdefghij")}).hash);
}

TEST_F(CorpusTest, SaysWhatIsWrongWithThePath) {
  EXPECT_THAT(refusal({.path = (folder_ / "none").string()}),
              HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal({.path = write("empty", "")}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({.path = "/dev/null"}), HasSubstr("not a regular file"));
  // Like a file that is cut while it is read: it has fewer bytes than its size says.
  EXPECT_THAT(refusal({.path = "/sys/devices/system/cpu/online"}), HasSubstr("it ends after "));
  fs::create_directories(folder_ / "hollow");
  EXPECT_THAT(refusal({.path = (folder_ / "hollow").string()}), HasSubstr("holds no files"));
}

TEST_F(CorpusTest, ShowsTheArithmeticOfAShortText) {
  const std::string path = write("short", std::string(640, 'x'));
  EXPECT_THAT(refusal({.path = path, .block = 64}),
              AllOf(HasSubstr("validation part"), HasSubstr("64 bytes"), HasSubstr("at least 65")));
  EXPECT_EQ(refusal({.path = path, .block = 63}), "accepted");
  EXPECT_THAT(refusal({.path = path, .block = 600}), HasSubstr("training part"));
}

TEST_F(CorpusTest, TheDefaultIsTheCompilersOwnHeaders) {
  const Corpus corpus = load_corpus({.block = 256});
  EXPECT_GT(corpus.train.size(), std::size_t{4} << 20);
  const double share =
      double(corpus.validation.size()) / double(corpus.train.size() + corpus.validation.size());
  EXPECT_GT(share, 0.04);
  EXPECT_LT(share, 0.2);
  EXPECT_THAT(corpus.train + corpus.validation, HasSubstr("namespace std"));
  EXPECT_EQ(corpus.hash, load_corpus({}).hash);
}

TEST(CompilerHeaders, ReadsTheListBetweenItsTwoLines) {
  EXPECT_THAT(parse_include_folders("noise\n#include \"...\" search starts here:\n"
                                    "#include <...> search starts here:\n /a/c++/12\n /b dir\n"
                                    "End of search list.\n /c\n"),
              ::testing::ElementsAre("/a/c++/12", "/b dir"));
  EXPECT_TRUE(parse_include_folders("").empty());
  EXPECT_TRUE(parse_include_folders("#include <...> search starts here:\n /a\n").empty());
}

}  // namespace
}  // namespace trireme::input
