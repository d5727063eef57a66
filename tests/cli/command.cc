#include "tests/cli/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "trireme/cli/checkpoints.h"

extern char** environ;

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

std::string temporary_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "trireme-cli-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
  return pattern;
}

}  // namespace

Command& Command::in(std::string folder) {
  folder_ = std::move(folder);
  return *this;
}

Command& Command::with(std::string variable, std::string value) {
  variables_[std::move(variable)] = std::move(value);
  return *this;
}

Command& Command::file_limit(long bytes) {
  file_limit_ = bytes;
  return *this;
}

Command::Running Command::start() const {
  // Processes that a dead launcher leaves behind become children of this process, which sees them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string place = temporary_folder();
  const std::string out = place + "/out", err = place + "/err";
  std::vector<char*> argv;
  for (const std::string& argument : arguments_)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // This process has no LibTorch and one thread, so fork is safe.
  const pid_t pid = fork();
  if (pid != 0) return Running(pid, place);
  for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  if (!folder_.empty() && chdir(folder_.c_str()) != 0) _exit(126);
  dup2(open(out.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), STDERR_FILENO);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (file_limit_ >= 0) {
    signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG, as it does with ENOSPC
    const rlimit limit{static_cast<rlim_t>(file_limit_), static_cast<rlim_t>(file_limit_)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execvp(argv[0], argv.data());
  _exit(127);
}

Command::Running::Running(pid_t pid, std::string folder) : pid_(pid), folder_(std::move(folder)) {}

Command::Running::~Running() {
  if (!ended_) wait_beside_others(0);
  std::filesystem::remove_all(folder_);
}

void Command::Running::send(int signal) const { kill(pid_, signal); }

std::string Command::Running::output() const {
  return read_file(folder_ + "/out") + read_file(folder_ + "/err");
}

bool Command::Running::reap(bool block_until_exit, Clock::time_point deadline) {
  while (!ended_) {
    if (waitpid(pid_, &status_, WNOHANG) == pid_) {
      ended_ = true;
    } else if (!block_until_exit || Clock::now() > deadline) {
      break;
    } else {
      pause();
    }
  }
  return ended_;
}

bool Command::Running::wait_for(const std::string& text, double seconds) {
  const auto deadline = after(seconds);
  while (true) {
    const bool ended = reap(false, deadline);
    if (output().find(text) != std::string::npos) return true;
    if (ended || Clock::now() > deadline) return false;
    pause();
  }
}

CommandResult Command::Running::wait_beside_others(double seconds) {
  CommandResult result;
  if (!reap(true, after(seconds))) {
    result.timed_out = true;
    for (const pid_t child : descendants(pid_)) kill(child, SIGKILL);
    kill(pid_, SIGKILL);
    reap(true, after(10));
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  result.code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  result.out = read_file(folder_ + "/out");
  result.err = read_file(folder_ + "/err");
  return result;
}

CommandResult Command::Running::wait(double seconds) {
  CommandResult result = wait_beside_others(seconds);
  // Orphans end within two seconds of their launcher; later ones count as left behind.
  const auto deadline = after(2);
  while (!descendants(getpid()).empty() && Clock::now() < deadline) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    pause();
  }
  for (const pid_t child : descendants(getpid())) {
    ++result.left_behind;
    kill(child, SIGKILL);
  }
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  return result;
}

Command cached_command(std::vector<std::string> arguments) {
  believe_calibrations(TRIREME_CACHE);
  return Command(std::move(arguments)).with("XDG_CACHE_HOME", TRIREME_CACHE);
}

Command trireme_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TRIREME_PROGRAM);
  return cached_command(std::move(arguments));
}

// Other programs may read, write and believe the same files meanwhile, so a file is replaced as a whole.
void believe_calibrations(const std::string& cache) {
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator(cache + "/trireme", none_yet)) {
    if (entry.path().extension() != ".txt") continue;
    const std::string text = read_file(entry.path()), disturbed = "disturbed: ";
    if (!text.starts_with(disturbed)) continue;
    const std::string own = entry.path().string() + ".believed." + std::to_string(getpid());
    std::ofstream(own) << text.substr(disturbed.size());
    std::filesystem::rename(own, entry.path());
  }
}

// None if the process has ended.
std::vector<pid_t> descendants(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", error),
       end;
       !error && thread != end; thread.increment(error)) {
    std::ifstream children(thread->path() / "children");
    for (pid_t child; children >> child;) {
      found.push_back(child);
      for (const pid_t inner : descendants(child)) found.push_back(inner);
    }
  }
  return found;
}

std::string environment_of(pid_t pid, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.rfind(variable + "=", 0) == 0) return entry.substr(variable.size() + 1);
  }
  return {};
}

Folder::Folder() : path_(temporary_folder()) {}
Folder::~Folder() { std::filesystem::remove_all(path_); }

std::string Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(file(name), std::ios::binary) << text;
  return file(name);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string hash_of_run(const std::string& run) {
  return cli::hash_of(cli::model_weights(run)) + "\n";
}

bool eventually(const std::function<bool()>& condition, double seconds) {
  const auto deadline = after(seconds);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void resize_run(const Folder& folder, int ranks) {
  const CommandResult result = trireme_command({"resize", "run", std::to_string(ranks)})
                                   .in(folder.path())
                                   .start()
                                   .wait_beside_others();
  EXPECT_EQ(result.code, 0) << result.err;
}

std::string tiny_config(const Folder& folder, const std::string& train_lines) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
  const std::string data = folder.write("data.txt", text);
  return folder.write(
      "tiny.toml",
      "[data]\npath = \"" + data +
          "\"\n[model]\nname = \"gpt\"\nlayers = 2\nheads = 2\nwidth = 32\nblock = 16\n"
          "[batch]\nglobal = 8\nmicro = 2\n"
          "[train]\nsample_bytes = 20\nvalidate_sequences = 8\n"
          "warmup = 5\n" +
          train_lines);
}

}  // namespace trireme::testing
