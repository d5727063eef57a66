#include "trireme/base/standard_streams.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <utility>

namespace trireme {
namespace {

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

void own_handler(int) {}

TEST(StandardStreams, ReplaceTheDefaultAndKeepAProgramsHandler) {
  for (const auto& [signal, replace] :
       {std::pair(SIGPIPE, &outlive_readers), std::pair(SIGXFSZ, &open_standard_streams)}) {
    const Handler before = ::signal(signal, own_handler);
    replace();
    EXPECT_EQ(handler_of(signal), own_handler) << signal;
    ::signal(signal, SIG_DFL);
    replace();
    EXPECT_NE(handler_of(signal), SIG_DFL) << signal;
    ::signal(signal, before);
  }
}

}  // namespace
}  // namespace trireme
