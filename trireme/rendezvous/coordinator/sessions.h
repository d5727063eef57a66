// Sessions: the secret token that each joined process has got, and sends with every call.
//
// A part of JobState, under its lock. Only for .cc files of rendezvous.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

inline grpc::Status no_session() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the call carries no valid session"};
}

class Sessions {
 public:
  explicit Sessions(int processes) : tokens_(static_cast<std::size_t>(processes)) {}

  /// The process that `session` authenticates, or -1.
  int process_of(const wire::Session& session) const {
    const std::size_t process = session.rank();
    if (process >= tokens_.size() || tokens_[process].empty()) return -1;
    return same_proof(tokens_[process], session.token()) ? static_cast<int>(process) : -1;
  }
  /// Returns the new token of the process: `wanted`, or a random one if that is no token. An earlier one is no
  /// longer valid.
  const std::string& begin(int process, const std::string& wanted = {}) {
    return tokens_[static_cast<std::size_t>(process)] =
               wanted.size() == kSecretBytes ? wanted : random_bytes(kSecretBytes);
  }
  /// An earlier coordinator has given it this token.
  void resume(int process, std::string token) {
    tokens_[static_cast<std::size_t>(process)] = std::move(token);
  }
  void end(int process) { tokens_[static_cast<std::size_t>(process)].clear(); }
  /// Empty: it has no session.
  const std::string& token(int process) const { return tokens_[static_cast<std::size_t>(process)]; }

 private:
  std::vector<std::string> tokens_;
};

}  // namespace trireme::inline v0::rendezvous
