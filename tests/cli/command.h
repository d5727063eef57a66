// Runs the program `trireme` (or any other) as a real process, for tests.
//
// Output goes to files, so no process blocks on a full pipe. Processes that the command leaves
// behind become children of the test and are counted. Use from one test thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme::testing {

struct CommandResult {
  int code = -1;  // exit status; 128 + n if signal n ended it
  std::string out, err;
  double seconds = 0;
  bool timed_out = false;  // it was killed
  int left_behind = 0;     // its processes that were still running at the end (now killed)
};

class Command {
 public:
  /// `arguments[0]` is the program.
  explicit Command(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  Command& in(std::string folder);
  Command& with(std::string variable, std::string value);
  /// Limits the size of files: acts as a disk that is full for anything larger.
  Command& file_limit(long bytes);

  /// Starts it; the destructor of Running kills what still runs.
  class Running {
   public:
    Running(pid_t pid, std::string folder);
    Running(const Running&) = delete;
    ~Running();
    pid_t pid() const { return pid_; }
    /// Waits until `text` is in its output; false if it ended or `seconds` passed first.
    bool wait_for(const std::string& text, double seconds = 60);
    void send(int signal) const;
    std::string output() const;  // both streams so far
    CommandResult wait(double seconds = 60);
    /// The same where other commands run: does not look for processes that are left behind.
    CommandResult wait_beside_others(double seconds = 60);

   private:
    bool reap(bool block_until_exit, std::chrono::steady_clock::time_point deadline);
    pid_t pid_;
    std::string folder_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    bool ended_ = false;
    int status_ = 0;
  };
  Running start() const;
  CommandResult run(double seconds = 60) const { return start().wait(seconds); }

 private:
  std::vector<std::string> arguments_;
  std::string folder_;
  std::map<std::string, std::string> variables_;
  long file_limit_ = -1;
};

/// A program that outlives the block in which it is started.
inline std::unique_ptr<Command::Running> started(const Command& command) {
  return std::unique_ptr<Command::Running>(new Command::Running(command.start()));
}

/// The hash that `trireme inspect RUN --hash` prints, computed here: a process with LibTorch takes a
/// second to start.
std::string hash_of_run(const std::string& run);

/// The program under test followed by `arguments`, as a `cached_command`.
Command trireme_command(std::vector<std::string> arguments);

/// A program with the cache of the build folder, whose calibrations are believed: beside other tests every
/// program would measure this machine again, for half a second.
Command cached_command(std::vector<std::string> arguments);

/// The calibrations in a cache folder (XDG_CACHE_HOME) are believed from here on, also if other programs
/// disturbed them.
void believe_calibrations(const std::string& cache);

/// Direct and indirect children of `pid`, oldest first.
std::vector<pid_t> descendants(pid_t pid);
/// The value of `variable` in the environment that `pid` started with; "" if it is not set.
std::string environment_of(pid_t pid, const std::string& variable);

/// A new folder, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes it; returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};
std::string read_file(const std::string& path);
/// Waits until `condition` holds; false if `seconds` passed first.
bool eventually(const std::function<bool()>& condition, double seconds = 60);
/// Asks the job whose run is `folder`/run for another number of ranks.
void resize_run(const Folder& folder, int ranks);

/// A job of about a second: a tiny GPT on a text that it writes beside the file. `train_lines` are
/// appended to the [train] table.
std::string tiny_config(const Folder& folder, const std::string& train_lines = "");

}  // namespace trireme::testing
