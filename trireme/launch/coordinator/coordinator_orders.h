// CoordinatorOrders: a launcher's orders to the process of its coordinator, and the answers to them
// (coordinator_messages.h). If that process ends, the next one gets the orders that still matter,
// and the one whose answer is awaited.
//
// KeptCoordinator owns it. Thread safe. An order without an answer waits at most for room in the
// process's socket.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "trireme/base/event.h"
#include "trireme/launch/coordinator/coordinator_messages.h"

namespace trireme::inline v0::launch {

class CoordinatorOrders {
 public:
  /// `interrupted` ends every wait for an answer.
  explicit CoordinatorOrders(std::function<bool()> interrupted)
      : interrupted_(std::move(interrupted)) {}

  /// Sends the order, now and to each later process.
  void tell(Message order);
  void tell(const rendezvous::Failure& failure);
  /// Sends the order and waits for its answer; none if interrupted, closed or given up. An
  /// interrupted order to change the ranks still goes to later processes.
  std::optional<Message> ask(Message order, Duration patience = Duration::max());
  /// Drops orders about a process that has ended, except failures: they do not mean its successor.
  void drop_about(int process);
  /// Later processes are told of this failure; the present one knows it.
  void remember(const rendezvous::Failure& failure);
  /// The first failure, told or remembered, that no other one caused; else the first.
  std::optional<rendezvous::Failure> first_failure() const;
  /// The silent processes, by the latest answer. Does not wait.
  std::vector<int> silent(Duration silence);
  /// No process counts as silent until the next answer.
  void forgive_silence();
  /// The process is not silent any more: the order to forget it, and all before, were answered.
  void forgive_silence_of(int process);

  /// A process is at the other end of this socket: sends it `setup` and the orders.
  void connect(Descriptor socket, const CoordinatorSetup& setup);
  void disconnect();
  /// Asks the process to say that it is alive.
  void ping();
  /// Takes the process for dead: ends its connection.
  void cut();
  /// The process has answered an order.
  void take_answer(const Message& answer);

  /// The process must end; nobody waits for an answer any more.
  void close();
  bool closing() const;
  /// There will be no further process.
  void give_up();
  bool given_up() const;

 private:
  void send(const Message& message);
  void end_wait();

  const std::function<bool()> interrupted_;
  std::mutex asking_;  // one at a time
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Descriptor socket_;            // none: no process runs
  std::vector<Message> orders_;  // for each further process
  struct Asked {
    Message order;
    std::shared_ptr<Event> over = std::make_shared<Event>();
    std::optional<Message> answer = {};
  };
  std::optional<Asked> asked_;
  long number_ = 0;  // of the last order that has an answer
  bool silence_asked_ = false;
  std::vector<int> silent_;
  bool closing_ = false, given_up_ = false;
};

}  // namespace trireme::inline v0::launch
