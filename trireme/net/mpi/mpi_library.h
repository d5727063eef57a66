// MpiLibrary: libtrireme_mpi.so, opened at run time. MpiGroup: one communicator of it.
//
// The library is the first of: the one that TRIREME_MPI_LIBRARY names; libtrireme_mpi.so (built by
// `make mpi`); the library for the MPI that the program has loaded, or whose mpirun started this
// process. The folders are searched in this order: the program's own, ../lib beside it, the
// program's run path (it names the installed folder), and the build folder. A process opens one
// library, and keeps it until the process ends. Used in the progress context, or before one exists.
// Errors in opening or starting are ConfigError; later errors of MPI are PeerLost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/mpi/mpi_abi.h"

namespace trireme::inline v0::net {

/// The library's functions. Starts MPI at the first call. Throws ConfigError.
const TriremeMpi& mpi();
/// Name, version and file of the MPI that mpi() uses, for example "Open MPI v4.1.4, ... (FILE)".
std::string mpi_description();
/// Ends all processes of the job with `code` if mpi() has been used; otherwise returns. Any thread.
void abort_mpi(int code) noexcept;

class MpiGroup {
 public:
  /// Collective over `communicator` (an MPI_Comm*; null: all processes). The group has its first
  /// `size` ranks (0: all). Blocks inside MPI until all ranks have called it.
  explicit MpiGroup(const void* communicator = nullptr, int size = 0);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;

  /// False on ranks at or above `size`.
  bool member() const noexcept { return group_ != nullptr; }
  int rank() const { return functions_.rank(group_); }
  int size() const { return functions_.size(group_); }
  /// Collective all-gather of one string per rank. Throws TimeoutError after `timeout`.
  std::vector<std::string> exchange(Waiter& waiter, const std::string& mine, Duration timeout);
  /// Declares that no peer will send anything more, so the destructor may free all buffers.
  void set_clean() noexcept { clean_ = true; }

  const TriremeMpi& functions() const noexcept { return functions_; }
  TriremeMpiGroup* get() const noexcept { return group_; }
  /// PeerLost with MPI's own error text.
  std::exception_ptr failure() const;

 private:
  /// Returns the strings of all ranks, one after the other; all are as long as `mine`.
  std::string gather(Waiter& waiter, std::string mine, Duration timeout);

  const TriremeMpi& functions_;
  TriremeMpiGroup* group_;
  bool clean_ = false;
};

/// Makes the transport over `group`.
std::shared_ptr<Transport> connect_mpi(std::shared_ptr<Waiter> waiter,
                                       std::unique_ptr<MpiGroup> group);

}  // namespace trireme::inline v0::net
