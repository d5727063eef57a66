#include "trireme/job/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::job {
namespace {

using ::testing::HasSubstr;

GpuReport has(const char* uuid, int nccl = 22803) { return {uuid, nccl, {}}; }

std::string refusal(const std::vector<std::string>& hosts, const std::vector<GpuReport>& reports) {
  try {
    check_gpus(hosts, reports, 0);
  } catch (const Error& error) {
    return std::to_string(error.exit_code()) + ": " + error.what();
  }
  return "accepted";
}

TEST(GpuChoice, ReportsComeBackAsTheyWere) {
  const GpuReport report = parse_gpu_report(text_of(has("00ff")));
  EXPECT_EQ(report.uuid, "00ff");
  EXPECT_EQ(report.nccl_version, 22803);
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(parse_gpu_report(text_of({.fault = "no driver. Get one."})).fault,
            "no driver. Get one.");
  EXPECT_NE(parse_gpu_report("nonsense").fault, "");
}

TEST(GpuChoice, OneGpuForEachRankIsAccepted) {
  EXPECT_EQ(refusal({"a", "a", "b"}, {has("0"), has("1"), has("2")}), "accepted");
  // Under srun each rank sees its own GPU as number 0, and two hosts may use the same numbers.
  EXPECT_EQ(refusal({"a", "a", "b"}, {has("0"), has("1"), has("0")}), "accepted");
}

TEST(GpuChoice, MoreRanksThanGpusAreRefusedWithTheArithmetic) {
  const auto text = refusal({"a", "b", "b", "b"}, {has("0"), has("0"), has("1"), has("0")});
  EXPECT_THAT(text, HasSubstr("2: 3 ranks on b for 2 GPUs (3 > 2)"));
  EXPECT_THAT(text, HasSubstr("at most 2"));
}

TEST(GpuChoice, ARankWithoutAGpuIsNamedToAll) {
  const auto text = refusal({"a", "b"}, {has("0"), {.fault = "no CUDA driver. Get one."}});
  EXPECT_THAT(text, HasSubstr("2: transport nccl: rank 1 on b: no CUDA driver. Get one"));
}

TEST(GpuChoice, VersionsOfNcclThatDifferAreRefused) {
  const auto text = refusal({"a", "b"}, {has("0"), has("0", 22906)});
  EXPECT_THAT(text, HasSubstr("10: rank 0 on a has NCCL 2.28.3, rank 1 on b has NCCL 2.29.6"));
}

}  // namespace
}  // namespace trireme::job
