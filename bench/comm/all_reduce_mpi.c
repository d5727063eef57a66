/* MPI_Allreduce(MPI_IN_PLACE, float, SUM) over the sizes of all_reduce_bench.cc, measured alike:
   the median of five batches. Run by bench/run_comm.py through mpirun. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {8,       64,      1 << 10, 4 << 10,  16 << 10, 64 << 10,
                               1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20};

static double batch(float* data, int count, long calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (long i = 0; i < calls; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  return (MPI_Wtime() - start) / (double)calls;
}

static int ascending(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  size_t max_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : (size_t)128 << 20;
  double budget = argc > 2 ? atof(argv[2]) : 0.05;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float* data = malloc(max_bytes);
  memset(data, 0, max_bytes);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= max_bytes; ++i) {
    size_t bytes = sizes[i];
    int count = (int)(bytes / 4);
    batch(data, count, 2);
    double once = batch(data, count, 3), slowest;
    MPI_Allreduce(&once, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    long calls = (long)(budget / 5 / (slowest > 1e-7 ? slowest : 1e-7));
    calls = calls < 1 ? 1 : calls > 20000 ? 20000 : calls;
    double times[5];
    for (int k = 0; k < 5; ++k) times[k] = batch(data, count, calls);
    qsort(times, 5, sizeof *times, ascending);
    if (rank == 0) printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", bytes, times[2]);
    fflush(stdout);
  }
  free(data);
  MPI_Finalize();
  return 0;
}
