// How the coordinator refuses calls, where more than one of its files does. Only for .cc files of
// rendezvous.
#pragma once

#include <grpcpp/grpcpp.h>

namespace trireme::inline v0::rendezvous {

inline grpc::Status store_lost() {
  return {grpc::StatusCode::UNAVAILABLE, "the coordinator has lost its store"};
}
inline grpc::Status no_session() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the call carries no valid session"};
}

}  // namespace trireme::inline v0::rendezvous
