// A StateStore in etcd, which one key holds. Only for state_store.cc.
#pragma once

#include <memory>
#include <string>

#include "trireme/rendezvous/coordinator/state_store.h"

namespace trireme::inline v0::rendezvous {

std::unique_ptr<StateStore> etcd_store(const std::string& address, const std::string& endpoint,
                                       const std::string& key, Duration timeout);

}  // namespace trireme::inline v0::rendezvous
