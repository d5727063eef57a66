#include "trireme/launch/coordinator/coordinator_messages.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace trireme::inline v0::launch {
namespace {

Duration duration_of(const Message& message, std::size_t field) {
  return Duration(message.number(field));
}

}  // namespace

Message message_of(const CoordinatorSetup& setup) {
  const rendezvous::CoordinatorOptions& one = setup.options;
  Message message{
      "open",
      -1,
      {std::to_string(one.roles.workers), std::to_string(one.roles.servers),
       one.roles.evaluator ? "1" : "0", std::to_string(one.listener->socket.get()),
       one.listener->address, one.secret, one.job, one.anew ? "1" : "0",
       text_of(one.returns_within), text_of(one.store_patience), setup.store,
       std::to_string(one.roles.more_workers), text_of(one.heartbeat), one.elastic ? "1" : "0"}};
  append(message, one.elastic.value_or(rendezvous::Epoch()));
  return message;
}

CoordinatorSetup setup_of_coordinator(const Message& message) {
  CoordinatorSetup setup;
  rendezvous::CoordinatorOptions& one = setup.options;
  one.roles = {.workers = static_cast<int>(message.number(0)),
               .servers = static_cast<int>(message.number(1)),
               .evaluator = message.number(2) != 0,
               .more_workers = static_cast<int>(message.number(11))};
  one.listener = std::make_shared<net::Listener>(Descriptor(static_cast<int>(message.number(3))),
                                                 message.field(4));
  one.secret = message.field(5);
  one.job = message.field(6);
  one.anew = message.number(7) != 0;
  one.returns_within = duration_of(message, 8);
  one.store_patience = duration_of(message, 9);
  setup.store = message.field(10);
  one.heartbeat = duration_of(message, 12);
  if (message.number(13) != 0) one.elastic = epoch_from(message, 14);
  return setup;
}

void append(Message& message, const rendezvous::Failure& failure) {
  message.process = failure.rank;
  for (std::string field : {failure.host, std::to_string(failure.step), failure.operation,
                            failure.sentence, std::to_string(failure.exit_code)})
    message.fields.push_back(std::move(field));
}

rendezvous::Failure failure_from(const Message& message, std::size_t first) {
  return {.rank = message.process,
          .host = message.field(first),
          .step = message.number(first + 1),
          .operation = message.field(first + 2),
          .sentence = message.field(first + 3),
          .exit_code = static_cast<int>(message.number(first + 4))};
}

void append(Message& message, const rendezvous::Epoch& epoch) {
  for (std::string field :
       {std::to_string(epoch.number), std::string(epoch.at_step_end ? "1" : "0"), epoch.cause,
        std::to_string(epoch.interrupted)})
    message.fields.push_back(std::move(field));
  append(message, epoch.members);
}

rendezvous::Epoch epoch_from(const Message& message, std::size_t first) {
  return {.number = static_cast<std::uint32_t>(message.number(first)),
          .members = processes_from(message, first + 4),
          .at_step_end = message.number(first + 1) != 0,
          .interrupted = static_cast<std::uint32_t>(message.number(first + 3)),
          .cause = message.field(first + 2)};
}

void append(Message& message, const std::vector<int>& processes) {
  for (const int process : processes) message.fields.push_back(std::to_string(process));
}

std::vector<int> processes_from(const Message& message, std::size_t first) {
  std::vector<int> processes;
  for (std::size_t field = first; field < message.fields.size(); ++field)
    processes.push_back(static_cast<int>(message.number(field)));
  return processes;
}

bool receive(int socket, std::string& bytes) {
  char some[16384];
  ssize_t got = 0;
  do got = ::read(socket, some, sizeof some);
  while (got < 0 && errno == EINTR);
  if (got > 0) bytes.append(some, static_cast<std::size_t>(got));
  return got > 0;
}

bool send_message(int socket, const Message& message, Duration patience) noexcept {
  const std::string bytes = encode(message);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t now =
        ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN) {
      pollfd room{socket, POLLOUT, 0};
      const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
      if (::poll(&room, 1, static_cast<int>(wait)) == 0) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace trireme::inline v0::launch
