// Pushes and pulls of workers against parameter servers: processes that run the production client and
// server, over shared memory or TCP.
//
//     trireme launch --workers W --servers S --bind none -- bench.servers [--mode async|sync]
//             [--transport shm|tcp] [--bytes 67108864] [--optimizer sgd|momentum|adamw] [--seconds 2]
//             [--staleness -1] [--predict] [--copies] [--check] [--work MS,MS,...] [--hiccup 0] [--spin] [--memory]
//
// An exchange begins with a gradient in the memory that the client gives for it, and ends with new
// weights in memory that the worker can use; with --copies it begins and ends in other memory of the
// worker's. In mode async a worker also waits while a server serves another. Workers say that their
// gradients are finite, as those of trainings do, who have looked; with --check the server looks.
//
// --work: milliseconds that each worker works between two exchanges: it sleeps, as if a device
// computed, or with --spin keeps a core busy. --hiccup: the share of steps (by chance, alike in every
// run) in which a worker's work takes 5 times as long. Each worker prints a JSON line: exchanges, their
// median seconds, exchanges a second, the share of the time that it worked, and with --memory the
// growth of its resident memory and of the servers' from a tenth of the time to its end.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/job/job.h"
#include "trireme/job/job_servers.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/net/channel.h"
#include "trireme/ps/server/serve.h"
#include "trireme/ps/worker/client.h"

namespace {

using namespace trireme;
using Seconds = std::chrono::duration<double>;

struct Options {
  bool sync = false, tcp = false, predict = false, copies = false, memory = false, check = false;
  std::size_t bytes = 64 << 20;
  std::string optimizer = "sgd";
  double seconds = 2;
  std::int64_t staleness = -1;
  std::vector<double> work;  // milliseconds, by worker
  double hiccup = 0;
  bool spin = false;
};

// Whether `value` is the second of two words.
bool one_of(const std::string& first, const std::string& second, const std::string& value) {
  if (value != first && value != second)
    std::exit((std::fprintf(stderr, "'%s' is neither %s nor %s\n", value.c_str(), first.c_str(),
                            second.c_str()),
               2));
  return value == second;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (key == "--mode") {
      options.sync = one_of("async", "sync", value());
    } else if (key == "--transport") {
      options.tcp = one_of("shm", "tcp", value());
    } else if (key == "--bytes") {
      options.bytes = std::stoul(value());
    } else if (key == "--optimizer") {
      options.optimizer = value();
    } else if (key == "--seconds") {
      options.seconds = std::stod(value());
    } else if (key == "--staleness") {
      options.staleness = std::stol(value());
    } else if (key == "--hiccup") {
      options.hiccup = std::stod(value());
    } else if (key == "--spin") {
      options.spin = true;
    } else if (key == "--predict") {
      options.predict = true;
    } else if (key == "--copies") {
      options.copies = true;
    } else if (key == "--check") {
      options.check = true;
    } else if (key == "--memory") {
      options.memory = true;
    } else if (key == "--work") {
      std::istringstream text(value());
      for (std::string one; std::getline(text, one, ',');) options.work.push_back(std::stod(one));
    } else {
      std::exit((std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2));
    }
  }
  if (options.sync) options.staleness = 0;
  return options;
}

// Processes on different hosts meet over TCP. They learn where they are from this variable.
void pretend_hosts() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string host = variable("TRIREME_ROLE") + variable("TRIREME_RANK");
  setenv("TRIREME_HOST", host.c_str(), 1);
}

ps::Settings settings_of(const Options& options, const Job& job) {
  const auto count = static_cast<std::int64_t>(options.bytes / sizeof(float));
  OptimizerOptions optimizer = Sgd{.learning_rate = 1e-3};
  if (options.optimizer == "momentum") optimizer = Sgd{.learning_rate = 1e-3, .momentum = 0.9};
  if (options.optimizer == "adamw") optimizer = AdamW{.learning_rate = 1e-3};
  return {.model = ps::ServedModel({{"weight", {count}, DType::F32, true}}, job.roles().servers),
          .optimizer = optimizer,
          .workers = job.roles().workers,
          .server = {.staleness = options.staleness, .prediction = options.predict}};
}

class Worker {
 public:
  Worker(Job& job, const Options& options)
      : job_(job),
        options_(options),
        client_(job.waiter(), settings_of(options, job),
                {.worker = job.rank(),
                 .dial = [&job](int server) { return job.servers().dial_shard(server); }}) {
    if (job.rank() == 0)
      for (int server = 0; server < client_.servers(); ++server)
        client_.write(server, client_.read(server));
    client_.pull();
    for (int server = 0; server < client_.servers(); ++server) {
      gradients_.emplace_back(client_.settings().model.bytes(server) / sizeof(float), 1e-6f);
      weights_.emplace_back(gradients_.back().size());
    }
  }

