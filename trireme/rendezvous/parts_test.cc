// Small parts of the rendezvous: secrets, the status page, addresses of coordinators.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(Secret, AProofIsOverItsPartsNotTheirConcatenation) {
  const std::string proof = prove("Jefe", {"what do ya want ", "for nothing?"});
  EXPECT_EQ(proof.size(), 32u);
  EXPECT_EQ(proof, prove("Jefe", {"what do ya want ", "for nothing?"}));
  EXPECT_NE(proof, prove("Jefe", {"what do ya want for ", "nothing?"}));
  EXPECT_NE(proof, prove("jefe", {"what do ya want ", "for nothing?"}));
  EXPECT_TRUE(same_proof(proof, proof));
  EXPECT_FALSE(same_proof(proof, proof.substr(1)));
}

TEST(Secret, TravelsByDescriptorOnce) {
  const std::string secret = random_bytes(kSecretBytes);
  EXPECT_NE(secret, random_bytes(kSecretBytes));
  const int descriptor = secret_descriptor(secret);
  EXPECT_EQ(peek_secret_descriptor(descriptor), secret);
  EXPECT_EQ(read_secret_descriptor(descriptor), secret);
  EXPECT_THROW(read_secret_descriptor(descriptor), RefusedError) << "it was closed";
}

TEST(Secret, AFileMustBeItsOwnersAlone) {
  const std::string path = ::testing::TempDir() + "/secret." + std::to_string(getpid());
  std::ofstream(path) << "0123456789abcdef0123456789abcdef\n";
  chmod(path.c_str(), 0640);
  EXPECT_THROW(read_secret_file(path), RefusedError);
  chmod(path.c_str(), 0600);
  EXPECT_EQ(read_secret_file(path), "0123456789abcdef0123456789abcdef");
  std::ofstream(path) << "short";
  EXPECT_THROW(read_secret_file(path), RefusedError);
  std::remove(path.c_str());
  EXPECT_THROW(read_secret_file(path), RefusedError);
}

// Nobody writes to the pipe, so a reader that waited for a writer would wait for ever.
TEST(Secret, ANamedPipeIsNoSecretFile) {
  const std::string path = ::testing::TempDir() + "/secret-pipe." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  try {
    read_secret_file(path);
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is no regular file"));
  }
  std::remove(path.c_str());
}

TEST(Door, NobodyIsBehindAMalformedAddress) {
  EXPECT_FALSE(is_coordinator("node07", random_bytes(kSecretBytes)));
  EXPECT_THROW(enter("node07", random_bytes(kSecretBytes), seconds(1)), ConfigError);
}

TEST(StatusPage, IsReadByWhoeverMapsIt) {
  const int descriptor = StatusPage::make_descriptor();
  const StatusPage launcher(dup(descriptor));
  EXPECT_EQ(launcher.read(steady_now()).step, -1);
  {
    StatusPage rank(descriptor);
    const TimePoint start = steady_now();
    rank.set_step(7);
    rank.set_wait("all_reduce bucket 1", true, start);
    rank.set_wait("all_reduce bucket 1", false, start);
    rank.set_wait(std::string(100, 'x'), true, start);
    rank.set_last_words("threw");
  }
  const Activity activity = launcher.read(steady_now() + seconds(5));
  EXPECT_TRUE(activity.waiting);
  EXPECT_EQ(activity.operation, std::string(64, 'x'));
  EXPECT_EQ(activity.last_call, "all_reduce bucket 1");
  EXPECT_EQ(activity.step, 7);
  EXPECT_GE(activity.since, seconds(5));
  EXPECT_EQ(launcher.last_words(), "threw");
}

}  // namespace
}  // namespace trireme::rendezvous
