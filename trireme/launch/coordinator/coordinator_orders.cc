#include "trireme/launch/coordinator/coordinator_orders.h"

#include <sys/socket.h>

#include <utility>

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Failure;

constexpr Duration kTakes = std::chrono::seconds(10);  // a process that takes no message is stopped
constexpr Duration kInterrupt = std::chrono::milliseconds(50);

Message order_about(const Failure& failure) {
  Message order{"fail", failure.rank, {"0"}};
  append(order, failure);
  return order;
}

// Orders that a process must get even if nobody waits for the answer any more.
bool changes_ranks(const Message& order) {
  return order.kind == "regroup" || order.kind == "forget";
}

}  // namespace

void CoordinatorOrders::tell(Message order) {
  std::lock_guard lock(mutex_);
  orders_.push_back(order);
  send(order);
}

void CoordinatorOrders::tell(const Failure& failure) { tell(order_about(failure)); }

std::optional<Message> CoordinatorOrders::ask(Message order, Duration patience) {
  const std::lock_guard one_at_a_time(asking_);
  if (order.fields.empty()) order.fields.emplace_back();
  std::shared_ptr<Event> over;
  {
    std::lock_guard lock(mutex_);
    if (closing_ || given_up_) return std::nullopt;
    if (changes_ranks(order))
      std::erase_if(orders_, [&](const Message& earlier) {
        return earlier.kind == order.kind && earlier.process == order.process;
      });
    order.fields.front() = std::to_string(++number_);
    send(order);
    over = asked_.emplace(Asked{std::move(order)}).over;
  }
  const TimePoint start = steady_now();
  while (!over->wait(kInterrupt) && !interrupted_() && steady_now() - start < patience) {
  }
  std::lock_guard lock(mutex_);
  Asked asked = *std::exchange(asked_, std::nullopt);
  if (!asked.answer && changes_ranks(asked.order)) {
    asked.order.fields.front() = "0";
    orders_.push_back(std::move(asked.order));
  }
  return asked.answer;
}

void CoordinatorOrders::drop_about(int process) {
  std::lock_guard lock(mutex_);
  std::erase_if(orders_, [&](const Message& order) {
    return order.process == process && order.kind != "fail";
  });
}

void CoordinatorOrders::remember(const Failure& failure) {
  std::lock_guard lock(mutex_);
  orders_.push_back(order_about(failure));
}

std::optional<Failure> CoordinatorOrders::first_failure() const {
  std::optional<Failure> first;
  std::lock_guard lock(mutex_);
  for (const Message& order : orders_) {
    if (order.kind != "fail") continue;
    const Failure one = failure_from(order, 1);
    if (!one.secondary()) return one;
    if (!first) first = one;
  }
  return first;
}

std::vector<int> CoordinatorOrders::silent(Duration silence) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(silence_asked_, true))
    send({"silent", -1, {"-1", std::to_string(silence.count())}});
  return silent_;
}

void CoordinatorOrders::forgive_silence() {
  std::lock_guard lock(mutex_);
  silent_.clear();
  send({"forgive", -1, {"0"}});
}

void CoordinatorOrders::forgive_silence_of(int process) {
  std::lock_guard lock(mutex_);
  std::erase(silent_, process);
}

void CoordinatorOrders::connect(Descriptor socket, const CoordinatorSetup& setup) {
  std::lock_guard lock(mutex_);
  socket_ = std::move(socket);
  silence_asked_ = false;
  send(message_of(setup));
  for (const Message& order : orders_) send(order);
  if (asked_ && !asked_->answer) send(asked_->order);
  if (closing_) send({"close"});
}

void CoordinatorOrders::disconnect() {
  std::lock_guard lock(mutex_);
  socket_ = Descriptor();
}

void CoordinatorOrders::ping() {
  std::lock_guard lock(mutex_);
  send({"ping"});
}

void CoordinatorOrders::cut() {
  std::lock_guard lock(mutex_);
  shutdown(socket_.get(), SHUT_RDWR);
}

void CoordinatorOrders::take_answer(const Message& answer) {
  std::lock_guard lock(mutex_);
  if (answer.number(0) == -1) {
    silent_ = processes_from(answer, 1);
    silence_asked_ = false;
  } else if (asked_ && asked_->order.field(0) == answer.field(0)) {
    asked_->answer = answer;
    asked_->over->set();
  }
}

void CoordinatorOrders::close() {
  std::lock_guard lock(mutex_);
  if (!std::exchange(closing_, true)) send({"close"});
  end_wait();
}

bool CoordinatorOrders::closing() const {
  std::lock_guard lock(mutex_);
  return closing_;
}

void CoordinatorOrders::give_up() {
  std::lock_guard lock(mutex_);
  given_up_ = true;
  end_wait();
}

bool CoordinatorOrders::given_up() const {
  std::lock_guard lock(mutex_);
  return given_up_;
}

// Under the lock. If it cannot be sent, the process ends, and the next one gets it.
void CoordinatorOrders::send(const Message& message) {
  if (socket_ && !send_message(socket_.get(), message, kTakes)) shutdown(socket_.get(), SHUT_RDWR);
}

// Under the lock.
void CoordinatorOrders::end_wait() {
  if (asked_) asked_->over->set();
}

}  // namespace trireme::inline v0::launch
