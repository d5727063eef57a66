#include "trireme/launch/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/base/waiter/in_context.h"
#include "trireme/launch/coordinator/kept_coordinator.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/launch/output.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {
namespace {

// A child process of a rank may keep its pipe open.
constexpr Duration kOutputGrace = std::chrono::milliseconds(300);
// Other hosts end within this time after the request.
constexpr Duration kHostGrace = std::chrono::seconds(3);
constexpr Duration kLook = std::chrono::milliseconds(100);

const LaunchOptions& checked(const LaunchOptions& options) {
  if (options.ranks >= 1 && options.servers >= 0 && !options.command.empty()) return options;
  throw ConfigError(
      "needs at least one rank and a program",
      {.operation = "launch", .advice = "For example: trireme launch -n 2 -- ./program"});
}

bool is_readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace

class Supervisor::Starter final : public ProgressSource {
 public:
  explicit Starter(Supervisor& supervisor) : supervisor_(supervisor) {}
  bool poll() override {
    const bool moved = supervisor_.starter_.start_next(!supervisor_.stop_.begun());
    if (supervisor_.starter_.error()) supervisor_.stop_.on_failed_start();
    return moved;
  }
  bool pending() const noexcept override { return false; }
  int descriptor() const noexcept override { return -1; }
  void arm(bool) noexcept override {}

