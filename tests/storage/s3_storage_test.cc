// A checkpoint folder in a bucket, with faults at every request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "s3_service.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/s3/open.h"
#include "trireme/testing/refused_threads.h"

namespace trireme::storage {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::S3Service;

// Another rank that writes a file between start() and finish().
class SecondWriter final : public OtherWriters {
 public:
  SecondWriter(CheckpointFolder folder, std::int64_t step, std::map<std::string, FileWriter> files)
      : folder_(std::move(folder)), step_(step), files_(std::move(files)) {}
  void start() override {
    try {
      written_ = folder_.write_files({.step = step_}, files_);
    } catch (const ResourceError&) {
      failure_ = std::current_exception();
    }
  }
  WrittenFiles finish() override {
    if (failure_) std::rethrow_exception(failure_);
    return written_;
  }

 private:
  CheckpointFolder folder_;
  const std::int64_t step_;
  const std::map<std::string, FileWriter> files_;
  WrittenFiles written_;
  std::exception_ptr failure_;
};

class S3StorageTest : public ::testing::Test {
 protected:
  ~S3StorageTest() override {
    service_.inject("[]");
    for (const std::string& key : keys()) client_->remove(key);
  }
  Location location(s3::LeaseOptions lease = {}) const {
    return s3::open("s3://models/runs/a/", service_.service(), S3Service::quick(), lease);
  }
  CheckpointFolder folder() const { return CheckpointFolder(location()); }
  static std::map<std::string, FileWriter> files(const std::string& text) {
    const auto write = [](std::string content) -> FileWriter {
      return [content](const auto& sink) {
        for (std::size_t at = 0; at < content.size(); at += 1 << 20)
          sink(std::as_bytes(std::span(content))
                   .subspan(at, std::min<std::size_t>(1 << 20, content.size() - at)));
      };
    };
    return {{kModelFile, write(text)}, {kStateFile, write("state " + text)}};
  }
  static void write(CheckpointFolder folder, std::int64_t step, const Retention& keep = 2) {
    EXPECT_EQ(folder.write({.step = step}, files("step " + std::to_string(step)), keep).undone, "");
  }
  std::vector<std::string> keys() const { return client_->list(""); }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  S3Service& service_ = S3Service::shared();
  const std::shared_ptr<s3::S3Client> client_ = service_.client();
};

TEST_F(S3StorageTest, WritesVerifiesAndKeepsTheNewest) {
  EXPECT_THAT(folder().steps(), IsEmpty());
  for (const std::int64_t step : {5, 10, 15}) write(folder(), step);
  EXPECT_THAT(folder().steps(), ElementsAre(10, 15));
  EXPECT_THAT(keys(), ElementsAre("runs/a/latest", "runs/a/step-00000010/manifest.json",
                                  "runs/a/step-00000010/model.safetensors",
                                  "runs/a/step-00000010/state.safetensors",
                                  "runs/a/step-00000015/manifest.json",
                                  "runs/a/step-00000015/model.safetensors",
                                  "runs/a/step-00000015/state.safetensors"));
  EXPECT_EQ(folder().verify(15).step, 15);
  EXPECT_EQ(folder().read_text(15, kStateFile), "state step 15");
  EXPECT_EQ(folder().path_of(15), "s3://models/runs/a/step-00000015");
}

TEST_F(S3StorageTest, ABackupIsRemovedWithAllThatIsBesideIt) {
  for (const std::int64_t step : {5, 10}) write(folder(), step);
  folder().remove_all();
  EXPECT_THAT(keys(), IsEmpty());
  folder().remove_all();
}

TEST_F(S3StorageTest, DamageIsNamedWithTheStepToGoBackTo) {
  for (const std::int64_t step : {5, 10}) write(folder(), step);
  const std::string key = "runs/a/step-00000010/model.safetensors", changed = "step-10";
  client_->put(key, std::as_bytes(std::span(changed)));
  EXPECT_THAT(refusal([&] { folder().verify(10); }),
              AllOf(HasSubstr("s3://models/" + key + " was changed"), HasSubstr("XXH3"),
                    HasSubstr("Step 5 is intact")));
  client_->remove(key);
  EXPECT_THAT(refusal([&] { folder().verify(10); }),
              HasSubstr("s3://models/" + key + " does not exist"));
}

TEST_F(S3StorageTest, ALargeFileGoesInPartsThroughFaultsAndComesBack) {
  std::string large(40 << 20, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7919 >> 5);
  service_.inject(R"([{"kind": "lost", "method": "PUT", "contains": "partNumber=2", "times": 1},
                      {"kind": "503", "method": "PUT", "contains": "partNumber=3", "times": 2},
                      {"kind": "corrupt", "method": "PUT", "contains": "partNumber=1", "times": 1},
                      {"kind": "lost", "method": "POST", "contains": "uploadId", "times": 2},
                      {"kind": "cut", "method": "GET", "contains": "safetensors", "times": 3},
                      {"kind": "reset", "method": "GET", "contains": "safetensors", "times": 2}])");
  CheckpointFolder there = folder();
  EXPECT_EQ(there.write({.step = 7}, files(large), 1).undone, "");
  const Manifest manifest = there.verify(7);
  EXPECT_EQ(manifest.files.at(kModelFile).bytes, static_cast<std::int64_t>(large.size()));
  EXPECT_TRUE(there.read_text(7, kModelFile) == large);
  EXPECT_EQ(service_.injected(), 11);
}