  void run() {
    for (int i = 0; i < 3; ++i) exchange();
    job_.world().barrier().wait();
    const TimePoint start = job_.waiter()->now();
    long resident = 0;
    for (TimePoint now = start; more(now - start);) {
      work();
      const TimePoint before = job_.waiter()->now();
      exchange();
      now = job_.waiter()->now();
      times_.push_back(Seconds(now - before).count());
      if (resident == 0 && Seconds(now - start).count() > options_.seconds / 10)
        resident = all_resident();
    }
    const double took = Seconds(job_.waiter()->now() - start).count();
    print(took, all_resident() - resident);
  }

 private:
  // Synchronous workers must agree on the last exchange.
  bool more(Duration passed) {
    double longest = Seconds(passed).count();
    if (options_.sync)
      job_.world().all_reduce(Buffer::of(std::span(&longest, 1)), Max, {.label = "time"}).wait();
    return longest < options_.seconds || times_.empty();
  }

  void work() {
    const auto rank = static_cast<std::size_t>(job_.rank());
    if (rank >= options_.work.size()) return;
    double seconds = options_.work[rank] / 1000;
    if (std::uniform_real_distribution<double>(0, 1)(random_) < options_.hiccup) seconds *= 5;
    const auto time = std::chrono::duration_cast<Duration>(Seconds(seconds));
    worked_ += time;
    if (!options_.spin) return job_.waiter()->sleep(time);
    for (const TimePoint end = job_.waiter()->now() + time; job_.waiter()->now() < end;) {
    }
  }

  void exchange() {
    for (int server = 0; server < client_.servers(); ++server) {
      const auto& own = gradients_[static_cast<std::size_t>(server)];
      if (options_.copies || !filled_)
        std::memcpy(client_.gradient(server).data(), own.data(), own.size() * sizeof(float));
    }
    filled_ = true;
    if (options_.sync) {
      const auto rank = static_cast<std::uint32_t>(job_.rank());
      client_.sum({{rank, 1}}, static_cast<std::uint32_t>(job_.roles().workers));
      client_.commit(1e-3, 1);
    } else {
      client_.push(1e-3, 1, /*finite=*/!options_.check);
    }
    for (int server = 0; options_.copies && server < client_.servers(); ++server) {
      auto& own = weights_[static_cast<std::size_t>(server)];
      std::memcpy(own.data(), client_.weights(server).data(), own.size() * sizeof(float));
    }
  }

  // Bytes of this process, and of the servers, which have the same parent.
  static long resident_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/statm");
    long total = 0, resident = 0;
    file >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }
  static long all_resident() {
    long sum = resident_of(getpid());
    std::ifstream file("/proc/" + std::to_string(getppid()) + "/task/" + std::to_string(getppid()) +
                       "/children");
    for (pid_t child = 0; file >> child;) {
      std::ifstream environment("/proc/" + std::to_string(child) + "/environ");
      std::string text(std::istreambuf_iterator<char>(environment), {});
      if (text.find("TRIREME_ROLE=server") != std::string::npos) sum += resident_of(child);
    }
    return sum;
  }

  void print(double took, long grown) {
    std::sort(times_.begin(), times_.end());
    std::printf(
        "{\"worker\": %d, \"exchanges\": %zu, \"median_seconds\": %.9f, \"longest_seconds\": %.6f, "
        "\"per_second\": %.3f, \"worked\": %.4f, \"grown_bytes\": %ld}\n",
        job_.rank(), times_.size(), times_[times_.size() / 2], times_.back(),
        static_cast<double>(times_.size()) / took, Seconds(worked_).count() / took,
        options_.memory ? grown : 0L);
    std::fflush(stdout);
  }

  Job& job_;
  const Options& options_;
  ps::ParameterClient client_;
  std::vector<std::vector<float>> gradients_, weights_;  // this worker's own, by server
  std::mt19937 random_{static_cast<unsigned>(job_.rank())};
  Duration worked_{};
  std::vector<double> times_;
  bool filled_ = false;  // the client's memory has the gradient
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.tcp) pretend_hosts();
  Job job(argc, argv);
  if (job.role() == Role::Server) return serve(job);
  Worker(job, options).run();
  return 0;
}
