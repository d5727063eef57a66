#include "trireme/observe/lock_holder.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "trireme/base/parse_number.h"
#include "trireme/base/utf8.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::observe {
namespace {

constexpr std::string_view kTitle = "trireme-lock 1";

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string link_text(const char* path) {
  std::error_code none;
  return std::filesystem::read_symlink(path, none).string();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// State and start time from /proc/PID/stat: "PID (name) S ...", where the start time is field 22.
// The name may contain anything, so fields are counted from the last ')'.
struct ProcessState {
  char state = 0;
  std::int64_t start_time = 0;
};
std::optional<ProcessState> state_of(std::int64_t process) {
  const std::string line = first_line(("/proc/" + std::to_string(process) + "/stat").c_str());
  const auto name_end = line.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 2));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> found.start_time)) return std::nullopt;
  return found;
}

// A zombie ('Z') holds nothing.
Running runs_here(const LockHolder& holder) {
  const auto state = state_of(holder.process);
  // /proc may hide the processes of other users (hidepid).
  if (!state && kill(static_cast<pid_t>(holder.process), 0) != 0 && errno == EPERM)
    return Running::Unknown;
  const bool runs =
      state && state->start_time == holder.start_time && state->state != 'Z' && state->state != 'X';
  return runs ? Running::Yes : Running::No;
}

}  // namespace

LockHolder LockHolder::this_process() {
  const auto state = state_of(getpid());
  // Each value takes one line, but a host may have any name.
  return {.host = escaped(host_name()),
          .machine = escaped(first_line("/etc/machine-id")),
          .boot = escaped(first_line("/proc/sys/kernel/random/boot_id")),
          .processes = escaped(link_text("/proc/self/ns/pid")),
          .process = getpid(),
          .start_time = state ? state->start_time : 0,
          .since = utc_now()};
}

std::string LockHolder::to_text() const {
  std::ostringstream out;
  out << kTitle << "\nhost " << host << "\nmachine " << machine << "\nboot " << boot
      << "\nprocesses " << processes << "\nprocess " << process << "\nstart_time " << start_time
      << "\nsince " << since << "\n";
  return out.str();
}

std::optional<LockHolder> LockHolder::from_text(std::string_view text) {
  LockHolder holder;
  std::istringstream in{std::string(text)};
  std::string line;
  if (!std::getline(in, line) || line != kTitle) return std::nullopt;
  const auto read = [&](std::string_view key, std::string& value) {
    if (!std::getline(in, line) || in.eof() || !line.starts_with(std::string(key) + " "))
      return false;
    value = line.substr(key.size() + 1);
    return is_utf8(value) && std::ranges::none_of(value, is_control);
  };
  const auto number = [&](std::string_view key, std::int64_t& value) {
    std::string digits;
    value = read(key, digits) ? parse_number<std::int64_t>(digits).value_or(-1) : -1;
    return value >= 0;
  };
  const bool whole = read("host", holder.host) && read("machine", holder.machine) &&
                     read("boot", holder.boot) && read("processes", holder.processes) &&
                     number("process", holder.process) && number("start_time", holder.start_time) &&
                     read("since", holder.since);
  return whole ? std::optional(holder) : std::nullopt;
}

std::string LockHolder::describe() const {
  return "process " + std::to_string(process) + " on host " + host + ", since " + since;
}

Running is_running(const LockHolder& holder, const LockHolder& self, bool shared) {
  if (!holder.boot.empty() && holder.boot == self.boot) {
    if (holder.processes.empty() || holder.processes != self.processes) return Running::Unknown;
    return runs_here(holder);
  }
  if (holder.boot.empty() || self.boot.empty()) return Running::Unknown;
  // The holder ran under another kernel. That one is gone if this machine has rebooted, or if the
  // file system has one kernel at a time.
  const bool this_machine =
      !holder.machine.empty() && holder.machine == self.machine && holder.host == self.host;
  return this_machine || !shared ? Running::No : Running::Unknown;
}

bool is_shared_file_system(const std::string& path) {
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return true;
  constexpr std::int64_t kLocal[] = {EXT4_SUPER_MAGIC,     BTRFS_SUPER_MAGIC,
                                     TMPFS_MAGIC,          RAMFS_MAGIC,
                                     F2FS_SUPER_MAGIC,     OVERLAYFS_SUPER_MAGIC,
                                     REISERFS_SUPER_MAGIC, MSDOS_SUPER_MAGIC,
                                     SQUASHFS_MAGIC,       0x58465342 /* XFS */,
                                     0x2FC12FC1 /* ZFS */, 0xCA451A4E /* bcachefs */,
                                     0x3153464A /* JFS */, 0x2011BAB0 /* exFAT */};
  return std::ranges::find(kLocal, static_cast<std::int64_t>(status.f_type)) == std::end(kLocal);
}

}  // namespace trireme::inline v0::observe