// The service goes away at each request of a save of two writers, as if the job or the network had
// ended there.
TEST_F(S3StorageTest, ASaveThatEndsAtAnyRequestLeavesACompleteCheckpoint) {
  int old = 0, next = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    for (const std::string& key : keys()) client_->remove(key);
    write(folder(), 5, 1);
    service_.inject(R"([{"kind": "503", "skip": )" + std::to_string(at) + R"(, "times": 100000}])");
    bool ended = true;
    std::string undone;
    try {
      SecondWriter second(folder(), 10,
                          {{"model-1.safetensors", files("other 10").at(kModelFile)}});
      undone = folder().write({.step = 10}, files("step 10"), 1, &second).undone;
    } catch (const ResourceError&) {
      ended = false;
    }
    const bool struck = service_.injected() > 0;
    service_.inject("[]");
    if (!struck) break;
    const auto steps = folder().steps();
    ASSERT_THAT(steps, ::testing::Not(IsEmpty()));
    for (const std::int64_t step : steps) folder().verify(step);
    EXPECT_EQ(steps.back() == 10, ended) << "the caller knows whether it is there";
    EXPECT_EQ(ended, !undone.empty());
    ++(ended ? next : old);
    if (!ended) write(folder(), 10, 1);
    write(folder(), 15, 1);
    EXPECT_THAT(folder().steps(), ElementsAre(15));
    EXPECT_EQ(keys().size(), 4u) << "nothing is left behind";
  }
  EXPECT_GT(old, 5);
  EXPECT_GT(next, 3);
}

