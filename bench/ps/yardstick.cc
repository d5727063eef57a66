// Measures what the memory allows for the exchange of bench.servers: threads copy the bytes that must move,
// without any message, and wait for nobody.
//
//     bench.servers_yardstick [BYTES [WORKERS [SECONDS [sync|async|tcp [copies]]]]]
//
// Per exchange and worker: the gradient is read, weights are updated and written to the worker; with
// `copies` also a copy of the gradient before it and of the weights after it. Asynchronous: the weights
// are updated by each worker's gradient in turn while they are in a cache. Synchronous: they are updated
// once for all workers, by the sum of their gradients. Both are cut among W threads. tcp: what the
// system takes for these bytes, to a thread of another process and back, without any work on them. Prints a JSON line with the
// median seconds of an exchange.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "trireme/ps/copy_for_reader.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Memory {
  explicit Memory(std::size_t count)
      : own(count, 1e-6f), sent(count), received(count), result(count) {}
  std::vector<float> own, sent, received, result;
};

constexpr std::size_t kPiece = 4096;  // stays in a core's cache

void give(const float* weights, std::vector<float>& received, std::size_t at, std::size_t count) {
  trireme::ps::copy_for_reader(received.data() + at, weights, count * sizeof(float),
                               received.size() * sizeof(float));
}

void update(float* weights, const float* gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weights[i] -= 1e-3f * gradient[i];
}

void update_in_turn(float* weights, std::vector<Memory>& all, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; at += kPiece) {
    const std::size_t count = std::min(kPiece, end - at);
    for (Memory& worker : all) {
      update(weights + at, worker.sent.data() + at, count);
      give(weights + at, worker.received, at, count);
    }
  }
}

void update_by_sum(float* weights, std::vector<Memory>& all, std::size_t begin, std::size_t end) {
  std::vector<float> sum(kPiece);
  for (std::size_t at = begin; at < end; at += kPiece) {
    const std::size_t count = std::min(kPiece, end - at);
    std::memcpy(sum.data(), all[0].sent.data() + at, count * sizeof(float));
    for (std::size_t worker = 1; worker < all.size(); ++worker)
      for (std::size_t i = 0; i < count; ++i) sum[i] += all[worker].sent[at + i];
    update(weights + at, sum.data(), count);
    for (Memory& worker : all) give(weights + at, worker.received, at, count);
  }
}

void require(bool done, const char* call) {
  if (done) return;
  std::perror(call);
  std::exit(1);
}

int with_options(int socket) {
  const int bytes = 512 << 10, on = 1;  // as the channels'
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// Ends wait in poll(2). Blocked in send() and recv() they are woken for each packet, and the same bytes
// take 57 ms instead of 33 (64 MiB to and fro, two workers, Sapphire Rapids).
void wait_for(int socket, short event) {
  pollfd one{socket, event, 0};
  require(poll(&one, 1, -1) == 1, "poll");
}

// False: the other end has closed the connection.
bool receive(int socket, std::vector<char>& memory) {
  for (std::size_t at = 0; at < memory.size();) {
    const auto got = recv(socket, memory.data() + at, memory.size() - at, MSG_DONTWAIT);
    require(got >= 0 || errno == EAGAIN, "recv");
    if (got == 0) return false;
    if (got < 0)
      wait_for(socket, POLLIN);
    else
      at += static_cast<std::size_t>(got);
  }
  return true;
}

void send(int socket, const std::vector<char>& memory) {
  for (std::size_t at = 0; at < memory.size();) {
    const auto sent =
        ::send(socket, memory.data() + at, memory.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    require(sent > 0 || errno == EAGAIN, "send");
    if (sent < 0)
      wait_for(socket, POLLOUT);
    else
      at += static_cast<std::size_t>(sent);
  }
}

std::vector<double> exchange_over_tcp(std::size_t bytes, int workers, double seconds) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  require(bind(listener, generic, length) == 0 && listen(listener, workers) == 0, "listen");
  getsockname(listener, generic, &length);
  if (fork() == 0) {  // the server
    std::vector<std::jthread> threads;
    for (int worker = 0; worker < workers; ++worker)
      threads.emplace_back([bytes, socket = with_options(accept(listener, nullptr, nullptr))] {
        std::vector<char> gradient(bytes), weights(bytes);
        while (receive(socket, gradient)) send(socket, weights);
      });
    threads.clear();
    _exit(0);
  }
  std::vector<std::vector<double>> times(static_cast<std::size_t>(workers));
  std::vector<std::jthread> threads;
  for (auto& own : times)
    threads.emplace_back([&] {
      const int socket = with_options(::socket(AF_INET, SOCK_STREAM, 0));
      require(connect(socket, generic, length) == 0, "connect");
      std::vector<char> gradient(bytes), weights(bytes);
      for (const auto start = Clock::now();
           own.size() < 3 || Clock::now() - start < std::chrono::duration<double>(seconds);) {
        const auto before = Clock::now();
        send(socket, gradient);
        receive(socket, weights);
        own.push_back(std::chrono::duration<double>(Clock::now() - before).count());
      }
      close(socket);
    });
  threads.clear();
  wait(nullptr);
  std::vector<double> all;
  for (const auto& own : times) all.insert(all.end(), own.begin(), own.end());
  return all;
}

void print_median(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  std::printf("{\"seconds\": %.9f, \"exchanges\": %zu}\n", times[times.size() / 2], times.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::stoul(argv[1]) : 64 << 20;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 2;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  const std::string mode = argc > 4 ? argv[4] : "async";
  const bool sync = mode == "sync";
  if (mode == "tcp") {
    std::vector<double> times = exchange_over_tcp(bytes, workers, seconds);
    print_median(times);
    return 0;
  }
  const bool copies = argc > 5;
  const std::size_t count = bytes / sizeof(float);
  std::vector<Memory> all(static_cast<std::size_t>(workers), Memory(count));
  std::vector<float> weights(count);
  std::vector<double> times;
  bool more = true;
  const auto start = Clock::now();
  std::barrier together(workers);
  const auto body = [&](int rank) {
    Memory& mine = all[static_cast<std::size_t>(rank)];
    const std::size_t share = (count / workers + 15) / 16 * 16;
    const std::size_t begin = std::min(count, share * static_cast<std::size_t>(rank));
    for (;;) {
      together.arrive_and_wait();
      if (!more) return;
      const auto before = Clock::now();
      if (copies) std::memcpy(mine.sent.data(), mine.own.data(), bytes);
      if (copies) together.arrive_and_wait();
      (sync ? update_by_sum : update_in_turn)(weights.data(), all, begin,
                                              std::min(count, begin + share));
      if (copies) together.arrive_and_wait();
      if (copies) std::memcpy(mine.result.data(), mine.received.data(), bytes);
      together.arrive_and_wait();
      if (rank != 0) continue;
      const auto now = Clock::now();
      times.push_back(std::chrono::duration<double>(now - before).count());
      more = std::chrono::duration<double>(now - start).count() < seconds;
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back(body, rank);
  threads.clear();
  print_median(times);
}
