#include "trireme/launch/hosts/job_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/own_address.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {
namespace {

// Variables of this host alone, and of the outer job if this process belongs to one.
constexpr std::array<std::string_view, 9> kOwnVariables = {
    "TRIREME_ADDRESS=",   "TRIREME_HOST=",        "TRIREME_JOB_SECRET_FILE=",
    "TRIREME_SSH=",       "TRIREME_COORDINATOR=", "TRIREME_SECRET_FD=",
    "TRIREME_STATUS_FD=", "TRIREME_CORES=",       "TRIREME_SHARED_CORES="};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The variables of this process's environment that processes on other hosts get: Trireme's own and
// those that the user names.
std::vector<std::string> exported_variables(const std::vector<std::string>& named) {
  std::vector<std::string> result;
  for (const std::string& one : own_environment()) {
    const auto is = [&](std::string_view name) { return one.starts_with(name); };
    const bool wanted =
        std::ranges::any_of(named, [&](const std::string& name) { return is(name + "="); });
    const bool own = std::ranges::any_of(kOwnVariables, is);
    if (wanted || ((is("TRIREME_") || is("OMP_NUM_THREADS=")) && !own)) result.push_back(one);
  }
  return result;
}

std::string working_folder() {
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  if (error)
    throw ConfigError("the working folder has no path: " + error.message(),
                      {.operation = "launch", .advice = "Change to one that is there."});
  return folder.string();
}

}  // namespace

JobHosts::JobHosts(const LaunchOptions& options)
    : options_(options), roles_(options.roles()), several_(!options.elsewhere.hosts.empty()) {
  slots_ = several_ ? options.elsewhere.hosts
                    : std::vector<HostSlots>{{"localhost", std::max(roles_.workers, 1)}};
  places_ = place_processes(roles_, slots_);
  for (const HostSlots& host : slots_) elsewhere_.push_back(!is_this_host(host.name));
}

int JobHosts::local_processes() const noexcept {
  return static_cast<int>(std::ranges::count_if(
      places_, [&](int host) { return !elsewhere_[static_cast<std::size_t>(host)]; }));
}

std::string JobHosts::describe() const {
  return several_ ? describe_places(roles_, slots_, places_) : std::string();
}

int JobHosts::processes_on(std::size_t host) const {
  return static_cast<int>(std::ranges::count(places_, static_cast<int>(host)));
}

// Another host reaches the coordinator at the address from which it sees ssh come, unless the user
// chose an address or an interface.
HostSetup JobHosts::setup_for(std::size_t host, const std::string& secret,
                              const std::string& endpoint) const {
  const std::uint16_t port = net::parse_endpoint(endpoint).value().port;
  const std::string interface = variable("TRIREME_COMM_INTERFACE");
  const bool chosen = !interface.empty() || !variable("TRIREME_ADDRESS").empty();
  const std::string fallback = net::to_string(
      {rendezvous::address_for_others(host_without_user(slots_[host].name), interface), port});
  const std::string& shared = options_.elsewhere.shared_file;
  return {.version = std::string(rendezvous::kWireVersion),
          .folder = working_folder(),
          .secret = secret,
          .coordinator = chosen ? fallback : "ssh:" + std::to_string(port),
          .fallback = fallback,
          .connection = variable("SSH_CONNECTION"),
          .shared_file = shared,
          .shared_proof = shared.empty() ? std::string() : proof_of_file(shared),
          .processes = processes_on(host),
          .bind = static_cast<int>(options_.bind)};
}

void JobHosts::prepare(const std::string& secret, const std::string& endpoint) {
  coordinator_ = endpoint;
  for (std::size_t host = 0; host < slots_.size(); ++host) {
    const bool reached = elsewhere_[host] && processes_on(host) > 0;
    setups_.push_back(reached ? setup_for(host, secret, endpoint) : HostSetup{.secret = secret});
  }
}

void JobHosts::open(Waiter& waiter, Guard& guard, const HostEvents& events) {
  for (std::size_t host = 0; host < slots_.size(); ++host) {
    if (processes_on(host) == 0) {
      hosts_.push_back(nullptr);
    } else if (elsewhere_[host]) {
      remote_.push_back(
          std::make_shared<RemoteHost>(waiter, guard,
                                       RemoteHostOptions{.name = slots_[host].name,
                                                         .agent = options_.elsewhere.agent,
                                                         .setup = setups_[host],
                                                         .patience = options_.elsewhere.patience},
                                       events));
      hosts_.push_back(remote_.back());
    } else {
      if (!local_)
        local_ = std::make_shared<LocalHost>(waiter, guard,
                                             LocalHostOptions{.secret = setups_[host].secret,
                                                              .processes = local_processes(),
                                                              .bind = options_.bind},
                                             events);
      hosts_.push_back(local_);
    }
  }
}

bool JobHosts::decided() const {
  return std::ranges::all_of(remote_, [](const auto& one) { return one->decided(); });
}

// Processes of this host tell others their addresses, so they use an address of the coordinator
// that others reach, too.
void JobHosts::check() {
  std::vector<ErrorReport> refusals;
  for (const auto& host : remote_)
    if (auto refusal = host->refusal()) refusals.push_back(*std::move(refusal));
  if (refusals.empty()) {
    if (!remote_.empty()) coordinator_ = remote_.front()->coordinator();
    return;
  }
  throw_error(static_cast<ExitCode>(refusals.front().exit_code),
              joined(refusals, &ErrorReport::sentence, "; "),
              {.operation = "launch",
               .advice = "Nothing was started. Each host must be reached by `ssh HOST` without a "
                         "password and have the same Trireme at the same path."});
}

void JobHosts::close() {
  for (const auto& host : remote_) host->close();
}

void JobHosts::kill_connections() {
  for (const auto& host : remote_) host->kill_connection();
}

void JobHosts::drop_connection(int process) {
  for (const auto& host : remote_)
    if (host == hosts_[index_of(process)]) host->kill_connection();
}

void JobHosts::end_attempts() {
  for (const auto& host : remote_) host->end_attempt();
}

bool JobHosts::closed() const {
  return std::ranges::all_of(remote_, [](const auto& one) { return one->ended(); });
}

std::string JobHosts::name_of(int process) const {
  return several_ ? host_without_user(slots_[index_of(process)].name) : std::string();
}

int JobHosts::like(int process, int end) const {
  int count = 0;
  for (int other = 0; other < end; ++other)
    count +=
        roles_.role_of(other) == roles_.role_of(process) && index_of(other) == index_of(process);
  return count;
}

std::vector<std::string> JobHosts::environment_of(int process,
                                                  std::vector<std::string> common) const {
  add_variable(common, "TRIREME_LOCAL_RANK=" + std::to_string(like(process, process)));
  add_variable(common, "TRIREME_LOCAL_SIZE=" + std::to_string(like(process, roles_.processes())));
  if (several_) add_variable(common, "TRIREME_HOST=" + name_of(process));
  if (is_local(process)) {
    add_variable(common, "TRIREME_COORDINATOR=" + coordinator_);
    return common;
  }
  std::vector<std::string> result = options_.elsewhere.environment;
  for (const std::string& entry : common) add_variable(result, entry);
  for (const std::string& entry : exported_variables(options_.elsewhere.exported))
    add_variable(result, entry);
  return result;
}

}  // namespace trireme::inline v0::launch
