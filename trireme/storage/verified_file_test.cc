#include "trireme/storage/verified_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "trireme/base/error.h"

namespace trireme::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kChunk = 16;

// A file in memory that notes what is read.
class Noted final : public InputFile {
 public:
  using Reads = std::vector<std::pair<std::int64_t, std::int64_t>>;
  Noted(std::string text, Reads* reads) : text_(std::move(text)), reads_(reads) {}
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(text_.size()); }
  void read(std::int64_t at, std::span<std::byte> to) override {
    const auto bytes = static_cast<std::int64_t>(to.size());
    if (reads_ != nullptr) reads_->emplace_back(at, at + bytes);
    std::memcpy(to.data(), text_.data() + at, to.size());
  }

 private:
  const std::string text_;
  Reads* const reads_;
};

VerifiedFile::Open noted(const std::string& text, Noted::Reads* reads = nullptr) {
  return [text, reads] { return std::make_unique<Noted>(text, reads); };
}

std::string sample_text(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + i * 7 % 26);
  return text;
}

FileRecord record_of(const std::string& text, std::int64_t chunk_bytes = kChunk) {
  FileHashes hashes(chunk_bytes);
  for (std::size_t at = 0; at < text.size(); at += 7)  // pieces that fit no chunk
    hashes.update(
        std::as_bytes(std::span(text).subspan(at, std::min<std::size_t>(7, text.size() - at))));
  return hashes.finish();
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckpointError& error) {
    return error.message();
  }
  return "accepted";
}

TEST(FileHashes, AreThoseOfTheChunks) {
  const std::string text = sample_text(40);
  const auto hash = [](std::string_view part) {
    return format::xxh3_hex(std::as_bytes(std::span(part)));
  };
  const std::string_view view = text;
  const FileRecord record = record_of(text);
  EXPECT_EQ(record.bytes, 40);
  EXPECT_THAT(record.chunks, ElementsAre(hash(view.substr(0, 16)), hash(view.substr(16, 16)),
                                         hash(view.substr(32))));
  EXPECT_THAT(record_of(sample_text(32)).chunks, ::testing::SizeIs(2));
  EXPECT_THAT(record_of(sample_text(1)).chunks, ElementsAre(hash(view.substr(0, 1))));
  EXPECT_THAT(record_of("").chunks, IsEmpty());
}

TEST(FileHashes, TheHeaderIsAChunkOfItsOwn) {
  const std::string text = std::string("\x0c\0\0\0\0\0\0\0", 8) + sample_text(32);
  const std::string_view view = text;
  for (const std::int64_t chunk_bytes : {20, 21, 100}) {
    const FileRecord record = record_of(text, chunk_bytes);
    EXPECT_EQ(record.header_bytes, 20);
    ASSERT_THAT(record.chunks, ::testing::SizeIs(2));
    EXPECT_EQ(record.chunks[0], format::xxh3_hex(std::as_bytes(std::span(view.substr(0, 20)))));
    EXPECT_EQ(record.chunks[1], format::xxh3_hex(std::as_bytes(std::span(view.substr(20)))));
  }
  for (const std::int64_t chunk_bytes : {1, 8, 19})  // the header is larger
    EXPECT_EQ(record_of(text, chunk_bytes).header_bytes, chunk_bytes);
}

TEST(FileHashes, KnowWhenTheFileCannotBeTheOneBefore) {
  const std::string text = sample_text(40);
  const FileRecord record = record_of(text);
  FileHashes same(kChunk), longer(kChunk), other(kChunk);
  const auto bytes = std::as_bytes(std::span(text));
  same.update(bytes);
  EXPECT_TRUE(same.may_be(record));
  longer.update(bytes);
  longer.update(bytes.first(1));
  EXPECT_FALSE(longer.may_be(record));
  other.update(bytes.subspan(1, 15));
  EXPECT_TRUE(other.may_be(record)) << "no chunk has ended";
  other.update(bytes.first(1));
  EXPECT_FALSE(other.may_be(record));
}

TEST(VerifiedFile, ReadsTheChunksThatHoldWhatIsWantedAndEachOnce) {
  const std::string text = sample_text(200);
  Noted::Reads reads;
  VerifiedFile file(noted(text, &reads), record_of(text), kChunk, "f");
  std::string a(3, ' '), b(20, ' '), c(1, ' ');
  const auto to = [](std::string& place) { return std::as_writable_bytes(std::span(place)); };
  file.read({{195, to(c)}, {17, to(a)}, {30, to(b)}});
  EXPECT_EQ(a, text.substr(17, 3));
  EXPECT_EQ(b, text.substr(30, 20));
  EXPECT_EQ(c, text.substr(195, 1));
  EXPECT_THAT(reads, ElementsAre(Pair(16, 64), Pair(192, 200)));
}

TEST(VerifiedFile, AnyPiecesComeBackWithLittleMemory) {
  std::string text = std::string(8, '\0') + sample_text(992);
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    text[0] = static_cast<char>(random());  // the length of the header
    Noted::Reads reads;
    const auto chunk = static_cast<std::int64_t>(1 + random() % 300);
    VerifiedFile file(noted(text, &reads), record_of(text, chunk), chunk, "f");
    std::vector<std::string> places;
    std::vector<VerifiedFile::Piece> pieces;
    std::vector<std::size_t> begins;
    for (int i = 0; i < 20; ++i) {
      begins.push_back(random() % text.size());
      places.emplace_back(random() % (text.size() - begins.back() + 1), ' ');
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      pieces.push_back(
          {static_cast<std::int64_t>(begins[i]), std::as_writable_bytes(std::span(places[i]))});
    file.read(pieces);
    SCOPED_TRACE(round);
    for (std::size_t i = 0; i < places.size(); ++i)
      EXPECT_EQ(places[i], text.substr(begins[i], places[i].size()));
    for (std::size_t i = 1; i < reads.size(); ++i)
      EXPECT_GE(reads[i].first, reads[i - 1].second) << "no chunk is read twice";
  }
}

TEST(VerifiedFile, AChangedByteIsFoundInItsChunkAndElsewhereDoesNotMatter) {
  const std::string text = sample_text(100);
  std::string changed = text;
  changed[50] ^= 1;
  VerifiedFile file(noted(changed), record_of(text), kChunk, "DIR/f");
  std::string place(10, ' ');
  file.read({{20, std::as_writable_bytes(std::span(place))}});
  EXPECT_EQ(place, text.substr(20, 10));
  const auto wrong = AllOf(HasSubstr("DIR/f was changed"), HasSubstr("XXH3 of its bytes 48 to 64"));
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_THAT(refusal([&] {
                  file.read({{40, std::as_writable_bytes(std::span(place))}});
                }),
                wrong);
  EXPECT_THAT(refusal([&] { file.verify(); }), wrong);
}

TEST(VerifiedFile, AnotherSizeIsTorn) {
  const FileRecord record = record_of(sample_text(100));
  EXPECT_THAT(refusal([&] { VerifiedFile(noted(sample_text(99)), record, kChunk, "f"); }),
              HasSubstr("f is torn: it has 99 bytes, and the manifest says 100"));
}

}  // namespace
}  // namespace trireme::storage
