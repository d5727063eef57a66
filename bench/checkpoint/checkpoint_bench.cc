// The rates of a checkpoint whose tensors are sharded by rows: ranks save it, or load it on another
// number of ranks, beside the rate at which this machine reads the same files.
//
//     trireme launch -n RANKS --only-rank 0 --bind none -- bench.checkpoint save DIR MIB [own]
//     trireme launch -n RANKS --only-rank 0 --bind none -- bench.checkpoint load DIR MIB
//     bench.checkpoint read DIR/step-00000001
//
// save: `own`: every rank writes its own shards; without it they go through rank 0. load and read: the
// files leave the system's cache before. Rank 0 prints a JSON line with seconds (of the slowest rank)
// and bytes.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/job.h"

namespace {

namespace fs = std::filesystem;
using namespace trireme;

constexpr std::int64_t kTensors = 8, kColumns = 1024;

class Rows final : public Saveable {
 public:
  Rows(Job& job, std::int64_t mib) {
    const std::int64_t rows = mib * (1 << 20) / (kTensors * kColumns * 4);
    const std::int64_t first = rows * job.rank() / job.size(),
                       last = rows * (job.rank() + 1) / job.size();
    for (std::int64_t i = 0; i < kTensors; ++i)
      shards_.push_back({"w" + std::to_string(i),
                         DType::F32,
                         {rows, kColumns},
                         first * kColumns,
                         last * kColumns,
                         at::rand({(last - first) * kColumns})});
  }
  std::vector<NamedShard> state() override { return shards_; }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}

 private:
  std::vector<NamedShard> shards_;
};

// Calls visit(descriptor) for each file.
template <class Visit>
void each_file(const std::string& folder, Visit visit) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    visit(file);
    ::close(file);
  }
}

void leave_cache(const std::string& folder) {
  each_file(folder, [](int file) { ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED); });
}

void print(double seconds, double bytes) {
  std::printf("{\"seconds\": %.4f, \"bytes\": %.0f}\n", seconds, bytes);
}

template <class Work>
double seconds_of(Work work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return to_seconds(std::chrono::steady_clock::now() - began);
}

int read_files(const std::string& folder) {
  leave_cache(folder);
  std::vector<char> memory(8 << 20);
  double bytes = 0;
  const double seconds = seconds_of([&] {
    each_file(folder, [&](int file) {
      while (true) {
        const ssize_t count = ::read(file, memory.data(), memory.size());
        if (count <= 0) break;
        bytes += static_cast<double>(count);
      }
    });
  });
  print(seconds, bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "read" && argc > 2) return read_files(argv[2]);
  if ((what != "save" && what != "load") || argc < 4) {
    std::fprintf(stderr, "bench.checkpoint save DIR MIB [own] | load DIR MIB | read DIR\n");
    return 2;
  }
  const bool own = argc > 4 && std::string(argv[4]) == "own";
  const std::int64_t mib = std::atoll(argv[3]);
  Job job(argc, argv);
  Rows rows(job, mib);
  CheckpointerOptions options{.every = 0, .keep = 1};
  options.own_file_bytes = own ? 1 : std::numeric_limits<std::size_t>::max();
  Checkpointer checkpointer(job, argv[2], options);
  checkpointer.add("train", rows);
  if (what == "load" && job.rank() == 0) leave_cache(argv[2]);
  job.world().barrier().wait();
  const double seconds = seconds_of([&] {
    what == "save" ? checkpointer.save_and_wait(1) : static_cast<void>(checkpointer.resume());
    job.world().barrier().wait();
  });
  if (job.rank() == 0) print(seconds, static_cast<double>(mib) * (1 << 20));
  return 0;
}
