#include "trireme/storage/folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/check.h"
#include "trireme/storage/faulty_file_system_test.h"
#include "trireme/storage/forwarding_file_system_test.h"

namespace trireme::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes the model file to /dev/full, so the system returns ENOSPC.
class FullDevice final : public ForwardingFileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return ForwardingFileSystem::create(path.ends_with(kModelFile) ? "/dev/full" : path);
  }
};

// Removed checkpoints stay, as those of which NFS keeps a file that another process has open.
class OpenFiles final : public ForwardingFileSystem {
 public:
  void remove(const std::string& path) override {
    if (path.find("old-") != path.npos) throw ResourceError("cannot remove " + path, {});
    ForwardingFileSystem::remove(path);
  }
};

// Opens the first file whose path ends with `name` while the process has no descriptor left.
class NoDescriptorOnce final : public ForwardingFileSystem {
 public:
  explicit NoDescriptorOnce(std::string name) : name_(std::move(name)) {}
  std::unique_ptr<InputFile> open(const std::string& path) override {
    if (done_ || !path.ends_with(name_)) return ForwardingFileSystem::open(path);
    done_ = true;
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const std::shared_ptr<void> restored(nullptr,
                                         [before](void*) { ::setrlimit(RLIMIT_NOFILE, &before); });
    return ForwardingFileSystem::open(path);
  }

 private:
  const std::string name_;
  bool done_ = false;
};

// NFS: another host removes the checkpoint while its weights are read.
class RemovedElsewhere final : public ForwardingFileSystem {
 public:
  std::unique_ptr<InputFile> open(const std::string& path) override {
    if (!path.ends_with(kModelFile)) return ForwardingFileSystem::open(path);
    fs::remove_all(fs::path(path).parent_path());
    throw ResourceError("cannot read " + path + ": Stale file handle", {});
  }
};

class NoManifest final : public ForwardingFileSystem {
 public:
  std::unique_ptr<InputFile> open(const std::string& path) override {
    throw ResourceError("cannot read " + path + ": Input/output error", {});
  }
};

class UnreadableState final : public ForwardingFileSystem {
 public:
  std::unique_ptr<InputFile> open(const std::string& path) override {
    if (!path.ends_with(kStateFile)) return ForwardingFileSystem::open(path);
    throw ResourceError("cannot read " + path + ": Input/output error", {});
  }
};

class NoLinks final : public ForwardingFileSystem {
 public:
  bool link(const std::string&, const std::string&) override { return false; }
};

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // In memory if possible: these tests sync thousands of files.
    const fs::path memory = "/dev/shm", disk = ::testing::TempDir();
    directory_ = (::access(memory.c_str(), W_OK) == 0 ? memory : disk) /
                 ("trireme_checkpoints_" + std::to_string(::getpid()));
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  CheckpointFolder folder(std::shared_ptr<FileSystem> storage = local_file_system()) const {
    return CheckpointFolder(std::move(storage), directory_.string());
  }
  // The text twice.
  static FileWriter files_of(const std::string& text) {
    return [text](const auto& sink) {
      sink(std::as_bytes(std::span(text)));
      sink(std::as_bytes(std::span(text)));
    };
  }
  static std::map<std::string, FileWriter> files(const std::string& text) {
    return {{kModelFile, files_of(text)}, {kStateFile, files_of("state " + text)}};
  }
  static void write(CheckpointFolder folder, std::int64_t step, int keep = 2) {
    folder.write({.step = step, .parts = {{"train", std::to_string(step)}}},
                 files("step " + std::to_string(step)), keep);
  }
  std::string text(const std::string& name) const {
    std::ifstream file(directory_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> names() const { return local_file_system()->list(directory_.string()); }
  std::string refusal(std::int64_t step) const {
    try {
      folder().verify(step);
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), 12);
      return error.what();
    }
    return "intact";
  }

  fs::path directory_;
};

