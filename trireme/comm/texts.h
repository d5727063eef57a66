// exchange_texts: every rank gets a text from every rank, such as a table of that rank's tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

/// Collective. Every rank's text, of any length, in rank order.
std::vector<std::string> exchange_texts(const std::string& mine, Communicator& world,
                                        std::string_view label);

}  // namespace trireme::inline v0::comm
