// Messages between a launcher and its agent on another host, through ssh's standard streams:
//
//   launcher                                     other host
//   setup  folder, secret, meeting place    ->
//                                           <-   ready (the coordinator's address from there), or
//                                                refused (exit code, sentence)
//   start p  command, environment           ->
//                                           <-   failed p (exit code, sentence), if it cannot
//   signal p  signal, whole group           ->
//                                           <-   out p, err p  line
//                                           <-   ended p  exit, activity, last words
//   end of the stream: kill all, end        ->
//
// Before its first message the other host sends kAgentHello: what a login shell prints is ignored.
#pragma once

#include <string>
#include <string_view>

#include "trireme/launch/hosts/host.h"
#include "trireme/launch/message.h"

namespace trireme::inline v0::launch {

inline constexpr std::string_view kAgentHello = "trireme launch-host 1\n";

/// The first message to another host.
struct HostSetup {
  std::string version;       // rendezvous::kWireVersion
  std::string folder;        // in which the processes run
  std::string secret;        // of the job
  std::string coordinator;   // "host:port" as that host reaches it; "ssh:port": ssh's other end
  std::string fallback;      // "host:port" if ssh does not tell its ends
  std::string connection;    // SSH_CONNECTION of the launcher itself
  std::string shared_file;   // must have the same content there; may be empty
  std::string shared_proof;  // of its content
  int processes = 1;
  int bind = 0;
};
/// A proof of the file's content (HostSetup::shared_proof); empty if it cannot be read.
std::string proof_of_file(const std::string& path);
Message message_of(const HostSetup& setup);
HostSetup setup_from(const Message& message);
Message message_of(int process, const StartOptions& options);
StartOptions start_from(const Message& message);
Message message_of(int process, const Ending& ending);
Ending ending_from(const Message& message);

/// The agent, which `trireme launch-host` runs: starts and signals processes, and sends their lines
/// and ends. When standard input ends, it kills them all and ends. Returns the exit code. Call it
/// on the main thread, before other threads exist.
int run_host_agent();

}  // namespace trireme::inline v0::launch
