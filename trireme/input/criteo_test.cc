#include "trireme/input/criteo.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "trireme/base/error.h"

namespace trireme::criteo_test {
namespace {

using ::testing::HasSubstr;

class Criteo : public ::testing::Test {
 protected:
  Criteo()
      : path_(std::filesystem::temp_directory_path() /
              ("criteo-" + std::to_string(getpid()) + ".csv")) {}
  ~Criteo() override { std::filesystem::remove(path_); }

  std::map<std::string, at::Tensor> read(const std::vector<std::string>& lines,
                                         std::int64_t rows = 1'000) {
    std::ofstream file(path_);
    file << "Id,Label,I1,I2,I3,I4,I5,I6,I7,I8,I9,I10,I11,I12,I13";
    for (int i = 1; i <= 26; ++i) file << ",C" << i;
    file << "\n";
    for (const std::string& line : lines) file << line << "\n";
    file.close();
    std::map<std::string, at::Tensor> fields;
    for (const auto& [name, tensor] : input::read_criteo(path_, rows)) fields[name] = tensor;
    return fields;
  }
  std::string refusal(const std::vector<std::string>& lines, std::int64_t rows = 1'000) {
    try {
      read(lines, rows);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  // A line with these numbers and the category `category` in every column.
  static std::string line(const std::string& label, const std::string& numbers,
                          const std::string& category) {
    std::string text = "1," + label + "," + numbers;
    for (int i = 0; i < 26; ++i) text += "," + category;
    return text;
  }
  const std::string path_;
};

const std::string kNumbers = "1,,-1,0,1382,4,15,2,181,1,2,,2";

TEST_F(Criteo, ReadsNumbersByTheirLogarithmsAndHashesCategories) {
  const auto fields = read({line("0", kNumbers, "68fd1e64"), line("1", kNumbers, "68fd1e64") + "\r",
                            line("1", kNumbers, "")});
  const at::Tensor numbers = fields.at("numbers"), ids = fields.at("categories");
  EXPECT_EQ(numbers.sizes(), (std::vector<std::int64_t>{3, 13}));
  EXPECT_FLOAT_EQ(numbers[0][0].item<float>(), std::log(2.0f));
  EXPECT_EQ(numbers[0][1].item<float>(), 0);  // empty
  EXPECT_EQ(numbers[0][2].item<float>(), 0);  // negative
  EXPECT_FLOAT_EQ(numbers[0][4].item<float>(), std::log(1383.0f));
  EXPECT_TRUE(fields.at("targets").equal(at::tensor({0, 1, 1}, at::kLong)));
  EXPECT_EQ(ids.sizes(), (std::vector<std::int64_t>{3, 26}));
  EXPECT_TRUE(ids[0].equal(ids[1]));
  EXPECT_FALSE(ids[0].equal(ids[2]));
  for (std::int64_t column = 0; column < 26; ++column)  // each column has rows of its own
    EXPECT_EQ(ids[0][column].item<std::int64_t>() / 1'000, column);
}

TEST_F(Criteo, AFileOfAnotherKindIsRefusedWithItsLine) {
  const std::string good = line("0", kNumbers, "a");
  EXPECT_THAT(refusal({good, "1,0,1"}), HasSubstr("line 3: it has fewer than 41 columns"));
  EXPECT_THAT(refusal({good, good + ",x"}), HasSubstr("line 3: it has more"));
  EXPECT_THAT(refusal({line("2", kNumbers, "a"), good}), HasSubstr("line 2: its label is \"2\""));
  EXPECT_THAT(refusal({good, line("0", "x,,-1,0,1382,4,15,2,181,1,2,,2", "a")}),
              HasSubstr("line 3: I1 is \"x\", which is not an integer"));
  EXPECT_THAT(refusal({good}), HasSubstr("fewer than two samples"));
  EXPECT_THAT(refusal({good, good}, 0), HasSubstr("data.rows = 0: categories need"));
  EXPECT_THROW(input::read_criteo(path_ + "-none", 10), ConfigError);
}

}  // namespace
}  // namespace trireme::criteo_test