 private:
  Supervisor& supervisor_;
};

Supervisor::Supervisor(const LaunchOptions& options)
    : options_(checked(options)),
      host_(observe::host_name()),
      roles_(options.roles()),
      hosts_(options),
      secret_(make_secret()),
      restarts_left_(options.restarts),
      job_{options_, hosts_},
      processes_(job_),
      starter_(job_, processes_,
               [this](int process, const std::string& how) { not_started_again(process, how); }),
      stop_(job_, processes_, [this] { stop_restarting(); }),
      workers_(job_, processes_, starter_, stop_, [this] { finish(); }) {
  if (options.elastic) elastic_.emplace(job_, processes_, starter_, stop_, workers_);
  if (hosts_.local_processes() > 0) find_program(options.command.front());
  outlive_readers();
  output_ = std::make_unique<Output>(options);
  if (options.handle_signals) blocked_.emplace();
  waiter_ = RealWaiter::make(Duration::zero());
  job_.waiter = waiter_.get();
  if (blocked_) {  // at once, so that signals are handled during everything below
    signals_ = std::make_shared<SignalSource>(*blocked_, [this](int one) { stop_.on_signal(one); });
    output_->give_up_at(signals_->descriptor());
    waiter_->add(signals_);
  }
  auto coordinator = make_coordinator(options.listen);
  in_context(waiter_, [&] {
    coordinator_ = std::move(coordinator);
    job_.coordinator = coordinator_.get();
  });
}

// For several hosts, the coordinator listens on all addresses, of IPv6 too if the system has it.
std::unique_ptr<rendezvous::JobControl> Supervisor::make_coordinator(const std::string& address) {
  if (hosts_.elsewhere() && address != "::" && address != "0.0.0.0")
    return rendezvous::on_all_addresses([&](const char* all) { return make_coordinator(all); });
  // Never at once: a coordinator's thread must not wait for the coordinator.
  const auto post = [this](auto task) { waiter_->run_at(waiter_->now(), std::move(task)); };
  rendezvous::CoordinatorOptions options{
      .roles = roles_,
      .address = address,
      .secret = secret_,
      .job = std::to_string(getpid()),
      .elastic = elastic_ ? std::optional(elastic_->epoch()) : std::nullopt,
      .on_failure =
          [this, post](const rendezvous::Failure& one) { post([=, this] { on_reported(one); }); },
      .on_server_lost = [this, post](int server) { post([=, this] { end_server(server); }); },
      .on_new_copy = [this, post](int shard,
                                  int server) { post([=, this] { report_copy(shard, server); }); },
      .on_joined = [this, post](int process) { post([=, this] { elastic_->joined(process); }); },
      // The watch for silence does not know the job's own timeout.
      .heartbeat =
          elastic_ ? options_.elastic->silence / rendezvous::kSilentHeartbeats : Duration::zero(),
  };
  if (options_.store.empty()) return std::make_unique<rendezvous::Coordinator>(std::move(options));
  options.returns_within = options.store_patience;
  return std::make_unique<KeptCoordinator>(
      std::move(options),
      KeptOptions{
          .command = options_.coordinator,
          .store = options_.store,
          .interrupted = [this] { return signals_ && is_readable(signals_->descriptor()); },
          .on_lost = [this,
                      post](const rendezvous::Failure& one) { post([=, this] { fail(one); }); }});
}

Supervisor::~Supervisor() {
  // Ranks are left only if starting has failed half-way.
  waiter_->run([this] { processes_.signal_all(SIGKILL); });
  waiter_->wait_until([this] { return all_ended(); }, waiter_->now() + std::chrono::seconds(5));
  close_hosts();
  if (signals_) waiter_->remove(signals_.get());
  blocked_.reset();       // from here on a signal ends this process
  coordinator_->close();  // its callbacks use the waiter
  waiter_.reset();        // its sources and timers use all other members
}

// On loopback or through ssh, ranks get a new secret; on other addresses the user must give one.
std::string Supervisor::make_secret() const {
  const char* file = std::getenv("TRIREME_JOB_SECRET_FILE");
  if (file && *file != '\0') return rendezvous::read_secret_file(file);
  return hosts_.elsewhere() || net::is_loopback(options_.listen)
             ? rendezvous::random_bytes(rendezvous::kSecretBytes)
             : std::string();
}

LaunchResult Supervisor::run() {
  if (options_.time_limit != Duration::max()) {
    waiter_->run_at(waiter_->now() + options_.time_limit, [this] {
      if (!all_ended()) stop_.on_time_limit();
    });
  }
  open_hosts();
  if (elastic_ || options_.range) in_context(waiter_, [this] { watch(); });
  starter_.begin();
  const auto starter = std::make_shared<Starter>(*this);
  waiter_->add(starter);
  waiter_->wait_until([this] { return all_ended(); }, TimePoint::max());
  waiter_->remove(starter.get());
  waiter_->wait_until([this] { return hosts_.output_finished(); }, waiter_->now() + kOutputGrace);
  close_hosts();
  LaunchResult last;
  in_context(waiter_, [&] {
    if (!starter_.error())
      last = stop_.result(starter_.has_started_all(), coordinator_->first_failure());
  });
  if (starter_.error()) std::rethrow_exception(starter_.error());
  return last;
}

// All hosts answer before the first process is started.
void Supervisor::open_hosts() {
  if (hosts_.several()) say(hosts_.describe());
  const HostEvents events{
      .on_line = [this](int rank, bool error,
                        std::string_view line) { output_->line(rank, error, line); },
      .on_start = [this](int rank, pid_t pid) { on_start(rank, pid); },
      .on_end = [this](int rank, const Ending& ending) { on_exit(rank, ending); }};
  hosts_.prepare(secret_, coordinator_->endpoint());
  in_context(waiter_, [&] { hosts_.open(*waiter_, guard_, events); });
  waiter_->wait_until([this] { return hosts_.decided() || stop_.first_signal() != 0; },
                      waiter_->now() + options_.elsewhere.patience);
  in_context(waiter_, [&] {
    if (stop_.first_signal() == 0) hosts_.check();
  });
}

void Supervisor::close_hosts() {
  in_context(waiter_, [this] { hosts_.close(); });
  const auto closed = [this] { return hosts_.closed(); };
  if (waiter_->wait_until(closed, waiter_->now() + kHostGrace)) return;
  in_context(waiter_, [this] { hosts_.kill_connections(); });
  waiter_->wait_until(closed, waiter_->now() + kHostGrace);
}

void Supervisor::on_start(int rank, pid_t pid) {
  processes_.note_start(rank);
  coordinator_->set_process(rank, pid);
  if (options_.on_start && pid > 0) options_.on_start(rank, pid);
}

void Supervisor::stop_restarting() {
  for (const int process : starter_.stop_restarting())
    if (!elastic_ && !workers_.finished()) workers_.do_without(process);
  if (elastic_) hosts_.end_attempts();
  waiter_->wake();
}

void Supervisor::watch() {
  if (stop_.failed() || workers_.finished()) return;
  if (elastic_) elastic_->end_silent();
  read_wanted();
  if (options_.range) workers_.resize();
  job_.run_after(kLook, [this] { watch(); });
}

void Supervisor::read_wanted() {
  if (options_.wanted_file.empty()) return;
  std::error_code none;
  const auto written = std::filesystem::last_write_time(options_.wanted_file, none);
  std::string text;
  if (!std::getline(std::ifstream(options_.wanted_file), text) || text.empty()) return;
  if (std::pair wanted(text, written); std::exchange(wanted_, wanted) == wanted) return;
  int wanted = 0;
  std::istringstream words(text);
  if (!(words >> wanted) || !(words >> std::ws).eof())
    return say(options_.wanted_file + " says \"" + text + "\", which is no number of ranks.");
  if (elastic_) return elastic_->resize(wanted);
  workers_.want(wanted);
}

}  // namespace trireme::inline v0::launch