TEST_F(CheckpointFolderTest, WritesVerifiesAndKeepsTheNewest) {
  EXPECT_TRUE(folder().steps().empty());
  for (std::int64_t step : {5, 10, 15}) write(folder(), step);
  EXPECT_THAT(folder().steps(), ElementsAre(10, 15));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000010", "step-00000015"));
  EXPECT_EQ(text("latest"), "step-00000015\n");
  const Manifest manifest = folder().verify(15);
  EXPECT_EQ(manifest.step, 15);
  EXPECT_EQ(manifest.parts.at("train"), "15");
  EXPECT_EQ(folder().read_text(15, kModelFile), "step 15step 15");
  EXPECT_THROW(write(folder(), 15), ConfigError);
}

TEST_F(CheckpointFolderTest, NamesTheFileTheDamageAndTheStepToGoBackTo) {
  for (std::int64_t step : {5, 10}) write(folder(), step);
  const fs::path model = directory_ / "step-00000010" / kModelFile;
  fs::resize_file(model, 9);
  EXPECT_THAT(refusal(10), AllOf(HasSubstr(model.string()), HasSubstr("torn: it has 9 bytes"),
                                 HasSubstr("says 14"), HasSubstr("Step 5 is intact")));
  std::ofstream(model) << "step 10step_10";
  EXPECT_THAT(refusal(10), AllOf(HasSubstr("was changed"), HasSubstr("XXH3")));
  fs::remove(model);
  EXPECT_THAT(refusal(10), HasSubstr("No such file"));
  const fs::path manifest = directory_ / "step-00000010" / "manifest.json";
  fs::resize_file(manifest, fs::file_size(manifest) / 2);
  EXPECT_THAT(refusal(10), HasSubstr("not valid JSON"));
  fs::remove_all(directory_ / "step-00000005");
  EXPECT_THAT(refusal(10), ::testing::Not(HasSubstr("is intact")));
}

TEST_F(CheckpointFolderTest, AFileThatHasNotChangedIsThatOfTheStepBefore) {
  const auto save = [&](std::int64_t step, const std::string& model,
                        std::shared_ptr<FileSystem> files) {
    return folder(std::move(files))
        .write({.step = step, .chunk_bytes = 4},
               {{kModelFile, files_of(model)}, {kStateFile, files_of("state")}}, 2);
  };
  EXPECT_EQ(save(5, "model 5", local_file_system()).kept_bytes, 0);
  const SaveReport report = save(10, "model 10", local_file_system());
  EXPECT_EQ(report.kept_bytes, 10) << "twice \"state\"";
  EXPECT_EQ(report.written_bytes, 16);
  EXPECT_EQ(fs::hard_link_count(directory_ / "step-00000010" / kStateFile), 2u);
  EXPECT_EQ(fs::hard_link_count(directory_ / "step-00000010" / kModelFile), 1u);
  EXPECT_EQ(save(15, "model 15", std::make_shared<NoLinks>()).kept_bytes, 0);
  EXPECT_EQ(fs::hard_link_count(directory_ / "step-00000015" / kStateFile), 1u);
  for (const std::int64_t step : {10, 15}) folder().verify(step);
  // A file of the same size, and one that goes on where the older one ends.
  EXPECT_EQ(save(20, "model 16", local_file_system()).kept_bytes, 10);
  EXPECT_EQ(save(25, "model 16 and more", local_file_system()).kept_bytes, 10);
  EXPECT_EQ(folder().read_text(25, kModelFile), "model 16 and moremodel 16 and more");
}

TEST_F(CheckpointFolderTest, AFileThatWasTornIsWrittenAnew) {
  const auto save = [&](std::int64_t step) {
    return folder().write({.step = step, .chunk_bytes = 4}, files("same"), 9).kept_bytes;
  };
  save(5);
  fs::resize_file(directory_ / "step-00000005" / kModelFile, 5);
  EXPECT_EQ(save(10), 20) << "twice \"state same\"";
  EXPECT_EQ(refusal(10), "intact");
  fs::remove(directory_ / "step-00000010" / kModelFile);
  EXPECT_EQ(save(15), 20);
  EXPECT_EQ(refusal(15), "intact");
}

