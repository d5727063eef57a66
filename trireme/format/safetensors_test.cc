#include "trireme/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "trireme/base/check.h"

namespace trireme::format {
namespace {

using ::testing::HasSubstr;

std::string file_with(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string refusal(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "weights.safetensors");
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), 12);
    EXPECT_THAT(error.what(), HasSubstr("weights.safetensors"));
    EXPECT_THAT(error.what(), HasSubstr("offset"));
    return error.message();
  }
  return "accepted";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::string sample() {
  const float w[6] = {1, 2, 3, 4, 5, 6};
  const double s[1] = {0.5};
  const std::uint8_t b[3] = {7, 8, 9};
  std::string file;
  write_safetensors({{"w", DType::F32, {2, 3}, std::as_bytes(std::span(w))},
                     {"flags", DType::U8, {3}, std::as_bytes(std::span(b))},
                     {"none", DType::F32, {0, 4}, {}},
                     {"scalar", DType::F64, {}, std::as_bytes(std::span(s))}},
                    {{"format", "pt"}}, [&](std::span<const std::byte> piece) {
                      file.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                    });
  return file;
}

TEST(Safetensors, ReadsWhatItWrote) {
  const std::string file = sample();
  const Safetensors content = parse_safetensors(bytes_of(file), "x");
  ASSERT_EQ(content.tensors.size(), 4u);
  EXPECT_EQ(content.tensors[0].name, "scalar");  // the largest element first
  EXPECT_TRUE(content.tensors[0].shape.empty());
  EXPECT_EQ(content.tensors[0].bytes.size(), 8u);
  EXPECT_EQ(content.tensors[1].name, "none");
  EXPECT_EQ(content.tensors[2].name, "w");
  EXPECT_EQ(content.tensors[2].shape, (std::vector<std::int64_t>{2, 3}));
  float w[6];
  std::memcpy(w, content.tensors[2].bytes.data(), sizeof w);
  EXPECT_EQ(w[5], 6);
  EXPECT_EQ(content.tensors[3].dtype, DType::U8);
  EXPECT_EQ(content.metadata.at("format"), "pt");
  const auto data_offset = content.tensors[0].bytes.data() - bytes_of(file).data();
  EXPECT_EQ(data_offset % 8, 0);
}

TEST(Safetensors, AnEmptyFileOfTensorsIsAFile) {
  EXPECT_EQ(refusal(file_with("{}", "")), "accepted");
  EXPECT_EQ(refusal(file_with("{}      ", "")), "accepted");
}

