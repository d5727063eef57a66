#include "trireme/launch/hosts/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "trireme/base/error.h"

extern char** environ;

namespace trireme::inline v0::launch {
namespace {

[[noreturn]] void refuse_spawn(const std::string& what, int error) {
  throw ResourceError(
      what + ": " + std::strerror(error),
      {.operation = "launch",
       .advice = error == ENOSYS ? "Linux 5.3 or later is needed."
                                 : "Raise the limits on processes and open files."});
}

const char* advice_on_execve(int error) {
  if (error == E2BIG) return "Make its arguments or its environment shorter.";
  if (error == ETXTBSY) return "Another process still writes the file: try again.";
  return "See whether it is built for this machine.";
}

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& one : strings) result.push_back(const_cast<char*>(one.c_str()));
  result.push_back(nullptr);
  return result;
}

// Everything that the child needs, prepared before vfork: between vfork and execve the child shares
// this process's memory and may only make system calls.
struct Plan {
  const char* path;
  char* const* arguments;
  char* const* environment;
  const int* standard;  // three descriptors
  const int* inherit;
  std::size_t num_inherit;
  const cpu_set_t* cores;  // null: not pinned
  pid_t parent;
  int failed;  // gets errno if execve fails; closed by a successful execve
};

[[noreturn]] void become(const Plan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent has died before prctl()
  setpgid(0, 0);
  if (plan.cores) sched_setaffinity(0, sizeof *plan.cores, plan.cores);
  for (int target = 0; target < 3; ++target)
    if (plan.standard[target] >= 0) dup2(plan.standard[target], target);
  for (std::size_t i = 0; i < plan.num_inherit; ++i) fcntl(plan.inherit[i], F_SETFD, 0);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int one : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGUSR1, SIGTSTP}) {
    sigaction(one, &standard, nullptr);  // SIGHUP is kept, so that nohup applies to children too
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan.path, plan.arguments, plan.environment);
  const int error = errno;
  [[maybe_unused]] const auto put = write(plan.failed, &error, sizeof error);
  _exit(127);
}

// noinline: vfork returns twice, and no local variable of the caller may live across it.
__attribute__((noinline)) pid_t start(const Plan& plan) {
  const pid_t pid = vfork();
  if (pid == 0) become(plan);
  return pid;
}

// If a parent has ignored SIGCHLD, ended children would disappear before their exit status is read.
void keep_ended_children() {
  struct sigaction now {};
  if (sigaction(SIGCHLD, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) signal(SIGCHLD, SIG_DFL);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != name.npos) {
    if (is_program(name)) return name;
    std::error_code error;
    if (std::filesystem::is_regular_file(name, error))
      throw ConfigError(
          "cannot run '" + name + "': this user may not execute the file",
          {.operation = "launch", .advice = "Is it a program? `chmod +x` makes it one."});
  } else if (const char* path = std::getenv("PATH")) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
      if (is_program(candidate)) return candidate;
    }
  }
  throw ConfigError("cannot run '" + name + "': no such program",
                    {.operation = "launch", .advice = "Give its path after `--`."});
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

void add_variable(std::vector<std::string>& environment, const std::string& entry) {
  const std::string name = entry.substr(0, entry.find('=') + 1);
  const bool there = std::any_of(environment.begin(), environment.end(),
                                 [&](const std::string& one) { return one.starts_with(name); });
  if (!there) environment.push_back(entry);
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) refuse_spawn("could not make a pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Process spawn(const SpawnOptions& options) {
  const std::string path = find_program(options.command.at(0));
  const auto arguments = pointers(options.command);
  const auto environment = pointers(options.environment);
  const int standard[3] = {options.input, options.output, options.error};
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : options.cores) CPU_SET(core, &cores);
  Pipe failed = make_pipe();
  const Plan plan{path.c_str(),
                  arguments.data(),
                  environment.data(),
                  standard,
                  options.inherit.data(),
                  options.inherit.size(),
                  options.cores.empty() ? nullptr : &cores,
                  getpid(),
                  failed.in.get()};
  keep_ended_children();
  const pid_t pid = start(plan);
  const int start_error = errno;
  failed.in = Descriptor();
  int error = 0;
  [[maybe_unused]] const auto got = read(failed.out.get(), &error, sizeof error);
  if (pid < 0) refuse_spawn("could not start a process", start_error);
  if (error != 0) {
    waitpid(pid, nullptr, 0);
    throw ConfigError("cannot run '" + path + "': " + std::strerror(error),
                      {.operation = "launch", .advice = advice_on_execve(error)});
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) {
    const int reason = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    refuse_spawn("pidfd_open failed", reason);
  }
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return {pid, descriptor};
}

}  // namespace trireme::inline v0::launch
