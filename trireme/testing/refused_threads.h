// RefusedThreads: the system refuses threads, as it does at the limit of `ulimit -u`. That limit
// does not hold for root, so the memory of a thread's stack is refused instead.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace trireme::inline v0::testing {

/// While it lives, this process may start `allowed` more threads. Other memory stays available.
class RefusedThreads {
 public:
  explicit RefusedThreads(std::size_t allowed) {
    pthread_getattr_default_np(&before_);
    pthread_attr_t large = before_;
    pthread_attr_setstacksize(&large, kStack);
    pthread_setattr_default_np(&large);
    getrlimit(RLIMIT_AS, &limit_);
    rlimit lower = limit_;
    lower.rlim_cur = address_space() + kStack * allowed + kStack / 2;
    setrlimit(RLIMIT_AS, &lower);
  }
  ~RefusedThreads() {
    setrlimit(RLIMIT_AS, &limit_);
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;

 private:
  static constexpr std::size_t kStack = std::size_t{1} << 30;

  static std::size_t address_space() {  // bytes
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }

  pthread_attr_t before_{};
  rlimit limit_{};
};

}  // namespace trireme::inline v0::testing