TEST_F(S3StorageTest, ASaveThatFailsLeavesNoFileOfAnyRank) {
  service_.inject(R"([{"kind": "deny", "method": "PUT", "contains": "state", "times": 1000}])");
  SecondWriter second(folder(), 10, {{"model-1.safetensors", files("other").at(kModelFile)}});
  EXPECT_THROW(folder().write({.step = 10}, files("step 10"), 1, &second), ResourceError);
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(S3StorageTest, ARangeIsReadWithoutTheRest) {
  std::string large(40 << 20, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7919 >> 5);
  CheckpointFolder there = folder();
  EXPECT_EQ(there.write({.step = 7}, files(large), 1).undone, "");
  VerifiedFile file = there.open(there.look(7), kModelFile);
  // More requests than a range in two chunks needs would meet a fault that is not repaired.
  service_.inject(R"([{"kind": "deny", "method": "GET", "skip": 2, "times": 1000}])");
  std::string part(1 << 20, ' ');
  const std::int64_t at = 2 * kChunkBytes - 1000;
  file.read({{at, std::as_writable_bytes(std::span(part))}});
  EXPECT_TRUE(part == large.substr(static_cast<std::size_t>(at), part.size()));
  EXPECT_EQ(service_.injected(), 0);
  service_.inject("[]");
  const std::string key = "runs/a/step-00000007/model.safetensors";
  large[static_cast<std::size_t>(3 * kChunkBytes)] ^= 1;
  client_->put(key, std::as_bytes(std::span(large)));
  VerifiedFile changed = there.open(there.look(7), kModelFile);
  changed.read({{at, std::as_writable_bytes(std::span(part))}});
  EXPECT_THAT(refusal([&] {
                changed.read({{3 * kChunkBytes + 9, std::as_writable_bytes(std::span(part))}});
              }),
              HasSubstr("s3://models/" + key + " was changed: the XXH3 of its bytes 25165824 to"));
}

TEST_F(S3StorageTest, AnUnchangedFileIsCopiedByTheService) {
  const std::string large(20 << 20, 'x');
  CheckpointFolder there = folder();
  EXPECT_EQ(there.write({.step = 1}, files(large), 2).kept_bytes, 0);
  service_.inject(
      R"([{"kind": "deny", "method": "PUT", "contains": "safetensors?partNumber", "times": 1000}])");
  const SaveReport report = there.write({.step = 2}, files(large), 2);
  EXPECT_EQ(report.kept_bytes, (40 << 20) + 6) << "no part of a file was sent";
  EXPECT_EQ(report.written_bytes, 0);
  there.verify(2);
  service_.inject("[]");
  // The one before is gone meanwhile, so it is written.
  for (const char* name : {"model.safetensors", "state.safetensors"})
    client_->remove("runs/a/step-00000002/" + std::string(name));
  EXPECT_EQ(there.write({.step = 3}, files(large), 1).kept_bytes, 0);
  there.verify(3);
}

TEST_F(S3StorageTest, AFileIsSentWhereTheServiceCannotCopy) {
  const std::string large(20 << 20, 'x');
  CheckpointFolder there = folder();
  there.write({.step = 1}, files(large), 2);
  service_.inject(
      R"([{"kind": "501", "method": "PUT", "header": "x-amz-copy-source", "times": 9}])");
  EXPECT_EQ(there.write({.step = 2}, files(large), 2).kept_bytes, 0);
  EXPECT_EQ(service_.injected(), 2) << "one try for each of two files";
  there.verify(2);
}

// The prefix may have other runs and other people's files below it, which are not complete in our way.
TEST_F(S3StorageTest, ASaveRemovesNothingOfOthers) {
  const std::vector<std::string> others = {
      "runs/a/lr1/step-00000007/model.safetensors", "runs/a/llama/step-1000/model.bin",
      "runs/a/step-1000/model.bin", "runs/a/step-00000007/parts/model.bin"};
  for (const std::string& key : others) client_->put(key, {});
  client_->put("runs/a/step-00000007/model.safetensors", {});
  client_->begin_upload("runs/a/lr1/step-00000007/state.safetensors");
  write(folder(), 10);
  const std::vector<std::string> there = keys();
  for (const std::string& key : others)
    EXPECT_EQ(std::count(there.begin(), there.end(), key), 1) << key;
  EXPECT_EQ(std::count(there.begin(), there.end(), "runs/a/step-00000007/model.safetensors"), 0);
  const auto open = client_->open_uploads("runs/");
  ASSERT_EQ(open.size(), 1u);
  client_->abort_upload(open[0]);
}

TEST_F(S3StorageTest, UnfinishedUploadsAreGivenUpByTheNextSave) {
  client_->begin_upload("runs/a/step-00000005/model.safetensors");
  client_->begin_upload("runs/b/step-00000005/model.safetensors");
  write(folder(), 10);
  const auto open = client_->open_uploads("runs/");
  ASSERT_EQ(open.size(), 1u) << "that of another run stays";
  EXPECT_EQ(open[0].key, "runs/b/step-00000005/model.safetensors");
  client_->abort_upload(open[0]);
}

TEST_F(S3StorageTest, FoldersOfThisMachineAndBucketsTakeOverFromOneAnother) {
  write(folder(), 5);
  const auto here =
      std::filesystem::path(::testing::TempDir()) / ("s3_" + std::to_string(::getpid()));
  std::filesystem::remove_all(here);
  CheckpointFolder local(local_file_system(), here.string());
  EXPECT_TRUE(local.adopt(folder(), 5));
  EXPECT_FALSE(local.adopt(folder(), 6));
  local.verify(5);
  CheckpointFolder other(s3::open("s3://models/runs/b", service_.service(), S3Service::quick()));
  EXPECT_TRUE(other.adopt(local, 5));
  EXPECT_TRUE(other.adopt(local, 5));
  other.verify(5);
  std::filesystem::remove_all(here);
}

TEST_F(S3StorageTest, ABucketThatRefusesIsAConfigError) {
  for (const auto& [bucket, word] :
       {std::pair{"nowhere", "NoSuchBucket"}, {"denied", "AccessDenied"}}) {
    const Location refused = s3::open("s3://" + std::string(bucket) + "/x", service_.service());
    try {
      refused.storage->lock(refused.path);
      ADD_FAILURE() << bucket;
    } catch (const ConfigError& error) {
      EXPECT_THAT(
          error.what(),
          AllOf(HasSubstr("s3://" + std::string(bucket) + "/x cannot be used"), HasSubstr(word)));
    }
  }
}

TEST_F(S3StorageTest, OneJobAtATimeHasTheBucket) {
  const auto lock = [&](s3::LeaseOptions options = {}) {
    const Location there = location(std::move(options));
    return there.storage->lock(there.path);
  };
  auto held = lock();
  EXPECT_THAT(keys(), Contains("runs/a/.lock"));
  EXPECT_THAT(refusal([&] { lock(); }),
              HasSubstr("in use by process " + std::to_string(::getpid())));
  held.reset();
  EXPECT_THAT(keys(), IsEmpty());

  // A holder of another host that touches its lock, and one that does not.
  s3::LeaseOptions other{.touch_every = std::chrono::milliseconds(20),
                         .patience = std::chrono::seconds(2),
                         .look = std::chrono::milliseconds(10)};
  other.self = observe::LockHolder::this_process();
  other.self->host = other.self->machine = other.self->boot = "elsewhere";
  s3::LeaseOptions mine = other;
  mine.self.reset();
  held = lock(other);
  EXPECT_THAT(refusal([&] { lock(mine); }), HasSubstr("on host elsewhere"));
  held.reset();
  const std::string text = other.self->to_text();
  client_->put("runs/a/.lock", std::as_bytes(std::span(text)));
  mine.patience = std::chrono::milliseconds(100);
  held = lock(mine);
  EXPECT_NE(client_->get("runs/a/.lock")->body, text);

  // Another job takes it over: the lock is that one's.
  client_->put("runs/a/.lock", std::as_bytes(std::span(text)));
  held.reset();
  EXPECT_EQ(client_->get("runs/a/.lock")->body, text);
}

TEST_F(S3StorageTest, ARefusedThreadLeavesTheSignalsAndTheBucketAsTheyWere) {
  const Location there = location();
  there.storage->lock(there.path).reset();
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const testing::RefusedThreads no_more_threads(1);  // beside that of the lock's own client
    EXPECT_THROW(there.storage->lock(there.path), std::system_error);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
  EXPECT_THAT(keys(), IsEmpty());
}

// Locks of a holder that no other process can see, and what another host's process does about it.
class S3LockTest : public S3StorageTest {
 protected:
  S3LockTest() {
    there_.self = observe::LockHolder::this_process();
    there_.self->host = there_.self->machine = there_.self->boot = "elsewhere";
  }
  std::shared_ptr<void> lock(const s3::LeaseOptions& options) const {
    const Location place = location(options);
    return place.storage->lock(place.path);
  }
  // Returns when `count` faults have struck.
  void inject_and_await(const std::string& faults, int count) const {
    service_.inject(faults);
    while (service_.injected() < count) std::this_thread::yield();
  }
  std::optional<s3::Object> object() const { return client_->get("runs/a/.lock"); }

  s3::LeaseOptions here_{.touch_every = std::chrono::milliseconds(20),
                         .patience = std::chrono::seconds(2),
                         .look = std::chrono::milliseconds(10)};
  s3::LeaseOptions there_ = here_;
};

TEST_F(S3LockTest, AHolderThatEndsWhileAnotherJobWaitsLeavesTheBucketToIt) {
  const std::string text = there_.self->to_text();
  client_->put("runs/a/.lock", std::as_bytes(std::span(text)));
  service_.inject(R"([{"kind": "removed", "method": "HEAD", "contains": ".lock", "times": 1}])");
  const auto held = lock(here_);
  ASSERT_TRUE(object());
  EXPECT_NE(object()->body, text);
}

// With KMS the object has another ETag after a touch whose answer was lost.
TEST_F(S3LockTest, ATouchWhoseAnswerWasLostKeepsTheLock) {
  auto held = lock(here_);
  inject_and_await(R"([{"kind": "412", "method": "PUT", "contains": ".lock", "times": 1}])", 1);
  held.reset();
  EXPECT_FALSE(object()) << "it was this job's, which has removed it";
}

TEST_F(S3LockTest, ALockThatSomebodyRemovedIsMadeAgain) {
  auto held = lock(here_);
  inject_and_await(R"([{"kind": "removed", "method": "PUT", "contains": ".lock", "times": 1},
                       {"kind": "deny", "method": "DELETE", "contains": ".lock", "times": 1}])",
                   1);
  held.reset();  // its DELETE is refused, so the object is there if this job had it
  EXPECT_TRUE(object());
}

