// Whether hosts see the same file: a proof of its content.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {

/// Empty if the file cannot be read.
inline std::string proof_of_file(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return rendezvous::prove("shared file", {text.str()});
}

}  // namespace trireme::inline v0::launch
