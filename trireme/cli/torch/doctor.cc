// trireme doctor: shows what this machine and this build have.
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/cli/programs.h"
#include "trireme/comm/nccl/gpu_library.h"
#include "trireme/input/compiler_headers.h"
#include "trireme/observe/events.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/tensor/products/kernel_tuning.h"
#include "trireme/train/device.h"

namespace trireme::inline v0::cli {
namespace {

std::string default_text() {
  try {
    return joined(input::compiler_header_folders());
  } catch (const Error& error) {
    return error.what();
  }
}

// Collects the findings as lines to print and as an event, whose keys include the units.
struct Findings {
  std::vector<std::pair<std::string, std::string>> lines;
  observe::Event event{"doctor"};

  void text(const std::string& name, const std::string& value) {
    lines.emplace_back(name, value);
    std::string key = name;
    std::replace(key.begin(), key.end(), ' ', '_');
    event.set(key, value);
  }
};

std::string bytes(std::int64_t value) { return bytes_text(static_cast<double>(value)); }

void look_at_programs(Findings& found) {
  const std::string compiler = version_output(program_on_path("c++"));
  found.text("trireme", "0.1.0");
  found.text("built by",
             std::string("g++ ") + __VERSION__ + ", C++" + std::to_string(__cplusplus / 100 % 100));
  found.text("compiler", compiler.empty() ? "none on PATH (only needed to build)"
                                          : compiler.substr(0, compiler.find('\n')));
  found.text("libtorch", std::string(TORCH_VERSION) + ", kernels for " + at::get_cpu_capability());
  found.text("products", tensor::describe(tensor::kernel_table()));
  std::vector<std::string> mpis;
  for (const MpiProgram& one : find_mpis()) {
    mpis.push_back(one.version + " (" + one.path + ")");
    found.lines.emplace_back(mpis.size() == 1 ? "mpi" : "", mpis.back());
  }
  if (mpis.empty()) found.lines.emplace_back("mpi", "none on PATH (not needed on one host)");
  found.event.set("mpi", mpis);
  found.text("gpus", comm::nccl::describe_gpus());
  found.text("transports", "shm, tcp, mpi (under mpirun), nccl (GPU memory)");
}

void look_at_devices(Findings& found) {
  const train::Devices devices = train::devices_here();
  const train::DeviceReport report = train::report_devices(devices);
  found.lines.emplace_back("devices", "LibTorch computes on " + report.kinds);
  for (const std::string& device : report.devices) found.lines.emplace_back("", device);
  found.event.set("device_kinds", report.kinds).set("devices", report.devices);
  if (!report.driver.empty()) found.text("driver", "NVIDIA " + report.driver);
  found.lines.emplace_back("train.device", "auto is " + train::describe_auto(devices));
  found.event.set("train_device_auto", train::describe_auto(devices));
}

void look_at_environment(Findings& found) {
  const rendezvous::EnvironmentReport report = rendezvous::report_environment();
  found.text("environment", report.found);
  for (const std::string& reason : report.reasons) found.lines.emplace_back("", reason);
  found.event.set("environment_reasons", report.reasons);
}

void look_at_machine(Findings& found) {
  const observe::Cores cores = observe::usable_cores();
  found.text("host", observe::host_name());
  found.text("processor", observe::processor_name());
  found.lines.emplace_back("cores", cores.reason);
  found.event.set("usable_cores", cores.usable).set("online_cores", cores.online);
  const std::int64_t free = observe::memory_available(), limit = observe::memory_limit();
  found.lines.emplace_back("memory", bytes(free) + " free of " + bytes(limit));
  found.event.set("memory_free_bytes", free).set("memory_bytes", limit);
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  found.lines.emplace_back(
      "disk", error ? "unknown" : bytes(static_cast<std::int64_t>(space.available)) + " free here");
  if (!error) found.event.set("disk_free_bytes", static_cast<long>(space.available));
  found.text("default text", default_text());
}

int report(bool json) {
  Findings found;
  look_at_programs(found);
  look_at_devices(found);
  look_at_environment(found);
  look_at_machine(found);
  if (json) {
    std::printf("%s\n", found.event.line().c_str());
    return 0;
  }
  for (const auto& [name, value] : found.lines)
    std::printf("%-13s %s\n", name.c_str(), value.c_str());
  return 0;
}

// Measures, prints and writes a kernel table for this processor.
int tune(const std::string& path) {
  if (!can_write(path)) write_file(path, "", "doctor");  // refused before it measures
  tensor::set_up_process({});
  const auto measured = tensor::measure_products(std::chrono::milliseconds(200));
  const tensor::KernelTable best = tensor::fastest(measured);
  for (const auto& one : measured) {
    std::printf("%-16s %-8s %6.0f GFLOP/s%s\n", one.product.c_str(),
                std::string(name_of(one.library)).c_str(), one.gflops,
                best.*one.column == one.library ? "  <-" : "");
  }
  write_file(path,
             "# `trireme doctor --tune` on " + observe::processor_name() + "\n" + to_toml(best),
             "doctor");
  std::printf("written to %s; use it with --set train.kernel_table=%s\n", path.c_str(),
              path.c_str());
  return 0;
}

}  // namespace

void declare_doctor(Command& command) {
  auto& json = command.keep<bool>();
  auto& table = command.keep<std::string>();
  command.about("What this machine and this build have").footer("Example:\n  trireme doctor");
  command.flag("--json", json, "One JSON line");
  command.option("--tune", table,
                 "Measure matrix products and write a kernel table for this processor");
  command.run([&] {
    if (json && !table.empty())
      refuse("doctor", "--tune cannot be combined with --json",
             "Leave --json out: what --tune measures is for people, and its table is a file.");
    return table.empty() ? report(json) : tune(table);
  });
}

}  // namespace trireme::inline v0::cli
