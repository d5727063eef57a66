// Measures what the memory allows for the exchange of bench.servers: threads copy the bytes that must move,
// without any message, and wait for nobody.
//
//     bench.servers_yardstick [BYTES [WORKERS [SECONDS [sync|async [copies]]]]]
//
// Per exchange and worker: the gradient is read, weights are updated and written to the worker; with
// `copies` also a copy of the gradient before it and of the weights after it. Asynchronous: each of W
// threads does that for one worker (on weights of its own: nobody waits). Synchronous: the weights
// are updated once for all workers, by the sum of their gradients, cut among the threads. Prints a JSON line with the median seconds of
// an exchange.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Memory {
  explicit Memory(std::size_t count)
      : own(count, 1e-6f), sent(count), received(count), result(count) {}
  std::vector<float> own, sent, received, result;
};

void update(float* weights, const float* gradient, float* received, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    weights[i] -= 1e-3f * gradient[i];
    received[i] = weights[i];
  }
}

void update_by_sum(float* weights, std::vector<Memory>& all, std::size_t begin, std::size_t end) {
  // In pieces that stay in a core's cache.
  constexpr std::size_t kPiece = 4096;
  std::vector<float> sum(kPiece);
  for (std::size_t at = begin; at < end; at += kPiece) {
    const std::size_t count = std::min(kPiece, end - at);
    std::memcpy(sum.data(), all[0].sent.data() + at, count * sizeof(float));
    for (std::size_t worker = 1; worker < all.size(); ++worker)
      for (std::size_t i = 0; i < count; ++i) sum[i] += all[worker].sent[at + i];
    update(weights + at, sum.data(), all[0].received.data() + at, count);
    for (std::size_t worker = 1; worker < all.size(); ++worker)
      std::memcpy(all[worker].received.data() + at, weights + at, count * sizeof(float));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::stoul(argv[1]) : 64 << 20;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 2;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  const bool sync = argc > 4 && std::string(argv[4]) == "sync";
  const bool copies = argc > 5;
  const std::size_t count = bytes / sizeof(float);
  std::vector<Memory> all(static_cast<std::size_t>(workers), Memory(count));
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(sync ? 1 : workers),
                                          std::vector<float>(count));
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
      if (sync) {
        together.arrive_and_wait();
        update_by_sum(weights[0].data(), all, begin, std::min(count, begin + share));
        together.arrive_and_wait();
      } else {
        update(weights[static_cast<std::size_t>(rank)].data(), mine.sent.data(),
               mine.received.data(), count);
      }
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
  std::sort(times.begin(), times.end());
  std::printf("{\"seconds\": %.9f, \"exchanges\": %zu}\n", times[times.size() / 2], times.size());
}
