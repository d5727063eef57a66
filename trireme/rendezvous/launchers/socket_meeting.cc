#include "trireme/rendezvous/launchers/socket_meeting.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/hex.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/own_address.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr std::size_t kMostBytes = 256;  // in the responder's answer
constexpr int kPorts = 16;
constexpr Duration kAskAgain = std::chrono::milliseconds(20);
constexpr Duration kSearchAgain = 5 * kAskAgain, kSearchSeldom = std::chrono::seconds(1);

// The n-th meeting of this process is the n-th meeting of all others.
std::atomic<int> meetings{0};

// The function that skip_meeting() was given; may be empty.
std::function<bool()>& training_is_over() {
  static std::function<bool()> one;
  return one;
}

std::string name_of_this_one(const RankEnvironment& env) {
  return env.meeting->name + " " + std::to_string(meetings++);
}

// The place's own port first. Then ports that other programs rarely use, below the range from which
// systems assign ports.
std::uint16_t port_of(const MeetingPlace& place, const std::string& name, int attempt) {
  if (attempt == 0 && place.port != 0) return place.port;
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char letter : name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  return static_cast<std::uint16_t>(15000 +
                                    (hash + static_cast<std::uint64_t>(attempt) * 997) % 15000);
}

// A name of fixed length, whatever the length of the start's name.
std::string unix_name(const std::string& name) {
  const std::string proof = prove("meeting", {name}).substr(0, 16);
  return "trireme-" + std::to_string(geteuid()) + "-" + to_hex(std::as_bytes(std::span(proof)));
}

// The secret of this start, derived from the user's: other starts' coordinators do not match.
std::string secret_for(const RankEnvironment& env, const std::string& name) {
  if (env.secret_file.empty()) {
    throw ConfigError("ranks that " + env.launcher + " started on several hosts need a job secret",
                      {.rank = env.rank,
                       .operation = "join",
                       .advice = "Set TRIREME_JOB_SECRET_FILE to a file that only you may read, on "
                                 "every host."});
  }
  return prove(read_secret_file(env.secret_file), {"start", name});
}

[[noreturn]] void nobody_came(const RankEnvironment& env, Duration timeout, bool is_over) {
  if (is_over)
    throw PeerLost(
        "the training has ended, and rank 0 is gone",
        {.rank = env.rank, .operation = "join", .peer = 0, .advice = "Nothing is left to join."});
  throw TimeoutError(
      "rank 0 did not come to the meeting of " + env.meeting->name + " within " +
          std::to_string(std::chrono::round<std::chrono::seconds>(timeout).count()) + " s",
      {.rank = env.rank,
       .operation = "join",
       .peer = 0,
       .advice = "See rank 0's own last lines, that it runs on " + env.meeting->host +
                 ", and that TRIREME_JOB_SECRET_FILE has the same content on all hosts." +
                 (env.meeting->admits_evaluator
                      ? " A pod of a TFJob that is started again gets back into the job only if "
                        "TRIREME_ELASTIC is set in all its pods."
                      : "")});
}

}  // namespace

// Answers every caller that states its rank with the coordinator's address and the secret.
class SocketMeeting::Responder final : public ProgressSource {
 public:
  Responder(const std::string& name, int ranks, std::string answer, Coordinator& coordinator)
      : size_(ranks),
        listener_(net::listen_unix(name)),
        answer_(std::move(answer)),
        coordinator_(coordinator) {
    all_.control(EPOLL_CTL_ADD, listener_.socket.get(), EPOLLIN);
  }
  bool poll() override {
    try {
      while (Descriptor guest = net::accept_now(listener_)) {
        all_.control(EPOLL_CTL_ADD, guest.get(), EPOLLIN);
        guests_.push_back(std::move(guest));
      }
    } catch (const Error&) {  // no descriptor is left: the caller tries again
    }
    return std::erase_if(guests_, [this](const auto& guest) { return served(guest.get()); }) > 0;
  }
  bool pending() const noexcept override { return true; }
  int descriptor() const noexcept override { return all_.get(); }
  void arm(bool) noexcept override {}

