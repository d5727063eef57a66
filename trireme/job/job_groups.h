// JobGroups: the communicators of a job: the world, the ranks of this host, and one rank per host.
// An elastic job has others in each epoch. Belongs to the Job. abort(), fail() and failure() are
// thread safe. One thread calls the others that change something, while no other uses the
// communicators.
#pragma once

#include <exception>
#include <memory>
#include <mutex>

#include "trireme/comm/communicator.h"
#include "trireme/rendezvous/places.h"

namespace trireme::inline v0 {

class JobGroups {
 public:
  /// The world is broken at once if the job has failed before.
  void set_world(std::shared_ptr<comm::Communicator> world);
  /// Makes the groups of hosts. Collective over the world.
  void split(const rendezvous::Places& places);
  void drop();
  /// Ends the waits in the present world.
  void abort(const std::exception_ptr& error);
  /// The same, and in all later worlds: the job has failed. The first error is kept.
  void fail(const std::exception_ptr& error);
  std::exception_ptr failure() const;

  comm::Communicator& world() const { return *world_; }
  comm::Communicator& host() const { return *host_; }
  comm::Communicator& across() const { return *across_; }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<comm::Communicator> world_;  // written under mutex_
  std::shared_ptr<comm::Communicator> host_, across_;
  std::exception_ptr failure_;  // guarded by mutex_
};

}  // namespace trireme::inline v0
