/* A collective of MPI on floats, for each given size, measured as in comm/choice/measure.cc: the median of
   seven batches. Built once with each installed MPI; run by bench/run_comm.py through mpirun:
   bench.comm_mpi COLLECTIVE SECONDS BYTES...   (bytes: all ranks' parts together) */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatches = 7, kMostCalls = 10000 };
static int ranks, rank;
static const char* what;
static float *in, *out;

static int is(const char* name) { return strcmp(what, name) == 0; }

static void step(int count) {
  const int part = count / ranks;
  if (is("all_reduce")) {
    MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is("reduce")) {
    MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  } else if (is("broadcast")) {
    MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is("all_gather")) {
    MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is("reduce_scatter")) {
    MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is("all_to_all")) {
    MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is("gather")) {
    MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is("scatter")) {
    MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else {
    fprintf(stderr, "unknown collective %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

static double batch(int count, long calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (long i = 0; i < calls; ++i) step(count);
  /* The slowest rank counts: ranks that only send are done early. */
  double mine = (MPI_Wtime() - start) / (double)calls, slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double measure(int count, double budget) {
  batch(count, 2);
  const double once = batch(count, 3);
  long calls = (long)(budget / kBatches / (once > 1e-7 ? once : 1e-7));
  calls = calls < 1 ? 1 : calls > kMostCalls ? kMostCalls : calls;
  double times[kBatches];
  for (int k = 0; k < kBatches; ++k) times[k] = batch(count, calls);
  qsort(times, kBatches, sizeof *times, ascending);
  return times[kBatches / 2];
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  what = argv[1];
  size_t most = 0;
  for (int i = 3; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    if (bytes > most) most = bytes;
  }
  in = malloc(most + 64);
  out = malloc(most + 64);
  memset(in, 0, most);
  memset(out, 0, most);
  for (int i = 3; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    const double seconds = measure((int)(bytes / sizeof(float)), atof(argv[2]));
    if (rank == 0) printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", bytes, seconds);
    fflush(stdout);
  }
  free(in);
  free(out);
  MPI_Finalize();
  return 0;
}
