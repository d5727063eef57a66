// Training in bf16 with products that are computed in fp32, as processors without AVX-512 do it: the
// same weights on any number of ranks and lanes.
#include <cstdio>

#include "tests/numerics/same_training.h"
#include "tests/numerics/training.h"
#include "trireme/base/check.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::widened_test {
namespace {

using numerics::Case;
using tensor::Library;

// Arguments: the sync, the number of lanes.
TRIREME_PROCESS(train_widened) {
  Job job(argc, argv);
  TRIREME_CHECK(argc == 3);
  tensor::KernelTable table = tensor::kernel_table();
  table.linear_bf16 = table.small_bf16 = Library::Widened;
  tensor::use_kernel_table(table);
  for (Case which : {Case{.name = "blocks-gpt-bf16", .steps = 5},
                     Case{.name = "blocks-resnet-bf16", .steps = 3}}) {
    which.sync = argv[1];
    which.lanes = std::stoi(argv[2]);
    const numerics::Record record = numerics::train(job, which);
    std::printf("RESULT %s %s %s %s\n", which.name.c_str(), argv[1], record.hash.c_str(),
                record.losses.c_str());
  }
  TRIREME_CHECK(tensor::describe(tensor::kernel_table()) == tensor::describe(table));
  return 0;
}

std::map<std::string, std::string> train(int ranks, const std::string& sync = "plain",
                                         const std::string& lanes = "1") {
  return by_case(numerics::train_layout(
      {.ranks = ranks, .arguments = {sync, lanes}, .body = "train_widened"}));
}

TEST(WidenedTraining, IsTheSameOnAnyLayout) {
  const auto one = train(1);
  ASSERT_EQ(one.size(), 2u);
  for (const auto& [ranks, sync, lanes] :
       {std::tuple{2, "plain", "1"}, {2, "zero2", "1"}, {3, "zero3", "1"}, {1, "plain", "2"}})
    EXPECT_EQ(train(ranks, sync, lanes), one) << ranks << " " << sync << " " << lanes;
}

}  // namespace
}  // namespace trireme::widened_test
