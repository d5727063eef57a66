// A collective between processes of this host: one JSON line per size.
//
//     bench.comm [--collective all_reduce] [--ranks 2] [--transport shm|tcp] [--algorithm auto]
//                [--heap] [--trace] [--seconds 0.05] BYTES...
//
// The program starts the other ranks itself (execve of itself, one socket pair per pair of ranks)
// and pins each to a core. --heap: ordinary memory instead of an arena. --trace: records spans, to
// measure their cost.
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/choice/measure.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/net/connect.h"
#include "trireme/observe/trace.h"

namespace {

using namespace trireme;

struct Options {
  std::string transport = "shm";
  comm::MeasureOptions measure;
  int ranks = 2;
  bool trace = false;
  int rank = -1;  // in a started process
  std::vector<int> sockets;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (key == "--ranks")
      options.ranks = std::stoi(value());
    else if (key == "--collective")
      options.measure.kind = comm::measurable_kind(value());
    else if (key == "--transport")
      options.transport = value();
    else if (key == "--algorithm")
      options.measure.algorithm = value();
    else if (key == "--heap")
      options.measure.arena = false;
    else if (key == "--trace")
      options.trace = true;
    else if (key == "--seconds")
      options.measure.seconds = std::stod(value());
    else if (key == "--rank")
      options.rank = std::stoi(value());
    else if (key == "--socket")
      options.sockets.push_back(std::stoi(value()));
    else if (key.starts_with("--"))
      std::exit((std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2));
    else
      options.measure.sizes.push_back(std::stoul(key));
  }
  if (options.measure.sizes.empty()) options.measure.sizes = comm::usual_sizes(128u << 20);
  return options;
}

int pin(int rank) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  const int cores = CPU_COUNT(&all);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || seen++ != rank % cores) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    break;
  }
  return cores;
}

// An all-gather of lines over the socket pairs, in place of the coordinator.
std::vector<std::string> exchange(const Options& options, const std::string& mine) {
  std::vector<std::string> lines(options.sockets.size());
  for (const int socket : options.sockets) {
    if (socket >= 0 && write(socket, (mine + "\n").data(), mine.size() + 1) < 0) std::exit(1);
  }
  for (std::size_t peer = 0; peer < lines.size(); ++peer) {
    if (options.sockets[peer] < 0) lines[peer] = mine;
    for (char c = 0; options.sockets[peer] >= 0 && c != '\n';) {
      if (read(options.sockets[peer], &c, 1) != 1) std::exit(1);
      if (c != '\n') lines[peer] += c;
    }
  }
  return lines;
}

void run_rank(const Options& options) {
  const int cores = pin(options.rank);
  auto waiter =
      RealWaiter::make(options.ranks > cores ? Duration::zero() : std::chrono::microseconds(200));
  net::ConnectOptions connect;
  connect.rank = options.rank;
  connect.size = options.ranks;
  const auto meet = [&](const std::string& mine) { return exchange(options, mine); };
  auto transport = options.transport == "tcp" ? net::connect_tcp(waiter, connect, meet)
                                              : net::make_shm(waiter, connect, options.sockets);
  comm::CommunicatorOptions how;
  if (options.trace) how.trace = std::make_shared<observe::Trace>();
  comm::Communicator world(std::move(transport), how);
  const auto figures = comm::measure(world, options.measure);
  for (const comm::Measured& one : figures) {
    if (options.rank != 0) break;
    std::printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", one.bytes, one.seconds);
  }
  world.barrier().wait();
}

std::vector<std::vector<int>> socket_pairs(std::size_t n) {
  std::vector<std::vector<int>> sockets(n, std::vector<int>(n, -1));
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::exit((std::perror("socket"), 1));
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  return sockets;
}

[[noreturn]] void become_rank(std::size_t rank, const std::vector<std::vector<int>>& sockets,
                              std::vector<std::string> words) {
  words.insert(words.end(), {"--rank", std::to_string(rank)});
  for (std::size_t a = 0; a < sockets.size(); ++a) {
    words.insert(words.end(), {"--socket", std::to_string(sockets[rank][a])});
    for (const int socket : sockets[a]) {
      if (a != rank && socket >= 0) close(socket);
    }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

int start_ranks(const Options& options, int argc, char** argv) {
  const auto sockets = socket_pairs(static_cast<std::size_t>(options.ranks));
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    const pid_t child = fork();
    if (child == 0) become_rank(rank, sockets, std::vector<std::string>(argv, argv + argc));
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
