#include "s3_service.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "trireme/base/check.h"

namespace trireme::inline v0::testing {

using namespace storage::s3;

S3Service::S3Service() {
  int in[2], out[2];
  TRIREME_CHECK(::pipe2(in, O_CLOEXEC) == 0);
  TRIREME_CHECK(::pipe2(out, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string python = TRIREME_S3_PYTHON, script = TRIREME_S3_SERVER;
  char* arguments[] = {python.data(), script.data(), nullptr};
  TRIREME_CHECK(::posix_spawn(&pid_, python.c_str(), &actions, nullptr, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  keep_alive_ = in[1];
  std::FILE* said = ::fdopen(out[0], "r");
  char line[512] = "";
  TRIREME_CHECK(std::fgets(line, sizeof line, said) != nullptr);  // else it has told why
  std::fclose(said);
  std::istringstream(line) >> service_.endpoint >> service_.access_key >> service_.secret_key;
}

S3Service::~S3Service() {
  ::close(keep_alive_);
  ::waitpid(pid_, nullptr, 0);
}

S3Service& S3Service::shared() {
  static S3Service service;
  return service;
}

RetryOptions S3Service::quick() {
  return {.attempts = 6,
          .first_delay = std::chrono::milliseconds(2),
          .longest_delay = std::chrono::milliseconds(20)};
}

std::shared_ptr<S3Client> S3Service::client(const std::string& bucket) const {
  return std::make_shared<S3Client>(service_, bucket, quick());
}

Response S3Service::control(const std::string& method, const std::string& body) const {
  return HttpClient(service_).send({.method = method,
                                    .url = service_.endpoint + "/_faults",
                                    .body = std::as_bytes(std::span(body))});
}

void S3Service::inject(const std::string& faults) const { control("POST", faults); }

int S3Service::injected() const { return std::stoi(control("GET", "").body); }

}  // namespace trireme::inline v0::testing
