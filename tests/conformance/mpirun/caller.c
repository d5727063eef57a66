/* A program's own use of MPI, for mpirun_test.cc: it starts MPI, gives a communicator of its own to
 * a Job, and ends MPI itself. Compiled by each mpicc. */
#include <mpi.h>
#include <stddef.h>

static MPI_Comm half;

int caller_start(int level) {
  int provided = 0, rank = 0;
  if (MPI_Init_thread(NULL, NULL, level, &provided) != MPI_SUCCESS) return -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  return rank;
}

int caller_single(void) { return MPI_THREAD_SINGLE; }
int caller_serialized(void) { return MPI_THREAD_SERIALIZED; }
const void* caller_communicator(void) { return &half; }

/* MPI still works after the Job: 1 where all ranks of the world meet in a sum. */
int caller_works(void) {
  int one = 1, sum = 0, size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS &&
         sum == size;
}

void caller_finish(void) { MPI_Finalize(); }
