#include "trireme/input/shared_corpus.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

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

// Linux before 6.7 maps memory that is sealed against writing only if the mapping is private.
TEST(SharedCorpus, ItsMappingIsPrivate) {
  const auto made = SharedCorpus::make(sample());
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line) && line.find("trireme-corpus") == std::string::npos) {
  }
  EXPECT_NE(line.find(" r--p "), std::string::npos) << line;
}

TEST(SharedCorpus, WithoutADescriptorLeftItIsRefused) {
  const auto made = SharedCorpus::make(sample());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{static_cast<rlim_t>(made->descriptor()) + 1, limit.rlim_max};
  std::vector<int> rest;  // below the limit
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int taken; (taken = dup(made->descriptor())) >= 0;) rest.push_back(taken);
  EXPECT_THROW(SharedCorpus::open(made->descriptor()), ResourceError);
  for (const int taken : rest) close(taken);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
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
  const auto direct = TextDataset::random_windows({corpus->train(), corpus}, 4, 3);
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