 private:
  // True if the guest has its answer or is gone.
  bool served(int guest) {
    std::int32_t rank = 0;
    const ssize_t got = recv(guest, &rank, sizeof rank, MSG_DONTWAIT);
    if (got < 0 && net::would_block()) return false;
    if (got != sizeof rank) return true;
    ucred who{};
    socklen_t size = sizeof who;
    const bool known = getsockopt(guest, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    if (known && who.pid > 0 && rank > 0 && rank < size_) coordinator_.set_process(rank, who.pid);
    (void)!send(guest, answer_.data(), answer_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
  }

  const int size_;
  const net::Listener listener_;
  const std::string answer_;
  Coordinator& coordinator_;
  const net::Epoll all_;  // the listener and the guests
  std::vector<Descriptor> guests_;
};

// The time in which a process looks for rank 0.
class SocketMeeting::Wait {
 public:
  Wait(Waiter& waiter, Duration timeout) : waiter_(waiter), deadline_(waiter.now() + timeout) {}

  TimePoint deadline() const noexcept { return deadline_; }
  bool is_over() const noexcept { return is_over_; }
  /// Waits between two tries. False if there is no further try.
  bool pause(Duration pause) {
    is_over_ = training_is_over() && training_is_over()();
    if (is_over_ || waiter_.now() >= deadline_) return false;
    waiter_.sleep(pause);
    return true;
  }

 private:
  Waiter& waiter_;
  const TimePoint deadline_;
  bool is_over_ = false;
};

SocketMeeting::SocketMeeting(RankEnvironment& env, const std::shared_ptr<Waiter>& waiter,
                             Duration timeout, const std::string& interface)
    : waiter_(waiter) {
  const std::string name = name_of_this_one(env);
  env.job = name;
  Wait wait(*waiter, timeout);
  if (env.process() == 0) {
    env.meeting->one_host ? open_on_one_host(env, name) : open_to_all(env, name);
    const auto endpoint = net::parse_endpoint(coordinator_->endpoint()).value();
    const bool any = !net::is_loopback(endpoint.host);
    env.coordinator = net::to_string(
        {any ? address_for_others(env.meeting->host, interface) : endpoint.host, endpoint.port});
    coordinator_->set_process(0, getpid());
  } else {
    const std::string place =
        env.meeting->one_host
            ? "on this host"
            : "at " + net::to_string({env.meeting->host, port_of(*env.meeting, name, 0)});
    std::optional<observe::WaitNotice> notice;
    if (env.local_rank <= 1)  // one per host is enough
      notice.emplace(*waiter, env.roles().name_of(env.process()),
                     [&] { return "rank 0 " + place; });
    env.meeting->one_host ? ask_on_this_host(env, name, wait) : search(env, name, wait);
  }
  if (env.coordinator.empty()) nobody_came(env, timeout, wait.is_over());
}

SocketMeeting::~SocketMeeting() {
  if (responder_) waiter_->remove(responder_.get());
}

CoordinatorOptions SocketMeeting::options_for(const RankEnvironment& env,
                                              const std::string& name) const {
  Roles roles = env.roles();
  roles.evaluator = roles.evaluator || env.meeting->admits_evaluator;
  return {.roles = roles, .secret = secret_, .job = name, .lost_with_stream = true};
}

void SocketMeeting::open_on_one_host(const RankEnvironment& env, const std::string& name) {
  secret_ = env.secret_file.empty() ? random_bytes(kSecretBytes) : secret_for(env, name);
  const CoordinatorOptions options = options_for(env, name);
  coordinator_ = std::make_unique<Coordinator>(options);
  responder_ =
      std::make_shared<Responder>(unix_name(name), options.roles.processes(),
                                  coordinator_->endpoint() + "\n" + secret_, *coordinator_);
  waiter_->add(responder_);
}

void SocketMeeting::open_to_all(const RankEnvironment& env, const std::string& name) {
  secret_ = secret_for(env, name);
  const std::string& host = env.meeting->host;
  CoordinatorOptions options = options_for(env, name);
  const auto make = [&](const char* address) {
    options.address = address;
    return std::make_unique<Coordinator>(options);
  };
  const char* const loopback = host.find(':') != std::string::npos ? "::1" : "127.0.0.1";
  for (int attempt = 0; !coordinator_; ++attempt) {
    options.port = port_of(*env.meeting, name, attempt);
    try {
      coordinator_ = net::is_loopback(host) ? make(loopback) : on_all_addresses(make);
    } catch (const ResourceError&) {
      if (attempt + 1 == kPorts) throw;  // all are taken
    }
  }
}

void SocketMeeting::ask_on_this_host(RankEnvironment& env, const std::string& name, Wait& wait) {
  const std::string responder = "unix " + unix_name(name);
  const TimePoint deadline = wait.deadline();
  do {
    try {
      const Descriptor socket = net::dial(*waiter_, responder, deadline);
      const std::int32_t rank = env.process();
      net::write_all(*waiter_, socket.get(), std::as_bytes(std::span(&rank, 1)), deadline,
                     responder);
      std::array<char, kMostBytes> bytes{};
      net::wait_for(*waiter_, socket.get(), POLLIN, deadline, responder);
      const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      const std::string answer(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      if (const std::size_t end = answer.find('\n'); end != answer.npos) {
        env.coordinator = answer.substr(0, end);
        secret_ = answer.substr(end + 1);
      }
    } catch (const PeerLost&) {  // rank 0 does not listen yet
    }
  } while (env.coordinator.empty() && wait.pause(kAskAgain));
}

void SocketMeeting::search(RankEnvironment& env, const std::string& name, Wait& wait) {
  secret_ = secret_for(env, name);
  const std::string& host = env.meeting->host;
  std::vector<std::uint16_t> ports;
  for (int attempt = 0; attempt < kPorts; ++attempt)
    ports.push_back(port_of(*env.meeting, name, attempt));
  Duration pause = kSearchAgain;
  do {
    if (const auto port = find_coordinator(host, ports, secret_))
      env.coordinator = net::to_string({host, *port});
  } while (env.coordinator.empty() &&
           wait.pause(std::exchange(pause, std::min(2 * pause, kSearchSeldom))));
}

std::unique_ptr<observe::WaitNotice> SocketMeeting::wait_for_all(const RankEnvironment& env) const {
  if (env.local_rank > 0) return nullptr;
  const auto whom = [this, roles = env.roles(), place = env.coordinator] {
    const std::vector<int> absent =
        coordinator_ ? coordinator_->snapshot().absent : std::vector<int>();
    return (absent.empty() ? "the others" : roles.names_of(absent)) + " at " + place;
  };
  return std::make_unique<observe::WaitNotice>(*waiter_, env.roles().name_of(env.process()), whom);
}

void SocketMeeting::stay(Waiter& waiter, Duration timeout, Duration patience) const {
  constexpr Duration kLook = std::chrono::milliseconds(2);
  while (coordinator_ && coordinator_->awaits_workers(timeout)) waiter.sleep(kLook);
  if (coordinator_) coordinator_->finish();
  const TimePoint end = waiter.now() + patience;
  while (coordinator_ && coordinator_->awaits_others(timeout) && waiter.now() < end)
    waiter.sleep(kLook);
}

void skip_meeting(std::function<bool()> is_over) {
  ++meetings;
  training_is_over() = std::move(is_over);
}

std::vector<std::string> exchange_by_sockets(const RankEnvironment& env, const std::string& mine,
                                             Duration timeout) {
  RankEnvironment place = env;
  const std::shared_ptr<Waiter> waiter = RealWaiter::make();
  const SocketMeeting meeting(place, waiter, timeout, {});
  std::vector<std::string> all;
  {
    CoordinatorClient client({.endpoint = place.coordinator,
                              .secret = meeting.secret(),
                              .job = place.job,
                              .rank = place.process(),
                              .host = observe::host_name(),
                              .timeout = timeout});
    const auto notice = meeting.wait_for_all(place);
    all = client.exchange("before the job", mine, timeout,
                          {0, place.roles().workers + place.roles().servers});
    client.leave();
  }
  meeting.stay(*waiter, timeout, timeout);
  return all;
}

}  // namespace trireme::inline v0::rendezvous