// Each save reads another part of a file that has not changed.
TEST_F(CheckpointFolderTest, AFileWhoseBytesRotIsWrittenAnewBeforeLong) {
  const auto save = [&](std::int64_t step) {
    return folder().write({.step = step, .chunk_bytes = 4}, files("same"), 9).kept_bytes;
  };
  save(5);
  std::fstream state(directory_ / "step-00000005" / kStateFile, std::ios::in | std::ios::out);
  state.seekp(17).put('_');
  state.close();
  for (const std::int64_t step : {10, 15}) EXPECT_EQ(save(step), 28);
  EXPECT_THAT(refusal(15), HasSubstr("XXH3 of its bytes 16 to 20"));
  EXPECT_EQ(save(20), 8) << "twice \"same\"";
  EXPECT_EQ(refusal(20), "intact");
}

TEST_F(CheckpointFolderTest, AFileThatCannotBeReadIsWrittenAnew) {
  const auto save = [&](std::int64_t step, std::shared_ptr<FileSystem> storage) {
    return folder(std::move(storage))
        .write({.step = step, .chunk_bytes = 4}, files("same"), 9)
        .kept_bytes;
  };
  save(5, local_file_system());
  EXPECT_EQ(save(10, std::make_shared<UnreadableState>()), 8) << "twice \"same\"";
  EXPECT_EQ(refusal(10), "intact");
}

TEST_F(CheckpointFolderTest, AManifestThatIsTooLongIsNotRead) {
  write(folder(), 5);
  fs::resize_file(directory_ / "step-00000005" / kManifestFile, std::uintmax_t{1} << 40);
  EXPECT_THAT(refusal(5), HasSubstr("manifest.json is damaged: it has 1099511627776 bytes"));
}

TEST_F(CheckpointFolderTest, AFolderUnderAnotherNameIsRefused) {
  write(folder(), 5);
  fs::rename(directory_ / "step-00000005", directory_ / "step-00000006");
  EXPECT_THAT(refusal(6), HasSubstr("of step 5"));
}

TEST_F(CheckpointFolderTest, ACheckpointIsTakenOverByItsManifestAlone) {
  write(folder(), 5);
  fs::create_directories(directory_ / "step-00000005" / ".ipynb_checkpoints");
  CheckpointFolder other(local_file_system(), (directory_ / "other").string());
  EXPECT_TRUE(other.adopt(folder(), 5));
  EXPECT_EQ(other.verify(5).step, 5);
  EXPECT_FALSE(fs::exists(directory_ / "other/step-00000005/.ipynb_checkpoints"));
  EXPECT_FALSE(other.adopt(folder(), 6)) << "there is none";
  write(folder(), 7);
  fs::remove(directory_ / "step-00000007/manifest.json");
  EXPECT_THROW(other.adopt(folder(), 7), CheckpointError);
  other.remove(7);  // there is none
  EXPECT_THAT(other.steps(), ElementsAre(5));
}

// Cuts the power at every operation of the second save. Afterwards the old or the new checkpoint is
// complete, and the next save works.
TEST_F(CheckpointFolderTest, ACrashAtAnyActLeavesACompleteCheckpoint) {
  int acts = 0;
  {
    write(folder(), 5, 1);
    const auto counting = std::make_shared<FaultyFileSystem>();
    write(folder(counting), 10, 1);
    acts = counting->num_acts();
  }
  ASSERT_GT(acts, 15);
  for (const auto loss :
       {FaultyFileSystem::Loss::All, FaultyFileSystem::Loss::Ends, FaultyFileSystem::Loss::Some}) {
    int saw_old = 0, saw_new = 0;
    for (int fail_at = 0; fail_at < acts; ++fail_at) {
      SCOPED_TRACE(fail_at + 1000 * static_cast<int>(loss));
      fs::remove_all(directory_);
      write(folder(), 5, 1);
      const auto storage = std::make_shared<FaultyFileSystem>(FaultyFileSystem::Fault::Crash,
                                                              fail_at, directory_.string(), loss);
      EXPECT_THROW(write(folder(storage), 10, 1), Crashed);
      const auto steps = folder().steps();
      ASSERT_FALSE(steps.empty());
      ++(steps.back() == 10 ? saw_new : saw_old);
      for (const std::int64_t step : steps) EXPECT_EQ(refusal(step), "intact");
      if (steps.back() == 5) write(folder(), 10, 1);
      write(folder(), 15, 1);
      EXPECT_THAT(names(), ElementsAre("latest", "step-00000015"));
    }
    EXPECT_GT(saw_old, 0);
    EXPECT_GT(saw_new, 0);
  }
}

