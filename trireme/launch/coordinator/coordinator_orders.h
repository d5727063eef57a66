// CoordinatorOrders: a launcher's orders to the process of its coordinator, and the answers to them
// (coordinator_messages.h). The process may end and another one come in its place, which gets all of the
// orders that are still of use, and the one that waits for its answer.
//
// KeptCoordinator owns it. Thread safe. An order without an answer does not wait for the process, except for
// room in its socket.
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
  /// Sends the order and waits for its answer; none if interrupted, closed or given up. Later processes get
  /// an order to change the ranks that was interrupted.
  std::optional<Message> ask(Message order, Duration patience = Duration::max());
  /// The process has ended: orders about it must not be repeated about the next one in its place.
  void drop_about(int process);
  /// Each later process is told of this failure, which the present one knows.
  void remember(const rendezvous::Failure& failure);
  /// The first of the failures that were told or remembered.
  std::optional<rendezvous::Failure> first_failure() const;
  /// The processes that have been silent, from the latest answer, without a wait.
  std::vector<int> silent(Duration silence);
  /// No process counts as silent until the next answer.
  void forgive_silence();
  /// The process does not count as silent. Called when an order to forget it was answered, and so were all
  /// orders before it.
  void forgive_silence_of(int process);

  /// There is a process, at the other end of this socket.
  void connect(Descriptor socket, const CoordinatorSetup& setup);
  void disconnect();
  /// The process must say that it is alive.
  void ping();
  /// The process is taken for dead.
  void cut();
  /// The process has answered an order.
  void take_answer(const Message& answer);

  /// The process must end; nobody waits for an answer any more.
  void close();
  bool closing() const;
  /// There will be no process any more.
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
  std::vector<Message> orders_;  // to be told to each process
  struct Asked {
    Message order;
    std::shared_ptr<Event> over = std::make_shared<Event>();
    std::optional<Message> answer = {};
  };
  std::optional<Asked> asked_;
  long number_ = 0;  // of the last order that is answered
  bool silence_asked_ = false;
  std::vector<int> silent_;
  bool closing_ = false, given_up_ = false;
};

}  // namespace trireme::inline v0::launch
