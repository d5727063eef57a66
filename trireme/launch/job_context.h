// JobContext: what all parts of a Supervisor need: the job's options, roles, hosts and coordinator,
// and the waiter in whose progress context they run.
//
// The Supervisor owns it and what it points to. Its constructor sets the waiter first and the
// coordinator last; until then only the user's signals are handled.
#pragma once

#include <functional>
#include <utility>

#include "trireme/base/waiter.h"
#include "trireme/launch/hosts/job_hosts.h"
#include "trireme/launch/launch.h"
#include "trireme/rendezvous/coordinator/job_control.h"

namespace trireme::inline v0::launch {

struct JobContext {
  const LaunchOptions& options;
  JobHosts& hosts;
  const rendezvous::Roles roles = options.roles();
  Waiter* waiter = nullptr;
  rendezvous::JobControl* coordinator = nullptr;

  void run_after(Duration delay, std::function<void()> task) const {
    waiter->run_at(waiter->now() + delay, std::move(task));
  }
};

}  // namespace trireme::inline v0::launch
