#include "trireme/input/shared_corpus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/input/dataset.h"

namespace trireme::input {
namespace {

Corpus sample() {
  Corpus corpus;
  corpus.train = "to be, or not to be";
  corpus.validation = "that is\0 the question";
  corpus.source = "a play";
  corpus.hash = "00ff";
  return corpus;
}

TEST(SharedCorpus, IsReadThroughItsDescriptor) {
  const auto made = SharedCorpus::make(sample());
  const auto seen = SharedCorpus::open(made->descriptor());
  EXPECT_EQ(seen->train(), sample().train);
  EXPECT_EQ(seen->validation(), sample().validation);
  EXPECT_EQ(seen->source(), "a play");
  EXPECT_EQ(seen->hash(), "00ff");
}

TEST(SharedCorpus, CannotBeChangedAnyMore) {
  const auto made = SharedCorpus::make(sample());
  EXPECT_EQ(ftruncate(made->descriptor(), 1), -1);
  EXPECT_EQ(write(made->descriptor(), "x", 1), -1);
  EXPECT_EQ(mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, made->descriptor(), 0),
            MAP_FAILED);
}

TEST(SharedCorpus, ForeignMemoryIsRefused) {
  EXPECT_THROW(SharedCorpus::open(-1), ResourceError);
  const int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string zeros(4096, '\0');
  ASSERT_EQ(write(plain, zeros.data(), zeros.size()), 4096);
  EXPECT_THROW(SharedCorpus::open(plain), ResourceError);  // not sealed
  ASSERT_EQ(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
  EXPECT_THROW(SharedCorpus::open(plain), ResourceError);  // no head
  close(plain);
}

TEST(SharedCorpus, BytesAreTheTokensThatTheTokenizerGives) {
  const auto corpus = SharedCorpus::make(sample());
  const auto tokens = std::make_shared<std::vector<std::int32_t>>();
  for (const char c : corpus->train()) tokens->push_back(static_cast<unsigned char>(c));
  const auto direct = TextDataset::random_windows(corpus->train(), corpus, 4, 3);
  const auto encoded = TextDataset::random_windows(tokens, 4, 3);
  const std::vector<std::int64_t> samples = {0, 5, 17};
  const Fields a = direct->read(samples), b = encoded->read(samples);
  for (std::size_t field = 0; field < 2; ++field) {
    EXPECT_EQ(a[field].first, b[field].first);
    EXPECT_TRUE(a[field].second.equal(b[field].second));
  }
}

}  // namespace
}  // namespace trireme::input