// As by the ranks of another epoch, in the same process.
TEST_F(S3LockTest, ALockThatCouldNotBeReleasedIsItsProcessesToTakeAgain) {
  auto held = lock(here_);
  service_.inject(R"([{"kind": "deny", "method": "DELETE", "contains": ".lock", "times": 1}])");
  held.reset();
  ASSERT_TRUE(object());
  held = lock(here_);
  EXPECT_THAT(refusal([&] { lock(here_); }), HasSubstr("in use by process"));
  held.reset();
  EXPECT_FALSE(object());
}

// A job hangs while it, or its second rank, sends a file. Its successor writes the same step; then it goes on.
TEST_F(S3LockTest, AJobThatHungLeavesItsSuccessorsFilesAsTheyAre) {
  for (const std::string hangs : {kModelFile, kStateFile, "model-1.safetensors"}) {
    for (const bool guarded : {true, false}) {  // false: it looks at the lock no more
      if (!guarded && hangs == "model-1.safetensors")
        continue;  // rank 0 looks before its own files
      SCOPED_TRACE(hangs + (guarded ? ", guarded" : ""));
      for (const std::string& key : keys()) client_->remove(key);
      const std::string mine = there_.self->to_text(), theirs = "of the successor";
      client_->put("runs/a/.lock", std::as_bytes(std::span(mine)));
      CheckpointFolder hung = folder();
      if (guarded) hung.guard(Claim::of(location()));
      std::map<std::string, FileWriter> own = files("old"),
                                        second = {{"model-1.safetensors", own.at(kModelFile)}};
      (own.contains(hangs) ? own : second).at(hangs).write = [&](const FileWriter::Sink& sink) {
        const auto held =
            lock({.patience = std::chrono::milliseconds(20), .look = std::chrono::milliseconds(5)});
        write(folder(), 10);
        EXPECT_NE(client_->get("runs/a/.lock")->body, mine);
        sink(std::as_bytes(std::span(mine)));
        client_->put("runs/a/.lock", std::as_bytes(std::span(theirs)));
      };
      SecondWriter other(hung, 10, second);
      EXPECT_THROW(hung.write({.step = 10}, own, 1, &other), Error);
      EXPECT_THAT(folder().steps(), ElementsAre(10));
      folder().verify(10);
      EXPECT_EQ(folder().read_text(10, kModelFile), "step 10");
      EXPECT_EQ(folder().read_text(10, kStateFile), "state step 10");
      EXPECT_THAT(client_->open_uploads(""), IsEmpty());
    }
  }
}

