// Texts that all ranks exchange: tables of the shards that each one has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::checkpoint {

/// Collective. Every rank's text, of any length, in rank order.
std::vector<std::string> exchange_texts(const std::string& mine, comm::Communicator& world,
                                        std::string_view label);

}  // namespace trireme::inline v0::checkpoint