// The disk may learn of a removed file before it learns of the new name of its folder.
TEST_F(CheckpointFolderTest, ACrashAfterARemovalLeavesNoPartOfACheckpoint) {
  for (int fail_at = 100; fail_at < 150; ++fail_at) {
    SCOPED_TRACE(fail_at);
    fs::remove_all(directory_);
    write(folder(), 5, 1);
    const auto storage = std::make_shared<FaultyFileSystem>(
        FaultyFileSystem::Fault::Crash, fail_at, directory_.string(), FaultyFileSystem::Loss::Some);
    write(folder(storage), 10, 1);
    const auto go_on = [&] {
      for (;;) storage->make_directory(directory_.string());  // it is there
    };
    EXPECT_THROW(go_on(), Crashed);
    for (const std::int64_t step : folder().steps()) EXPECT_EQ(refusal(step), "intact");
  }
}

// A new folder has no name on the disk until its parent is synced.
TEST_F(CheckpointFolderTest, TheFirstCheckpointOfANewFolderSurvives) {
  fs::create_directory(directory_);
  const std::string below = (directory_ / "runs/a/checkpoint").string();
  const auto storage = std::make_shared<FaultyFileSystem>(
      FaultyFileSystem::Fault::Crash, 1000, directory_.string(), FaultyFileSystem::Loss::All);
  write(CheckpointFolder(storage, below), 5);
  for (int i = storage->num_acts(); i < 1000; ++i) storage->sync(below);
  EXPECT_THROW(storage->sync(below), Crashed);
  EXPECT_EQ(CheckpointFolder(local_file_system(), below).verify(5).step, 5);
}

TEST_F(CheckpointFolderTest, AManifestThatVouchesForNothingIsRefused) {
  write(folder(), 5);
  for (const std::string missing : {kModelFile, kStateFile, ""}) {
    Manifest manifest = folder().read_manifest(5);
    if (missing.empty()) manifest.files.clear();
    manifest.files.erase(missing);
    std::ofstream(directory_ / "step-00000005" / "manifest.json") << to_text(manifest);
    EXPECT_THAT(refusal(5), HasSubstr("lists no hashes of " +
                                      (missing.empty() ? std::string(kModelFile) : missing)));
    fs::remove_all(directory_);
    write(folder(), 5);
  }
}

TEST_F(CheckpointFolderTest, AFullDiskLeavesTheOldOneAndNothingElse) {
  for (int fail_at = 0; fail_at < 12; ++fail_at) {
    SCOPED_TRACE(fail_at);
    fs::remove_all(directory_);
    write(folder(), 5);
    const auto storage =
        std::make_shared<FaultyFileSystem>(FaultyFileSystem::Fault::DiskFull, fail_at);
    EXPECT_THROW(write(folder(storage), 10), ResourceError);
    EXPECT_THAT(names(), ElementsAre("latest", "step-00000005"));
    EXPECT_EQ(refusal(5), "intact");
    write(folder(), 10);  // the disk has space again
    EXPECT_EQ(refusal(10), "intact");
  }
}

// The NFS client asks again if the reply to its link() was lost.
TEST_F(CheckpointFolderTest, ALinkThatWasMadeIsMade) {
  write(folder(), 5);
  const std::string from = (directory_ / "step-00000005" / kModelFile).string(),
                    to = (directory_ / "second").string();
  EXPECT_TRUE(local_file_system()->link(from, to));
  EXPECT_TRUE(local_file_system()->link(from, to));
  EXPECT_THROW(local_file_system()->link((directory_ / "latest").string(), to), ResourceError);
}

TEST(LocalFileSystem, AFolderThatCannotBeMadeIsAnError) {
  try {
    local_file_system()->lock("/dev/null/x");
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Not a directory"));
  }
}

// The kernel answers EIO to a read of memory that is not mapped.
TEST(LocalFileSystem, ADiskThatFailsInTheMiddleIsNoDamage) {
  const auto file = local_file_system()->open("/proc/self/mem");
  std::byte bytes[16];
  EXPECT_THROW(file->read(0, bytes), ResourceError);
}

