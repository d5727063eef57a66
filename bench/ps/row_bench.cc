// Rows of an embedding table that one worker pulls from a server and pushes back, in two processes.
//
//     bench.rows [--transport shm|tcp] [--rows 10000000] [--width 16] [--share 1] [--steps 10]
//                [--optimizer adagrad]
//
// The table has --rows rows, all of which have been updated once. A step pulls --share percent of them,
// adds a gradient for each into a SparseRows, as a backward pass does, and pushes the sum. Prints a JSON line:
// wall and processor time of a step (of worker and server together, medians), rows pulled and pushed a second
// and a second of processor time, and bytes that travel for a touched row (counted at the socket; with shared
// memory, what is written there).
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/optim/optimizer.h"
#include "trireme/ps/rows/sparse_rows.h"
#include "trireme/ps/server/server.h"
#include "trireme/ps/worker/client.h"

namespace {

using namespace trireme;

struct Options {
  std::string transport = "shm", optimizer = "adagrad";
  std::int64_t rows = 10'000'000, width = 16;
  double share = 1;  // percent
  int steps = 10;
  std::int64_t touched() const {
    return static_cast<std::int64_t>(static_cast<double>(rows) * share / 100);
  }
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (key == "--transport" && (value == "shm" || value == "tcp"))
      options.transport = value;
    else if (key == "--optimizer")
      options.optimizer = value;
    else if (key == "--rows")
      options.rows = std::stoll(value);
    else if (key == "--width")
      options.width = std::stoll(value);
    else if (key == "--share")
      options.share = std::stod(value);
    else if (key == "--steps")
      options.steps = std::stoi(value);
    else
      std::exit((std::fprintf(stderr, "unknown option %s %s\n", key.c_str(), value.c_str()), 2));
  }
  if (options.touched() < 1 || options.touched() > options.rows || options.steps < 1)
    std::exit((std::fprintf(stderr,
                            "--share %g of --rows %lld must be one row to all of them, and "
                            "--steps %d at least 1\n",
                            options.share, static_cast<long long>(options.rows), options.steps),
               2));
  return options;
}

net::ChannelOptions channel_options(const Options& options) {
  net::ChannelOptions channel;
  channel.secret = "bench";
  channel.host = options.transport == "tcp" ? "127.0.0.1" : "";
  channel.max_frame_bytes = std::size_t{1} << 32;
  return channel;
}

double processor_seconds(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Counts what goes over the socket.
class CountingChannel final : public net::Channel {
 public:
  CountingChannel(std::shared_ptr<net::Channel> own, std::uint64_t& bytes)
      : own_(std::move(own)), bytes_(bytes) {}
  const net::Identity& peer() const noexcept override { return own_->peer(); }
  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    count_received();
    bytes_ += sizeof(net::FrameStart) + head.size() + payload.size();
    return own_->send(head, payload);
  }
  Work receive(net::ChannelFrame& frame) override {
    received_ = &frame;
    return own_->receive(frame);
  }
  std::optional<net::SharedArea> share(std::size_t bytes) override { return own_->share(bytes); }
  bool share(net::SharedArea& area) override { return own_->share(area); }
  std::span<std::byte> area_of_peer(std::uint32_t id) override { return own_->area_of_peer(id); }
  void close() override { own_->close(); }

 private:
  void count_received() {
    if (received_ != nullptr)
      bytes_ += sizeof(net::FrameStart) + received_->head().size() + received_->payload().size();
    received_ = nullptr;
  }
  const std::shared_ptr<net::Channel> own_;
  std::uint64_t& bytes_;
  net::ChannelFrame* received_ = nullptr;
};

[[noreturn]] void serve(const Options& options, int address_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto waiter = RealWaiter::make();
  const auto acceptor = net::listen_channels(waiter, channel_options(options));
  const std::string address = acceptor->address();
  if (write(address_pipe, address.data(), address.size()) < 0) _exit(1);
  close(address_pipe);
  ps::ParameterServer(waiter, *acceptor, {}).run([] { return false; });
  _exit(0);
}

class Worker {
 public:
  Worker(const Options& options, const std::string& address, pid_t server)
      : options_(options),
        server_(server),
        waiter_(RealWaiter::make()),
        sum_(static_cast<std::size_t>(options.width)),
        client_(waiter_, settings(options),
                {.worker = 0, .dial = [this, address](int) -> std::shared_ptr<net::Channel> {
                   return std::make_shared<CountingChannel>(
                       net::dial_channel(waiter_, address, channel_options(options_)), bytes_);
                 }}) {
    client_.write(
        0, {ps::SavedText{}.to_text(), std::vector<std::byte>(client_.settings().model.bytes(0))});
    client_.pull();
  }

