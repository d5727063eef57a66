// Other programs that this machine has, and what they say of themselves.
#pragma once

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace command {

/// The first of that name on PATH; empty where there is none.
std::string program_on_path(const std::string& name);
/// What `path --version` prints; empty where it cannot be run. `path` is also what it is told that
/// its name is.
std::string version_output(const std::string& path);

struct MpiProgram {
  std::string path, version;  // "/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4"
};
/// Every MPI whose launcher is on PATH, under mpirun, mpiexec or either with a suffix
/// (mpirun.mpich); the one that `mpirun` starts comes first. Each once, however many names it has.
std::vector<MpiProgram> find_mpis();

}  // namespace command
}  // namespace v0
}  // namespace trireme
