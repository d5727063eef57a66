// A program with commands: parses its command line and runs the command that it names. An error
// becomes one sentence on standard error and an exit code (docs/errors.md; 2 for wrong usage).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/cli/command.h"

namespace trireme::inline v0::cli {

/// Prints the sentence of a command's error on standard error; returns its exit code.
int print_error(const std::exception_ptr& error);

class Program {
 public:
  /// `name`: the program's name in help and in the examples, which are written for `trireme`.
  Program(int argc, char** argv, const std::string& name, const std::string& about,
          const std::string& footer);
  ~Program();
  Program(const Program&) = delete;

  /// `words`: "train", or "show zero3" for a command below `show`, which was added before.
  Command& add(const std::string& words);
  /// Parses and runs; returns the exit code.
  int run();

  struct Parsed {
    int code = 0;                 // after help or wrong usage, which are printed
    std::function<int()> action;  // else the command's action
  };
  /// Parses without running anything.
  Parsed parse();
  /// Parses and runs. nullopt, and nothing is printed, if the command line is wrong, asks for help,
  /// or names a command that was handed over.
  std::optional<int> run_if_right();

  const std::string& name() const noexcept { return name_; }
  DescribedCommand describe() const { return root_.describe(); }
  /// How the program was called.
  int argc() const noexcept { return argc_; }
  char** argv() const noexcept { return argv_; }
  /// The name that the user typed, for suggestions of what to type next.
  std::string typed() const { return argc_ > 0 ? argv_[0] : name_; }

 private:
  std::function<int()> parsed();
  int guarded(const std::function<int()>& action) const;

  const int argc_;
  char** const argv_;
  const std::string name_;
  const std::unique_ptr<CLI::App> app_;
  Command root_;
};

}  // namespace trireme::inline v0::cli