  void fill_table() {
    constexpr std::int64_t kAtOnce = 200'000;
    for (std::int64_t first = 0; first < options_.rows; first += kAtOnce) {
      ids_.clear();
      for (std::int64_t id = first; id < std::min(first + kAtOnce, options_.rows); ++id)
        ids_.push_back(id);
      push();
    }
  }

  void run() {
    const std::int64_t touched = options_.touched();
    std::vector<double> wall, worker, server;
    std::uint64_t before = 0;
    for (int step = 0; step < options_.steps + 2; ++step) {
      ids_.clear();  // distinct, as the stride and the number of rows have no common divisor
      for (std::int64_t k = 0; k < touched; ++k)
        ids_.push_back((step * 7'654'321 + k * 1'000'003) % options_.rows);
      if (step == 2) before = bytes_;
      const double start = wall_seconds(), own = processor_seconds(getpid()),
                   theirs = processor_seconds(server_);
      rows_.resize(ids_.size() * static_cast<std::size_t>(options_.width));
      client_.pull_rows(0, ids_, rows_.data());
      push();
      if (step < 2) continue;  // areas grow
      wall.push_back(wall_seconds() - start);
      worker.push_back(processor_seconds(getpid()) - own);
      server.push_back(processor_seconds(server_) - theirs);
    }
    report(touched, median(wall), median(worker), median(server),
           static_cast<double>(bytes_ - before) / options_.steps);
  }

 private:
  static ps::Settings settings(const Options& options) {
    return {.model = ps::ServedModel({{.name = "w", .shape = {1024}}}, 1, {},
                                     {{.name = "items", .width = options.width}}),
            .optimizer = optim::optimizer_of(options.optimizer, {.learning_rate = 0.01}),
            .workers = 1,
            .server = {.staleness = -1}};
  }

  void push() {
    rows_.resize(ids_.size() * static_cast<std::size_t>(options_.width), 0.5f);
    sum_.clear();
    sum_.add({ids_, rows_.data()});
    const std::vector<std::vector<ps::RowsView>> terms{{sum_.view()}};
    client_.set_rows(terms);
    const auto dense = client_.gradient(0);
    std::fill(dense.begin(),
              dense.begin() + static_cast<std::ptrdiff_t>(client_.settings().model.bytes(0)),
              std::byte{0});
    if (client_.push(0.01, 1)) std::exit((std::fprintf(stderr, "a push was dropped\n"), 1));
  }

  void report(std::int64_t touched, double wall, double worker, double server, double bytes) const {
    const double rows = 2 * static_cast<double>(touched);
    const double row_bytes = 2.0 * static_cast<double>(8 + 4 * options_.width);  // ids with either
    const bool shared = options_.transport == "shm";
    std::printf("%s\n", nlohmann::json{{"transport", options_.transport},
                                       {"share", options_.share},
                                       {"touched", touched},
                                       {"wall_seconds", wall},
                                       {"worker_seconds", worker},
                                       {"server_seconds", server},
                                       {"rows_a_second", rows / wall},
                                       {"rows_a_core_second", rows / (worker + server)},
                                       {"bytes_a_row",
                                        shared ? row_bytes + bytes / static_cast<double>(touched)
                                               : bytes / static_cast<double>(touched)}}
                            .dump()
                            .c_str());
  }

  const Options options_;
  const pid_t server_;
  const std::shared_ptr<Waiter> waiter_;
  std::uint64_t bytes_ = 0;
  ps::SparseRows sum_;
  ps::ParameterClient client_;
  std::vector<std::int64_t> ids_;
  std::vector<float> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  int pipes[2];
  if (pipe(pipes) != 0) return 1;
  const pid_t server = fork();
  if (server == 0) serve(options, pipes[1]);
  close(pipes[1]);
  std::string address(256, '\0');
  const ssize_t length = read(pipes[0], address.data(), address.size());
  if (length <= 0) return 1;
  address.resize(static_cast<std::size_t>(length));
  {
    Worker worker(options, address, server);
    worker.fill_table();
    worker.run();
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}
