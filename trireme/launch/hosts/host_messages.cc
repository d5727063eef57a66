#include "trireme/launch/hosts/host_messages.h"

#include <optional>

#include "trireme/base/file.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {

std::string proof_of_file(const std::string& path) {
  const std::optional<std::string> text = try_read_file(path);
  return text ? rendezvous::prove("shared file", {*text}) : std::string();
}

Message message_of(const HostSetup& setup) {
  return {"setup",
          -1,
          {setup.version, setup.folder, setup.secret, setup.coordinator, setup.fallback,
           setup.connection, setup.shared_file, setup.shared_proof, std::to_string(setup.processes),
           std::to_string(setup.bind)}};
}

HostSetup setup_from(const Message& message) {
  return {.version = message.field(0),
          .folder = message.field(1),
          .secret = message.field(2),
          .coordinator = message.field(3),
          .fallback = message.field(4),
          .connection = message.field(5),
          .shared_file = message.field(6),
          .shared_proof = message.field(7),
          .processes = static_cast<int>(message.number(8)),
          .bind = static_cast<int>(message.number(9))};
}

Message message_of(int process, const StartOptions& options) {
  Message message{"start", process, {std::to_string(options.command.size())}};
  for (const auto* list : {&options.command, &options.environment})
    message.fields.insert(message.fields.end(), list->begin(), list->end());
  return message;
}

StartOptions start_from(const Message& message) {
  const long words = message.number(0);
  if (words < 1 || static_cast<std::size_t>(words) >= message.fields.size())
    refuse_message("starts no program");
  const auto first = message.fields.begin() + 1, end = first + words;
  return {.command = {first, end}, .environment = {end, message.fields.end()}};
}

Message message_of(int process, const Ending& ending) {
  const rendezvous::Activity& activity = ending.activity;
  return {"ended",
          process,
          {std::to_string(ending.exit.code), std::to_string(ending.exit.signal),
           activity.waiting ? "1" : "0", activity.operation, activity.last_call,
           text_of(activity.since), std::to_string(activity.step), ending.last_words}};
}

Ending ending_from(const Message& message) {
  return {.exit = {static_cast<int>(message.number(0)), static_cast<int>(message.number(1))},
          .activity = {.waiting = message.number(2) != 0,
                       .operation = message.field(3),
                       .last_call = message.field(4),
                       .since = Duration(message.number(5)),
                       .step = message.number(6)},
          .last_words = message.field(7)};
}

}  // namespace trireme::inline v0::launch
