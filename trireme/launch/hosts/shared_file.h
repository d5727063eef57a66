// Whether hosts see the same file: a proof of its content.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/file.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {

/// Empty if the file cannot be read.
inline std::string proof_of_file(const std::string& path) {
  const std::optional<std::string> text = try_read_file(path);
  return text ? rendezvous::prove("shared file", {*text}) : std::string();
}

}  // namespace trireme::inline v0::launch