TEST(Safetensors, RefusesADamagedHeader) {
  EXPECT_THAT(refusal(""), HasSubstr("not a safetensors file"));
  EXPECT_THAT(refusal("\xff\xff\xff\xff\xff\xff\xff\xff{}"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(refusal(file_with("{}", "").substr(0, 9)), HasSubstr("cut short"));
  EXPECT_THAT(refusal(file_with(" {}", "")), HasSubstr("begin with {"));
  EXPECT_THAT(refusal(file_with("{", "")), HasSubstr("JSON"));
  EXPECT_THAT(refusal(file_with("{} x", "")), HasSubstr("JSON"));
  EXPECT_THAT(refusal(file_with("{\"a\":1}", "")), HasSubstr("a number is not allowed here"));
  EXPECT_THAT(refusal(file_with("{\"a\":[]}", "")), HasSubstr("a list is not allowed"));
  EXPECT_THAT(refusal(file_with("{\"a\":null}", "")), HasSubstr("null"));
  EXPECT_THAT(refusal(file_with("{\"a\":{}}", "")), HasSubstr("needs dtype"));
  EXPECT_THAT(refusal(file_with("{\"a\":{\"b\":{}}}", "")), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(file_with("{\"__metadata__\":{\"a\":1}}", "")), HasSubstr("a number"));
  EXPECT_THAT(refusal(file_with("{\"\xC3\":{}}", "")), HasSubstr("JSON"));
  EXPECT_THAT(refusal(file_with(std::string(100000, '['), "")), HasSubstr("{"));
  EXPECT_THAT(refusal(file_with("{\"a\":" + std::string(100000, '{'), "")), HasSubstr("JSON"));
}

TEST(Safetensors, RefusesNamesAndKeysThatStandTwice) {
  const std::string a = entry("a", "U8", "[1]", "[0,1]");
  EXPECT_THAT(refusal(file_with("{" + a + "," + a + "}", "x")), HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(refusal(file_with("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "x")),
              HasSubstr("\"dtype\" is there twice"));
}

TEST(Safetensors, RefusesOffsetsThatDoNotCoverTheDataOnce) {
  const auto two = [](const std::string& first, const std::string& second, std::size_t size) {
    return refusal(file_with(
        "{" + entry("a", "U8", "[2]", first) + "," + entry("b", "U8", "[2]", second) + "}",
        std::string(size, 'x')));
  };
  EXPECT_EQ(two("[0,2]", "[2,4]", 4), "accepted");
  EXPECT_EQ(two("[2,4]", "[0,2]", 4), "accepted");
  EXPECT_THAT(two("[0,2]", "[1,3]", 3), HasSubstr("\"b\" overlaps"));
  EXPECT_THAT(two("[0,2]", "[0,2]", 2), HasSubstr("\"b\" overlaps"));
  EXPECT_THAT(two("[0,2]", "[3,5]", 5), HasSubstr("hole"));
  EXPECT_THAT(two("[0,2]", "[2,4]", 5), HasSubstr("5 bytes of data, but its tensors have 4"));
  EXPECT_THAT(two("[0,2]", "[2,4]", 3), HasSubstr("outside of the file"));
  EXPECT_THAT(two("[0,2]", "[4,2]", 4), HasSubstr("ends before"));
  EXPECT_THAT(two("[0,2]", "[2,4,5]", 4), HasSubstr("two numbers"));
  EXPECT_THAT(two("[0,2]", "[2,18446744073709551615]", 4), HasSubstr("outside"));
  EXPECT_THAT(two("[0,2]", "[-1,4]", 4), HasSubstr("negative"));
}

TEST(Safetensors, RefusesShapesThatDoNotFit) {
  const auto one = [](const std::string& dtype, const std::string& shape) {
    return refusal(file_with("{" + entry("a", dtype, shape, "[0,8]") + "}", "12345678"));
  };
  EXPECT_EQ(one("F32", "[2,1]"), "accepted");
  EXPECT_EQ(one("I64", "[]"), "accepted");
  EXPECT_THAT(one("F32", "[3]"), HasSubstr("8 bytes, but its shape and type need 12"));
  EXPECT_THAT(one("F32", "[4294967296,4294967296,4294967296]"), HasSubstr("too large"));
  EXPECT_THAT(one("F32", "[9223372036854775808,0]"), HasSubstr("too large"));
  EXPECT_THAT(one("U8", "[9223372036854775807,2,0]"), HasSubstr("too large"));
  EXPECT_THAT(one("F32", "[2.0]"), HasSubstr("not an integer"));
  EXPECT_THAT(one("F8_E4M3", "[8]"), HasSubstr("F8_E4M3"));
}

TEST(Safetensors, AForeignTypeIsNoDamage) {
  const std::string file = file_with("{" + entry("a", "U32", "[2]", "[0,8]") + "}", "12345678");
  try {
    parse_safetensors(bytes_of(file), "x");
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.advice(), HasSubstr("Convert it to F64"));
  }
}

TEST(Safetensors, NamesMustDifferWhenWriting) {
  const auto write = [](std::vector<TensorView> tensors) {
    write_safetensors(std::move(tensors), {}, [](std::span<const std::byte>) {});
  };
  EXPECT_THROW(write({{"a", DType::U8, {0}, {}}, {"a", DType::U8, {0}, {}}}), CheckFailure);
  EXPECT_THROW(write({{"__metadata__", DType::U8, {0}, {}}}), CheckFailure);
  EXPECT_THROW(write({{"a", DType::U8, {1}, {}}}), CheckFailure);
}

TEST(Safetensors, WritesNoHeaderThatReadersRefuse) {
  std::size_t written = 0;
  const auto write = [&](std::size_t letters) {
    write_safetensors({{std::string(letters, 'n'), DType::F32, {0}, {}}}, {},
                      [&](std::span<const std::byte> bytes) { written += bytes.size(); });
  };
  EXPECT_THROW(write(100'000'000), ConfigError);
  EXPECT_EQ(written, 0u);
  EXPECT_NO_THROW(write(1'000'000));
}

// A small fuzzer that runs everywhere: any corrupted file is either read or refused with
// CheckpointError, and what is read lies inside the file.
TEST(Safetensors, SurvivesTenThousandCorruptions) {
  const std::string whole = sample();
  std::mt19937 random(20240607);
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string file = whole;
    for (int change = 1 + static_cast<int>(random() % 4); change > 0 && !file.empty(); --change) {
      const std::size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.resize(at);
          break;
        case 2:
          file.erase(at, random() % 9);
          break;
        default:
          file.insert(at, 1 + random() % 5, "0123456789{}[],:\""[random() % 17]);
      }
    }
    SCOPED_TRACE(round);
    try {
      const auto content = parse_safetensors(bytes_of(file), "x");
      for (const TensorView& tensor : content.tensors) {
        if (tensor.bytes.empty()) continue;
        EXPECT_GE(tensor.bytes.data(), bytes_of(file).data());
        EXPECT_LE(&tensor.bytes.back(), &bytes_of(file).back());
      }
      ++accepted;
    } catch (const CheckpointError&) {
    }
  }
  EXPECT_GT(accepted, 0);  // the format cannot detect a flipped data byte
  EXPECT_LT(accepted, 5000);
}

}  // namespace
}  // namespace trireme::format
