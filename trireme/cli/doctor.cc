// trireme doctor: what this machine and this build have.
#include <ATen/Version.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/command.h"
#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/input/compiler_headers.h"
#include "trireme/observe/events.h"
#include "trireme/observe/machine.h"
#include "trireme/observe/progress.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/kernel_table.h"
#include "trireme/tensor/kernel_tuning.h"

extern char** environ;

namespace trireme {
inline namespace v0 {
namespace cli {
namespace {

std::string on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

// The first line that `program --version` prints; empty where it cannot be run.
std::string version_of(const std::string& program) {
  const std::string path = on_path(program);
  int ends[2];
  if (path.empty() || pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program, flag = "--version";
  char* argv[] = {name.data(), flag.data(), nullptr};
  pid_t child = 0;
  const bool started = posix_spawn(&child, path.c_str(), &actions, nullptr, argv, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  if (started) waitpid(child, nullptr, 0);
  return out.substr(0, out.find('\n'));
}

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string default_text() {
  try {
    std::string text;
    for (const std::string& folder : input::compiler_header_folders()) {
      text += (text.empty() ? "" : ", ") + folder;
    }
    return text;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string free_space() {
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  return error ? "unknown" : observe::bytes_text(static_cast<double>(space.available));
}

Lines look() {
  const observe::Cores cores = observe::usable_cores();
  const auto bytes = [](std::int64_t value) {
    return observe::bytes_text(static_cast<double>(value));
  };
  const auto or_missing = [](std::string text, const char* missing) {
    return text.empty() ? std::string(missing) : text;
  };
  return {
      {"trireme", "0.1.0"},
      {"built by",
       std::string("g++ ") + __VERSION__ + ", C++" + std::to_string(__cplusplus / 100 % 100)},
      {"compiler", or_missing(version_of("c++"), "none on PATH (only needed to build)")},
      {"libtorch", std::string(TORCH_VERSION) + ", kernels for " + at::get_cpu_capability()},
      {"products", tensor::describe(tensor::kernel_table())},
      {"mpi", or_missing(version_of("mpirun"), "none on PATH (not needed on one host)")},
      {"gpus", comm::nccl::describe_gpus()},
      {"transports", "shm, tcp, mpi (under mpirun), nccl (GPU memory)"},
      {"host", observe::host_name()},
      {"processor", observe::processor_name()},
      {"cores", cores.reason},
      {"memory", bytes(observe::memory_available()) + " free of " + bytes(observe::memory_limit())},
      {"disk", free_space() + " free here"},
      {"default text", default_text()},
  };
}

// Measures, prints and writes a kernel table for this processor.
int tune(const std::string& path) {
  tensor::set_up_process({});
  const auto measured = tensor::measure_products(std::chrono::milliseconds(200));
  const tensor::KernelTable best = tensor::fastest(measured);
  for (const auto& one : measured) {
    std::printf("%-16s %-8s %6.0f GFLOP/s%s\n", one.product.c_str(),
                std::string(name_of(one.library)).c_str(), one.gflops,
                best.*one.column == one.library ? "  <-" : "");
  }
  std::ofstream file(path);
  file << "# `trireme doctor --tune` on " << observe::processor_name() << "\n" << to_toml(best);
  file.close();
  if (!file) {
    throw ConfigError("could not write " + path,
                      {.operation = "doctor", .advice = "Name a file that can be written."});
  }
  std::printf("written to %s; use it with --set train.kernel_table=%s\n", path.c_str(),
              path.c_str());
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "What this machine and this build have");
  command->add_flag("--json", *json, "One JSON line");
  auto table = std::make_shared<std::string>();
  command->add_option("--tune", *table,
                      "Measure matrix products and write a kernel table for this processor");
  command->footer("Example:\n  trireme doctor");
  command->callback([json, table, &invocation] {
    invocation.action = [json, table] {
      if (!table->empty()) return tune(*table);
      observe::Event event("doctor");
      for (const auto& [name, value] : look()) {
        if (*json) {
          event.set(name, value);
        } else {
          std::printf("%-13s %s\n", name.c_str(), value.c_str());
        }
      }
      if (*json) std::printf("%s\n", event.line().c_str());
      return 0;
    };
  });
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
