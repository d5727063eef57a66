#include "trireme/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "trireme/base/check.h"

namespace trireme {
namespace {

TEST(Error, SentenceSaysWhereAndWhatToDo) {
  const PeerLost error("rank 0 is gone", {.rank = 1,
                                          .host = "a",
                                          .operation = "all_reduce",
                                          .peer = 0,
                                          .label = "bucket 2",
                                          .step = 7,
                                          .advice = "Resume the run."});
  EXPECT_STREQ(error.what(),
               "rank 0 is gone (rank 1 on host a, all_reduce bucket 2, peer 0, step 7). "
               "Resume the run.");
  EXPECT_EQ(error.exit_code(), 160);
  EXPECT_EQ(error.message(), "rank 0 is gone");
}

TEST(Error, UnknownFieldsAreLeftOut) {
  EXPECT_STREQ(ConfigError("no such key.").what(), "no such key.");
  EXPECT_STREQ(Error(ExitCode::UserCode, "x", {.label = "file.toml:3"}).what(), "x (file.toml:3).");
}

TEST(Error, EveryCodeKeepsItsTypeAcrossProcesses) {
  const auto thrown_as = [](ExitCode code, auto check) {
    try {
      throw_error(code, "text", {.rank = 3});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.rank(), 3);
      EXPECT_TRUE(check(error)) << static_cast<int>(code);
    }
  };
  const auto is = []<class T>(T*) {
    return [](const Error& error) { return dynamic_cast<const T*>(&error) != nullptr; };
  };
  thrown_as(ExitCode::Usage, is(static_cast<ConfigError*>(nullptr)));
  thrown_as(ExitCode::Refused, is(static_cast<RefusedError*>(nullptr)));
  thrown_as(ExitCode::Unauthenticated, is(static_cast<RefusedError*>(nullptr)));
  thrown_as(ExitCode::Checkpoint, is(static_cast<CheckpointError*>(nullptr)));
  thrown_as(ExitCode::StepRefused, is(static_cast<StepRefused*>(nullptr)));
  thrown_as(ExitCode::UnevenInput, is(static_cast<UnevenInput*>(nullptr)));
  thrown_as(ExitCode::Mismatch, is(static_cast<MismatchError*>(nullptr)));
  thrown_as(ExitCode::Interrupted, is(static_cast<StopRequested*>(nullptr)));
  thrown_as(ExitCode::Terminated, is(static_cast<StopRequested*>(nullptr)));
  thrown_as(ExitCode::PeerLost, is(static_cast<PeerLost*>(nullptr)));
  thrown_as(ExitCode::CoordinatorLost, is(static_cast<PeerLost*>(nullptr)));
  thrown_as(ExitCode::Timeout, is(static_cast<TimeoutError*>(nullptr)));
  thrown_as(ExitCode::Resource, is(static_cast<ResourceError*>(nullptr)));
}

TEST(Error, DescribeKnowsItsOwnAndForeignExceptions) {
  const auto own = describe(std::make_exception_ptr(TimeoutError("late", {.rank = 2})));
  EXPECT_EQ(own.exit_code, 161);
  EXPECT_EQ(own.context.rank, 2);
  const auto foreign = describe(std::make_exception_ptr(std::out_of_range("index 9")));
  EXPECT_EQ(foreign.exit_code, 20);
  EXPECT_EQ(foreign.sentence, "threw std::out_of_range: index 9");
  const auto with_stack = describe(std::make_exception_ptr(
      std::out_of_range("index 9\nException raised from get at get.cc:7\nframe #0")));
  EXPECT_EQ(with_stack.sentence, foreign.sentence);
  EXPECT_EQ(describe(std::make_exception_ptr(7)).exit_code, 20);
  EXPECT_FALSE(describe(nullptr).sentence.empty());
}

TEST(Error, DescribeTakesWhatTheSystemRefusesForAResource) {
  const auto memory = describe(std::make_exception_ptr(std::bad_alloc()));
  EXPECT_EQ(memory.exit_code, 170);
  EXPECT_EQ(memory.sentence.find("memory ran out. "), 0u) << memory.sentence;
  for (const int code : {EAGAIN, ENOMEM, EMFILE, ENOSPC, EFBIG}) {
    const auto refused = describe(std::make_exception_ptr(
        std::system_error(std::error_code(code, std::generic_category()), "a thread")));
    EXPECT_EQ(refused.exit_code, 170);
    EXPECT_NE(refused.sentence.find(std::string("a thread: ") + std::strerror(code)),
              std::string::npos)
        << refused.sentence;
  }
  const auto other = describe(std::make_exception_ptr(
      std::system_error(std::make_error_code(std::errc::no_such_file_or_directory), "x")));
  EXPECT_EQ(other.exit_code, 20);
  EXPECT_EQ(other.sentence.find("threw std::system_error: x"), 0u) << other.sentence;
}

TEST(Check, PrintsBothValues) {
  const int a = 1, b = 2;
  try {
    TRIREME_CHECK(a == b);
    FAIL();
  } catch (const CheckFailure& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("a == b, where it read 1 == 2"), std::string::npos) << text;
    EXPECT_NE(text.find("error_test.cc:"), std::string::npos) << text;
    EXPECT_EQ(error.exit_code(), 20);
  }
}

TEST(Check, PassesAndTakesBooleansEnumsAndPointers) {
  enum class Colour { Red, Green };
  struct Opaque {
    bool operator==(const Opaque&) const { return false; }
  };
  TRIREME_CHECK(1 < 2);
  TRIREME_CHECK(Colour::Red == Colour::Red);
  TRIREME_CHECK(true);
  int x = 0;
  TRIREME_CHECK(&x != nullptr);
  EXPECT_THROW(TRIREME_CHECK(false), CheckFailure);
  EXPECT_THROW(TRIREME_CHECK(Colour::Red == Colour::Green), CheckFailure);
  EXPECT_THROW(TRIREME_CHECK(Opaque() == Opaque()), CheckFailure);
  EXPECT_THROW(TRIREME_CHECK(2 <= 1), CheckFailure);
}

}  // namespace
}  // namespace trireme
