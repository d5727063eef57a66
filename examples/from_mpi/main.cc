// MPI programs' operations, done with Trireme. docs/from-mpi.md shows these pieces beside MPI's.
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "trireme/job.h"

namespace {

int reductions(trireme::Job& job) {
  // [reductions]
  std::vector<double> x{1.0 + job.rank(), 2.0};
  trireme::all_reduce(job.world(), x, trireme::Sum);  // MPI_Allreduce(MPI_IN_PLACE, x, …, MPI_SUM)

  std::vector<double> total(2);  // MPI_Reduce(x, total, …, MPI_MAX, 0): filled on rank 0
  trireme::reduce(job.world(), x, total, trireme::Max, 0);
  // [/reductions]
  return static_cast<int>(x[0]);
}

int exchanges(trireme::Job& job) {
  // [exchanges]
  std::vector<std::int32_t> mine(2, job.rank()), all(2 * job.size());
  trireme::all_gather(job.world(), mine, all);  // MPI_Allgather

  std::vector<std::int32_t> out(job.size(), job.rank()), in(job.size());
  trireme::all_to_all(job.world(), out, in);  // MPI_Alltoall

  std::vector<float> settings(3, job.rank() == 0 ? 0.5f : 0.0f);
  trireme::broadcast(job.world(), settings, 0);  // MPI_Bcast
  trireme::barrier(job.world());                 // MPI_Barrier
  // [/exchanges]
  return std::accumulate(in.begin(), in.end(), 0) + all.back();
}

int messages(trireme::Job& job) {
  // [messages]
  std::vector<std::int64_t> token{job.rank()}, got{-1};
  const int next = (job.rank() + 1) % job.size(), prev = (job.rank() + job.size() - 1) % job.size();
  if (job.size() > 1) {
    // MPI_Isend, MPI_Recv, MPI_Wait. A tag is the third argument.
    trireme::Work sent = job.world().send(trireme::buffer_of(token), next, 7);
    job.world().recv(trireme::buffer_of(got), prev, 7).wait();
    sent.wait();
  }
  // [/messages]
  return static_cast<int>(got[0]);
}

int overlap(trireme::Job& job) {
  // [overlap]
  std::vector<float> gradients(1000, 1.0f);
  trireme::Work work = trireme::async::all_reduce(job.world(), gradients, trireme::Mean);
  double other = 0;  // MPI_Iallreduce; the sum goes on meanwhile
  for (int i = 0; i < 1000; ++i) other += i;
  work.wait();  // MPI_Wait, but within the job's timeout, and it names a rank that did not come
  // [/overlap]
  return static_cast<int>(gradients[0] + other);
}

int groups(trireme::Job& job) {
  // [groups]
  // MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half)
  auto half = job.world().split(job.rank() % 2, job.rank());
  std::vector<std::int32_t> count{1};
  trireme::all_reduce(*half, count, trireme::Sum);
  // [/groups]
  return count[0];
}

}  // namespace

int main(int argc, char** argv) {
  // [main]
  trireme::Job job(argc, argv);  // MPI_Init, MPI_Comm_rank, MPI_Comm_size; MPI_Finalize at its end
  // [/main]
  const int sum = reductions(job), sent = exchanges(job), token = messages(job);
  const int other = overlap(job), half = groups(job);
  std::printf("rank %d of %d: sum %d, exchanged %d, from prev %d, overlapped %d, in my half %d\n",
              job.rank(), job.size(), sum, sent, token, other, half);
}
