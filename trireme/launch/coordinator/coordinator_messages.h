// The messages between a launcher and the process of its coordinator, through a socket:
//
//   launcher                                      coordinator
//   open       the job, its store, its port  ->
//                                            <-   ready, or refused (exit code, sentence)
//                                            <-   store-lost (exit code, sentence): it ends
//   an order, one kind per method of
//   JobControl, with a number                ->
//                                            <-   answer (the number, what the method returns)
//   ping                                     ->
//                                            <-   pong
//                                            <-   failed p, joined p, server-lost p,
//                                                 copy p (server): callbacks (CoordinatorOptions)
//   close                                    ->   ends; the store is empty
//   end of the socket: the coordinator ends
//
// Orders are served one after the other. The answer to number 0 is not sent.
#pragma once

#include "trireme/launch/message.h"
#include "trireme/rendezvous/coordinator/coordinator.h"

namespace trireme::inline v0::launch {

/// The options without callbacks and store. The listener is an inherited descriptor.
struct CoordinatorSetup {
  rendezvous::CoordinatorOptions options;
  std::string store;  // address
};
Message message_of(const CoordinatorSetup& setup);
CoordinatorSetup setup_of_coordinator(const Message& message);

/// The fields of a message from `first` on; the process is the message's own.
void append(Message& message, const rendezvous::Failure& failure);
rendezvous::Failure failure_from(const Message& message, std::size_t first);
void append(Message& message, const rendezvous::Epoch& epoch);
rendezvous::Epoch epoch_from(const Message& message, std::size_t first);
void append(Message& message, const std::vector<int>& processes);
std::vector<int> processes_from(const Message& message, std::size_t first);

/// Waits for bytes and appends them. False if the other end is gone.
bool receive(int socket, std::string& bytes);
/// Writes the whole message. False if the other end takes nothing for `patience`, or is gone.
bool send_message(int socket, const Message& message, Duration patience) noexcept;

/// The coordinator's side, a process that may be killed at any time (kept_coordinator.h). Standard
/// input is a socket to the launcher. Returns the exit code.
int run_coordinator_process();

}  // namespace trireme::inline v0::launch
