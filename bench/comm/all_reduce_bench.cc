// All-reduce between processes of this host, buffers in an arena: one JSON line per size.
//
//     bench.all_reduce [--ranks 2] [--algorithm auto] [--heap] [--max BYTES] [--seconds 0.05]
//
// The program starts the other ranks itself (execve of itself, one socket pair per pair of ranks)
// and pins each to a core of its own. --heap: ordinary memory instead of an arena.
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "trireme/base/real_waiter.h"
#include "trireme/comm/collectives.h"
#include "trireme/net/connect.h"

namespace {

using namespace trireme;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kSizes[] = {8,          64,       1u << 10, 4u << 10,  16u << 10, 64u << 10,
                                  256u << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20, 128u << 20};

struct Options {
  int ranks = 2;
  std::string algorithm = "auto";
  bool heap = false;
  std::size_t max_bytes = 128u << 20;
  double seconds = 0.05;
  int rank = -1;  // of a started process
  std::vector<int> sockets;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (key == "--ranks")
      options.ranks = std::stoi(value());
    else if (key == "--algorithm")
      options.algorithm = value();
    else if (key == "--heap")
      options.heap = true;
    else if (key == "--max")
      options.max_bytes = std::stoul(value());
    else if (key == "--seconds")
      options.seconds = std::stod(value());
    else if (key == "--rank")
      options.rank = std::stoi(value());
    else if (key == "--socket")
      options.sockets.push_back(std::stoi(value()));
    else
      std::exit((std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2));
  }
  return options;
}

void pin(int rank) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  int seen = 0;
  const int wanted = rank % CPU_COUNT(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || seen++ != wanted) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// Seconds per call: the median of five batches that together take about `budget`.
double measure(comm::Communicator& world, const Buffer& buffer, double budget) {
  const auto batch = [&](long calls) {
    trireme::barrier(world);
    const TimePoint start = steady_now();
    for (long i = 0; i < calls; ++i) world.all_reduce(buffer, Sum).wait();
    return Seconds(steady_now() - start).count() / double(calls);
  };
  batch(2);
  std::vector<double> once{batch(3)};
  trireme::all_reduce(world, once, Max);  // all ranks must agree on the number of calls
  const long calls = std::clamp(long(budget / 5 / std::max(once[0], 1e-7)), 1L, 20000L);
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(batch(calls));
  std::sort(times.begin(), times.end());
  return times[2];
}

void run_rank(const Options& options) {
  pin(options.rank);
  auto waiter = RealWaiter::make(std::chrono::microseconds(200));
  net::ConnectOptions connect;
  connect.rank = options.rank;
  connect.size = options.ranks;
  comm::CommunicatorOptions group;
  group.algorithm = options.algorithm;
  comm::Communicator world(net::make_shm(waiter, connect, options.sockets), group);
  comm::Arena arena = world.allocate(options.heap ? 64 : options.max_bytes);
  std::vector<float> heap(options.heap ? options.max_bytes / 4 : 0);
  Buffer all = options.heap ? buffer_of(heap) : arena.buffer(0, options.max_bytes / 4, DType::F32);
  std::memset(all.data, 0, all.bytes());
  for (const std::size_t bytes : kSizes) {
    if (bytes > options.max_bytes) break;
    const double seconds = measure(world, all.slice(0, bytes / 4), options.seconds);
    if (options.rank == 0) std::printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", bytes, seconds);
    std::fflush(stdout);
  }
  trireme::barrier(world);
}

int start_ranks(const Options& options, int argc, char** argv) {
  const auto n = static_cast<std::size_t>(options.ranks);
  std::vector<std::vector<int>> sockets(n, std::vector<int>(n, -1));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return std::perror("socketpair"), 1;
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      std::vector<std::string> words(argv, argv + argc);
      words.insert(words.end(), {"--rank", std::to_string(rank)});
      for (std::size_t a = 0; a < n; ++a) {
        words.insert(words.end(), {"--socket", std::to_string(sockets[rank][a])});
        for (std::size_t b = 0; b < n; ++b) {
          if (a != rank && sockets[a][b] >= 0) close(sockets[a][b]);
        }
      }
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    children.push_back(child);
  }
  for (const auto& row : sockets) {
    for (const int socket : row) {
      if (socket >= 0) close(socket);
    }
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.rank < 0) return start_ranks(options, argc, argv);
  run_rank(options);
}
