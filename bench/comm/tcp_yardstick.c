/* The limit of TCP on loopback: a minimal all-reduce of two processes without a library. Each sends
   the half that the other adds, adds the half that it receives, and sends the sum back, over one
   nonblocking connection, with one thread that sends and receives in turn. Each received piece is
   added while it is in the cache. The second column, "stream", is the same traffic without the
   additions, that is, the kernel's copies alone.
   Run by bench/run_comm.py:  bench.tcp_yardstick SECONDS BYTES... */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPiece = 256 << 10 };
enum { kBatches = 7, kMostCalls = 10000 }; /* as in trireme/comm/choice/measure.cc */
static int rank, peer;
static float *data, *incoming;
static double* times; /* of both, in shared memory */

static size_t moved(ssize_t count) {
  if (count > 0) return (size_t)count;
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) exit(1); /* the peer is gone */
  return 0;
}

/* Sends `out` and receives as much into `in`; if `sum` is given, adds each piece to it. */
static void exchange(const char* out, size_t out_bytes, char* in, size_t in_bytes, float* sum) {
  size_t sent = 0, received = 0, added = 0;
  while (sent < out_bytes || received < in_bytes) {
    if (sent < out_bytes) sent += moved(send(peer, out + sent, out_bytes - sent, MSG_NOSIGNAL));
    if (received < in_bytes) {
      const size_t most = in_bytes - received < kPiece ? in_bytes - received : kPiece;
      received += moved(recv(peer, in + received, most, 0));
    }
    for (; sum != NULL && added < received / 4; ++added) sum[added] += ((float*)in)[added];
  }
}

static void step(size_t count, int adds) {
  const size_t half = count / 2;
  float* const mine = rank == 0 ? data : data + half; /* the half that this rank adds up */
  float* const other = rank == 0 ? data + half : data;
  const size_t mine_bytes = (rank == 0 ? half : count - half) * 4, other_bytes = count * 4 - mine_bytes;
  exchange((char*)other, other_bytes, (char*)incoming, mine_bytes, adds ? mine : NULL);
  exchange((char*)mine, mine_bytes, (char*)other, other_bytes, NULL);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double batch(size_t count, int adds, long calls) {
  step(4, 1); /* both have started */
  const double start = now();
  for (long i = 0; i < calls; ++i) step(count, adds);
  return (now() - start) / (double)calls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double measure(size_t count, int adds, double budget) {
  batch(count, adds, 2);
  times[rank] = batch(count, adds, 3);
  step(4, 1);
  const double slowest = times[0] > times[1] ? times[0] : times[1];
  step(4, 1);
  long calls = (long)(budget / kBatches / (slowest > 1e-7 ? slowest : 1e-7));
  calls = calls < 1 ? 1 : calls > kMostCalls ? kMostCalls : calls;
  double all[kBatches];
  for (int k = 0; k < kBatches; ++k) all[k] = batch(count, adds, calls);
  qsort(all, kBatches, sizeof *all, ascending);
  return all[kBatches / 2];
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

static void connect_both(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr*)&at, &length) != 0)
    exit((perror("listen"), 1));
  if (fork() == 0) rank = 1;
  peer = rank == 0 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
  if (rank == 1 && connect(peer, (struct sockaddr*)&at, sizeof at) != 0) exit((perror("connect"), 1));
  const int yes = 1;
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  fcntl(peer, F_SETFL, O_NONBLOCK);
  const int queue = 128 << 10; /* more does not fit into the caches */
  setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &queue, sizeof queue);
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "SECONDS BYTES...\n"), 2;
  times = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  connect_both();
  pin();
  size_t most = 64;
  for (int i = 2; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    if (bytes > most) most = bytes;
  }
  data = calloc(most, 1);
  incoming = calloc(most, 1);
  memset(data, 0, most);
  memset(incoming, 0, most);
  for (int i = 2; i < argc; ++i) {
    const size_t bytes = strtoull(argv[i], NULL, 10);
    const double seconds = measure(bytes / 4, 1, atof(argv[1]));
    const double copies = measure(bytes / 4, 0, atof(argv[1]));
    if (rank == 0)
      printf("{\"bytes\": %zu, \"seconds\": %.9f, \"stream_seconds\": %.9f}\n", bytes, seconds, copies);
    fflush(stdout);
  }
  if (rank == 0) wait(NULL);
  return 0;
}
