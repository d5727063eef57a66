#include "trireme/testing/process_bodies.h"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace trireme::inline v0::testing {
namespace {

std::map<std::string, ProcessBody>& bodies() {
  static std::map<std::string, ProcessBody> all;
  return all;
}

}  // namespace

bool register_process(const char* name, ProcessBody body) {
  if (bodies().emplace(name, body).second) return true;
  std::fprintf(stderr, "two TRIREME_PROCESS(%s) in this program\n", name);
  std::abort();
}

bool run_registered_process(int argc, char** argv, int& exit_code) {
  const char* name = std::getenv(kProcessVariable);
  if (!name || *name == '\0') return false;
  const auto body = bodies().find(name);
  if (body == bodies().end()) {
    std::fprintf(stderr, "no TRIREME_PROCESS(%s) in this program\n", name);
    exit_code = 2;
    return true;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // tests react to lines
  exit_code = body->second(argc, argv);
  return true;
}

}  // namespace trireme::inline v0::testing
