// Other programs on this machine, and the versions that they report.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::cli {

/// The first program of that name on PATH; empty if there is none.
std::string program_on_path(const std::string& name);
/// The output of `path --version`; empty if it cannot be run.
std::string version_output(const std::string& path);

struct MpiProgram {
  std::string path, version;  // "/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4"
};
/// Every MPI whose launcher is on PATH as mpirun or mpiexec, also with a suffix (mpirun.mpich). One
/// with several names is listed once. The one that `mpirun` starts comes first.
std::vector<MpiProgram> find_mpis();

}  // namespace trireme::inline v0::cli
