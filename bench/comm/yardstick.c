/* The limit of shared memory: a minimal all-reduce without a library. N forked processes share N
   arenas (memfd pages). Rank r adds slice r of all arenas and stores the sum into all of them,
   between two barriers. The second column is the memory bandwidth W alone: every process reads N
   streams and writes N streams of its own without waiting.
   Run by bench/run_comm.py:  bench.yardstick RANKS SECONDS BYTES... */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMostRanks = 16 };
enum { kBatches = 7, kMostCalls = 10000 }; /* as in trireme/comm/choice/measure.cc */
static int ranks, rank;
static struct shared {
  _Alignas(64) atomic_long arrived;
  _Alignas(64) double slowest[kMostRanks];
} * shared;
static long barriers;
static float* arenas[kMostRanks];

static void barrier(void) {
  const long all = ++barriers * ranks;
  atomic_fetch_add(&shared->arrived, 1);
  for (long spins = 0; atomic_load_explicit(&shared->arrived, memory_order_acquire) < all;) {
    if (++spins > 2000)
      sched_yield(); /* more ranks than cores */
    else
      __builtin_ia32_pause();
  }
}

typedef float lanes __attribute__((vector_size(64), aligned(4)));

static void all_reduce(size_t count) {
  const size_t part = ((count + ranks - 1) / ranks + 15) / 16 * 16;
  const size_t begin = part * rank < count ? part * rank : count;
  const size_t end = begin + part < count ? begin + part : count;
  barrier();
  size_t i = begin;
  for (; i + 16 <= end; i += 16) {
    lanes sum = *(lanes*)(arenas[0] + i);
    for (int r = 1; r < ranks; ++r) sum += *(lanes*)(arenas[r] + i);
    for (int r = 0; r < ranks; ++r) *(lanes*)(arenas[r] + i) = sum;
  }
  for (; i < end; ++i) {
    float sum = arenas[0][i];
    for (int r = 1; r < ranks; ++r) sum += arenas[r][i];
    for (int r = 0; r < ranks; ++r) arenas[r][i] = sum;
  }
  barrier();
}

/* The same reads and writes as in one all_reduce, but without waiting for other ranks. */
static void stream(size_t count) {
  const size_t part = count / ranks / 16 * 16;
  for (size_t i = part * rank; i < part * (rank + 1); i += 16) {
    lanes sum = *(lanes*)(arenas[0] + i);
    for (int r = 1; r < ranks; ++r) sum += *(lanes*)(arenas[r] + i);
    for (int r = 0; r < ranks; ++r) *(lanes*)(arenas[r] + i) = sum;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double batch(void (*step)(size_t), size_t count, long calls) {
  barrier();
  const double start = now();
  for (long i = 0; i < calls; ++i) step(count);
  return (now() - start) / (double)calls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* The median of batches that together take about `budget` seconds. */
static double measure(void (*step)(size_t), size_t count, double budget) {
  batch(step, count, 2);
  shared->slowest[rank] = batch(step, count, 3);
  barrier();
  double slowest = 1e-7, times[kBatches];
  for (int r = 0; r < ranks; ++r)
    if (shared->slowest[r] > slowest) slowest = shared->slowest[r];
  long calls = (long)(budget / kBatches / slowest);
  calls = calls < 1 ? 1 : calls > kMostCalls ? kMostCalls : calls;
  for (int k = 0; k < kBatches; ++k) times[k] = batch(step, count, calls);
  qsort(times, kBatches, sizeof *times, ascending);
  return times[kBatches / 2];
}

static void* map_shared(size_t bytes) {
  const int fd = memfd_create("yardstick", 0);
  void* const memory = fd < 0 || ftruncate(fd, (off_t)bytes) != 0
                           ? MAP_FAILED
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) exit((perror("shared memory"), 1));
  return memory;
}

static void pin(void) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  int left = rank % CPU_COUNT(&all), core = 0;
  while (!CPU_ISSET(core, &all) || left-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char** argv) {
  ranks = argc > 3 ? atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > kMostRanks) return fprintf(stderr, "RANKS SECONDS BYTES...\n"), 2;
  const double budget = atof(argv[2]);
  size_t most = 64;
  for (int i = 3; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    if (bytes > most) most = bytes;
  }
  shared = map_shared(sizeof *shared);
  for (int r = 0; r < ranks; ++r) arenas[r] = map_shared(most);
  for (int r = 1; r < ranks && rank == 0; ++r) {
    if (fork() == 0) rank = r;
  }
  pin();
  memset(arenas[rank], 0, most);
  for (int i = 3; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    const double seconds = measure(all_reduce, bytes / 4, budget);
    const double alone = measure(stream, bytes / 4, budget);
    if (rank == 0) {
      printf("{\"bytes\": %zu, \"seconds\": %.9f, \"stream_seconds\": %.9f}\n", bytes, seconds,
             alone);
      fflush(stdout);
    }
  }
  while (rank == 0 && wait(NULL) > 0) {
  }
  return 0;
}
