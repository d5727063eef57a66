#include "trireme/rendezvous/launchers/mpi_meeting.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/mpi/mpi_library.h"
#include "trireme/rendezvous/own_address.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::rendezvous {
namespace {

std::pair<std::string, std::string> cut(const std::string& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  return {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
}

std::string make_secret() {
  const auto file = process_environment("TRIREME_JOB_SECRET_FILE");
  if (file && !file->empty()) return read_secret_file(*file);
  return random_bytes(kSecretBytes);
}

void check_size(const net::MpiGroup& group, const RankEnvironment& env) {
  if (env.launcher.empty() || group.size() == env.size) return;
  throw ConfigError(
      env.launcher + " started " + std::to_string(env.size) + " processes, but " +
          std::to_string(group.size()) + " joined through " + net::mpi_description(),
      {.operation = "join",
       .advice =
           "Start it by the mpirun of that MPI or by `trireme launch`, or rebuild the library "
           "for yours: make mpi MPICC=mpicc"});
}

}  // namespace

MpiMeeting::MpiMeeting(const void* communicator, RankEnvironment& env, const std::string& host,
                       Waiter& waiter, Duration timeout, const std::string& interface)
    : communicator_(communicator) {
  net::MpiGroup group(communicator);
  if (!communicator) check_size(group, env);
  env.rank = group.rank();
  env.size = group.size();
  const auto places = group.exchange(waiter, host + "\n" + std::to_string(getpid()), timeout);
  std::string news;
  if (env.rank == 0) {
    keep_coordinator(places, host, interface);
    news = coordinator_->endpoint() + "\n" + secret_;
  }
  std::tie(env.coordinator, secret_) = cut(group.exchange(waiter, news, timeout).front());
  env.job = "mpi";
  group.set_clean();
}

void MpiMeeting::keep_coordinator(const std::vector<std::string>& places, const std::string& host,
                                  const std::string& interface) {
  const bool one_host = std::all_of(places.begin(), places.end(),
                                    [&](const auto& place) { return cut(place).first == host; });
  secret_ = make_secret();
  coordinator_ = std::make_unique<Coordinator>(CoordinatorOptions{
      .roles = {.workers = static_cast<int>(places.size())},
      .address = one_host ? own_address("127.0.0.1:1", {}) : address_for_others({}, interface),
      .secret = secret_,
      .job = "mpi",
      .lost_with_stream = true});
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto [name, pid] = cut(places[rank]);
    if (name == host) coordinator_->set_process(static_cast<int>(rank), std::stoi(pid));
  }
}

std::shared_ptr<net::Transport> MpiMeeting::connect(std::shared_ptr<Waiter> waiter) const {
  return net::connect_mpi(std::move(waiter), std::make_unique<net::MpiGroup>(communicator_));
}

void MpiMeeting::stay(Waiter& waiter, Duration timeout) const {
  while (coordinator_ && coordinator_->awaits_workers(timeout)) {
    waiter.sleep(std::chrono::milliseconds(2));
  }
}

void meet_under_mpirun(const RankEnvironment& env) {
  net::MpiGroup group;
  check_size(group, env);
  group.set_clean();
}

std::vector<std::string> exchange_under_mpirun(const std::string& mine) {
  const auto waiter = RealWaiter::make();
  net::MpiGroup group;
  auto all = group.exchange(*waiter, mine, std::chrono::minutes(30));
  group.set_clean();
  return all;
}

}  // namespace trireme::inline v0::rendezvous
