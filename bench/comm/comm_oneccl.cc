// A collective of oneCCL on floats, for each given size, measured as in comm_mpi.c: the median of
// seven batches. Built and started by bench/peers/oneccl.py:
//     bench.comm_oneccl FILE COLLECTIVE SECONDS BYTES...
// BYTES: the whole buffer, all ranks' parts together. FILE: rank 0 writes its address there, the
// others wait for it.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <oneapi/ccl.hpp>
#include <string>
#include <vector>

namespace {

using Step = std::function<void()>;

constexpr int kBatches = 7;

std::size_t number(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) std::exit((std::fprintf(stderr, "start it by Intel MPI's mpirun\n"), 2));
  return std::stoul(text);
}

// Pins every rank to its own core, as the other programs of the table do.
void pin(std::size_t rank) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  std::size_t left = rank % static_cast<std::size_t>(CPU_COUNT(&all)), core = 0;
  while (!CPU_ISSET(core, &all) || left-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

ccl::communicator join(std::size_t rank, std::size_t ranks, const std::string& file) {
  ccl::kvs::address_type address;
  ccl::shared_ptr_class<ccl::kvs> store;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
    std::ofstream(file + ".part").write(address.data(), std::streamsize(address.size()));
    std::rename((file + ".part").c_str(), file.c_str());
  } else {
    while (access(file.c_str(), R_OK) != 0) usleep(1000);
    std::ifstream(file).read(address.data(), std::streamsize(address.size()));
    store = ccl::create_kvs(address);
  }
  return ccl::create_communicator(int(ranks), int(rank), store);
}

// Empty if oneCCL has no such collective.
Step step_of(const std::string& what, float* in, float* out, std::size_t count,
             const ccl::communicator& world) {
  const std::size_t part = count / std::size_t(world.size());
  const ccl::communicator* const group = &world;
  constexpr auto sum = ccl::reduction::sum;
  if (what == "all_reduce") return [=] { ccl::allreduce(out, out, count, sum, *group).wait(); };
  if (what == "reduce") return [=] { ccl::reduce(in, out, count, sum, 0, *group).wait(); };
  if (what == "broadcast") return [=] { ccl::broadcast(out, count, 0, *group).wait(); };
  if (what == "all_to_all") return [=] { ccl::alltoall(in, out, part, *group).wait(); };
  if (what == "reduce_scatter") {
    return [=] { ccl::reduce_scatter(in, out, part, sum, *group).wait(); };
  }
  if (what == "all_gather") {
    const std::vector<std::size_t> parts(std::size_t(world.size()), part);
    return [=] { ccl::allgatherv(in, part, out, parts, *group).wait(); };
  }
  return {};
}

double batch(const Step& step, long calls, const ccl::communicator& world) {
  ccl::barrier(world).wait();
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) step();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double slowest = took.count() / double(calls);  // the slowest rank counts
  ccl::allreduce(&slowest, &slowest, 1, ccl::reduction::max, world).wait();
  return slowest;
}

double measure(const Step& step, double budget, const ccl::communicator& world) {
  batch(step, 2, world);
  const double once = batch(step, 3, world);
  const long calls = std::clamp(long(budget / kBatches / std::max(once, 1e-7)), 1L, 10000L);
  std::vector<double> times(kBatches);
  for (double& one : times) one = batch(step, calls, world);
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return std::fprintf(stderr, "FILE COLLECTIVE SECONDS BYTES...\n"), 2;
  const std::size_t rank = number("PMI_RANK"), ranks = number("PMI_SIZE");
  pin(rank);
  ccl::init();
  const ccl::communicator world = join(rank, ranks, argv[1]);
  std::size_t most = 64;
  for (int i = 4; i < argc; ++i) most = std::max<std::size_t>(most, std::stoul(argv[i]));
  std::vector<float> in(most / 4), out(most / 4);
  for (int i = 4; i < argc; ++i) {
    const std::size_t bytes = std::stoul(argv[i]);
    const Step step = step_of(argv[2], in.data(), out.data(), bytes / 4, world);
    if (!step || bytes < 4 * ranks) continue;
    const double seconds = measure(step, std::atof(argv[3]), world);
    if (rank == 0) std::printf("{\"bytes\": %zu, \"seconds\": %.9f}\n", bytes, seconds);
    std::fflush(stdout);
  }
  ccl::barrier(world).wait();
}