TEST_F(CheckpointFolderTest, TheSystemsOwnNoSpaceIsAResourceError) {
  write(folder(), 5);
  try {
    write(folder(std::make_shared<FullDevice>()), 10);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_GE(error.exit_code(), 170);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("No space left"), HasSubstr("Free some space")));
  }
  EXPECT_EQ(refusal(5), "intact");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000005"));
}

TEST_F(CheckpointFolderTest, TheFileSizeLimitIsAnErrorAndNoDeath) {
  write(folder(), 5);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string large(100000, 'x');
  EXPECT_THROW(folder().write({.step = 10}, files(large), 2), ResourceError);  // no SIGXFSZ
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(refusal(5), "intact");
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000005"));
}

TEST_F(CheckpointFolderTest, ACheckpointThatCannotBeRemovedStopsNoSave) {
  CheckpointFolder saves = folder(std::make_shared<OpenFiles>());
  for (std::int64_t step = 1; step <= 4; ++step) {
    const SaveReport report = saves.write({.step = step}, files("x"), /*keep=*/1);
    EXPECT_EQ(report.undone.empty(), step == 1) << step;
    EXPECT_EQ(saves.steps(), std::vector<std::int64_t>{step});
  }
}

TEST_F(CheckpointFolderTest, AManifestThatCannotBeOpenedNowIsNotDamaged) {
  const Retention keep{1, 0, 1};
  const auto save = [&](std::int64_t step, CheckpointFolder to) {
    Manifest manifest{.step = step};
    note_saved(manifest, 0, static_cast<double>(step));  // the first is the best
    return to.write(manifest, files("x"), keep);
  };
  for (const std::int64_t step : {1, 2}) EXPECT_EQ(save(step, folder()).undone, "");
  const auto once = std::make_shared<NoDescriptorOnce>("step-00000001/manifest.json");
  EXPECT_THAT(save(3, folder(once)).undone, HasSubstr("Too many open files"));
  EXPECT_THAT(folder().steps(), ElementsAre(1, 2, 3)) << "the best of those that are known stays";
  EXPECT_EQ(save(4, folder()).undone, "");
  EXPECT_THAT(folder().steps(), ElementsAre(1, 4));
}

TEST_F(CheckpointFolderTest, TooFewDescriptorsAreNoReasonToRemoveACheckpoint) {
  for (const std::int64_t step : {5, 10}) write(folder(), step);
  try {
    folder(std::make_shared<NoDescriptorOnce>(kModelFile)).verify(10);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
  }
  EXPECT_EQ(refusal(10), "intact");
}

// A folder may hold other programs' files, under any names.
TEST_F(CheckpointFolderTest, ASaveRemovesNothingOfOthers) {
  fs::create_directories(directory_ / ".tmp-notes");
  for (const char* leftover : {".tmp-step-00000004", ".tmp-old-step-00000004"})
    fs::create_directories(directory_ / leftover);
  write(folder(), 5);
  EXPECT_THAT(names(), ElementsAre(".tmp-notes", "latest", "step-00000005"));
}

TEST_F(CheckpointFolderTest, ADiskThatFailsInTheManifestBeforeStopsNoSave) {
  write(folder(), 5);
  const auto broken = std::make_shared<NoManifest>();
  EXPECT_EQ(folder(broken).write({.step = 10}, files("step 10"), 2).kept_bytes, 0);
  EXPECT_EQ(refusal(10), "intact");
}

TEST_F(CheckpointFolderTest, AFailureSinceTheCheckpointIsGoneIsNoneOfTheStorage) {
  write(folder(), 5);
  const CheckpointFolder there = folder(std::make_shared<RemovedElsewhere>());
  try {
    there.look(5);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("was removed while it was read"), HasSubstr("Stale file handle")));
  }
  write(folder(), 5);
  CheckpointFolder other(std::make_shared<NoLinks>(), (directory_ / "other").string());
  EXPECT_FALSE(other.adopt(there, 5));
}

}  // namespace
}  // namespace trireme::storage
