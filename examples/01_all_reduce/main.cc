// Each rank contributes a vector and gets the sum, then the mean. No LibTorch.
#include <cstdio>
#include <vector>

#include "trireme/job.h"

int main(int argc, char** argv) {
  // [job]
  trireme::Job job(argc, argv);  // trireme launch; started alone = 1 rank
  // [/job]

  // [collectives]
  const float mine = static_cast<float>(job.rank() + 1);
  std::vector<float> x{mine, 10 * mine};
  trireme::all_reduce(job.world(), x, trireme::Sum);
  std::printf("rank %d of %d: sum %g %g\n", job.rank(), job.size(), x[0], x[1]);

  // The same without blocking: compute something else before wait().
  std::vector<double> y{static_cast<double>(job.rank())};
  trireme::Work work = trireme::async::all_reduce(job.host(), y, trireme::Mean);
  work.wait();  // within the job's timeout; a lost rank is an exception that names it
  if (job.rank() == 0) std::printf("mean rank %g\n", y[0]);
  // [/collectives]
  return 0;
}
