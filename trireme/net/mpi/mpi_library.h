// MpiLibrary: libtrireme_mpi.so, opened at run time, and MpiGroup: a communicator of it.
//
// Which library: TRIREME_MPI_LIBRARY; else libtrireme_mpi.so (made by `make mpi`); else the one for
// the MPI whose mpirun started this process, or whose library the program has loaded. Looked for
// beside the program, in ../lib, in the program's run path (which names the installed folder), and
// where Trireme was built. One per process; it stays open until the process ends. Progress context,
// or before there is one. What cannot be opened or started is ConfigError, what MPI reports later
// PeerLost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/net/connect.h"
#include "trireme/net/mpi/mpi_abi.h"

namespace trireme {
inline namespace v0 {
namespace net {

/// The functions, with MPI started. Throws ConfigError.
const TriremeMpi& mpi();
/// Which MPI mpi() uses ("Open MPI v4.1.4, ..."), and from which file.
std::string mpi_description();
/// Ends all processes with `code` where mpi() has been used; else returns. Any thread.
void abort_mpi(int code) noexcept;

class MpiGroup {
 public:
  /// Collective over `communicator` (an MPI_Comm*; null: all processes); its first `size` ranks (0:
  /// all). Blocks until they have come, in MPI.
  explicit MpiGroup(const void* communicator = nullptr, int size = 0);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;

  /// False on ranks beyond `size`.
  bool member() const noexcept { return group_ != nullptr; }
  int rank() const { return functions_.rank(group_); }
  int size() const { return functions_.size(group_); }
  /// Collective, without progress of anything else; TimeoutError after `timeout`.
  std::vector<std::string> exchange(Waiter& waiter, const std::string& mine, Duration timeout);
  /// Nothing more comes from any peer: the destructor may free all.
  void set_clean() noexcept { clean_ = true; }

  const TriremeMpi& functions() const noexcept { return functions_; }
  TriremeMpiGroup* get() const noexcept { return group_; }
  /// PeerLost with MPI's own sentence.
  std::exception_ptr failure() const;

 private:
  void gather(Waiter& waiter, const void* mine, std::size_t bytes, void* all, Duration timeout);

  const TriremeMpi& functions_;
  TriremeMpiGroup* group_;
  bool clean_ = false;
};

/// The transport over `group`.
std::shared_ptr<Transport> connect_mpi(std::shared_ptr<Waiter> waiter,
                                       std::unique_ptr<MpiGroup> group);

}  // namespace net
}  // namespace v0
}  // namespace trireme