TEST_F(S3LockTest, OfTwoDraftsOfAFolderTheLaterOneIsPublished) {
  const auto draft = [&] {
    return location().storage->begin("s3://models/runs/a/step-00000010", "");
  };
  auto earlier = draft();
  const auto file = earlier->create(kModelFile);
  write(folder(), 10);
  EXPECT_THROW(file->finish(), ResourceError);
  EXPECT_THROW(earlier->publish("{}"), ResourceError);
  earlier.reset();
  folder().verify(10);
}

// As if it hung at each removal: a draft that was given up meanwhile removes nothing more.
TEST_F(S3LockTest, ADraftThatWasGivenUpRemovesNothingOfItsSuccessor) {
  const auto begin = [&] {
    return location().storage->begin("s3://models/runs/a/step-00000010", "");
  };
  const std::string given_up =
      R"([{"kind": "given up", "method": "DELETE", "contains": "safetensors", "times": 1}])";
  for (const bool leftovers : {true, false}) {
    const std::string folder = leftovers ? "runs/a/step-00000007/" : "runs/a/step-00000010/";
    std::unique_ptr<Draft> draft;
    if (!leftovers) draft = begin();
    for (const char* file : {kModelFile, kStateFile}) client_->put(folder + file, {});
    service_.inject(given_up);
    if (leftovers) draft = begin();
    draft.reset();
    EXPECT_EQ(service_.injected(), 1);
    EXPECT_THAT(keys(), ElementsAre(folder + kStateFile));
    client_->remove(folder + kStateFile);
  }
}

TEST_F(S3LockTest, TheEndOfAJobDoesNotWaitForAServiceThatIsAway) {
  for (const std::string kind : {"503", "silent"}) {
    SCOPED_TRACE(kind);
    here_.touch_every = std::chrono::hours(1);
    here_.longest_call = std::chrono::milliseconds(50);
    auto held = lock(here_);
    service_.inject(R"([{"kind": ")" + kind + R"(", "contains": ".lock", "times": 1000}])");
    held.reset();
    EXPECT_EQ(service_.injected(), 1) << "one try";
    service_.inject("[]");
    client_->remove("runs/a/.lock");
  }
}

}  // namespace
}  // namespace trireme::storage
