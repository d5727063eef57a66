#include "trireme/rendezvous/launchers/room.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <semaphore>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr std::size_t kThreads = 24;
constexpr std::size_t kDescriptors = 16;

[[noreturn]] void refuse_room(std::size_t wanted, const std::string& what, std::size_t had,
                              int why) {
  throw ResourceError("the coordinator's connections need " + std::to_string(wanted) + " " + what +
                          ", and only " + std::to_string(had) +
                          " can be had: " + std::strerror(why),
                      {.operation = "launch",
                       .advice = "Raise the limits on processes (ulimit -u), memory (ulimit -v) "
                                 "and open files (ulimit -n)."});
}

struct Visit {
  std::binary_semaphore arrived{0};
  std::latch end{1};
};

// On a new thread's first allocation the C library maps 64 MB of address space and keeps them for
// later threads; it does without if there is no room. The thread stacks must fit in addition.
void* stay(void* argument) {
  auto& visit = *static_cast<Visit*>(argument);
  void* volatile some = std::malloc(64);
  visit.arrived.release();
  visit.end.wait();
  std::free(some);
  return nullptr;
}

void require_threads() {
  Visit visit;
  std::vector<pthread_t> threads;
  threads.reserve(kThreads);
  int error = 0;
  while (error == 0 && threads.size() < kThreads) {
    pthread_t thread{};
    error = pthread_create(&thread, nullptr, stay, &visit);
    if (error != 0) break;
    visit.arrived.acquire();
    threads.push_back(thread);
  }
  visit.end.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error != 0) refuse_room(kThreads, "threads", threads.size(), error);
}

void require_descriptors() {
  std::vector<Descriptor> all;
  while (all.size() < kDescriptors) {
    Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one) refuse_room(kDescriptors, "descriptors", all.size(), errno);
    all.push_back(std::move(one));
  }
}

}  // namespace

void require_room_for_grpc() {
  require_descriptors();
  require_threads();
}

}  // namespace trireme::inline v0::rendezvous
