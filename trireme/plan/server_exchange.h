// The time of one synchronous exchange with parameter servers, as a formula. A pure function.
//
// n workers give their gradients of B bytes to S servers and get new weights. Every worker and every
// server has one link of latency alpha and beta seconds a byte, which carries one message after the
// other in each direction. The parameters are cut evenly, so a server gets B / S bytes of each
// worker.
//
//   gradients   A server's link takes in n B / S bytes. All workers send to server 0 first, then to
//               server 1, ..., so the last server's messages begin (S - 1) B / S bytes later:
//               alpha + (n + S - 1) / S B beta
//   sums        each server adds n gradients, (n - 1) B / S gamma, and answers with the sums of
//               squares, a 2,048th of the bytes: alpha
//   update      the workers say which rate to take: alpha
//   weights     the same bytes the other way: alpha + (n + S - 1) / S B beta
//
// In all 4 alpha + 2 (n + S - 1) / S B beta + (n - 1) / S B gamma: it grows with n, where a ring's
// 2 (n - 1) / n B beta does not. With as many servers as workers it is twice a ring's.
#pragma once

#include "trireme/plan/tuning.h"

namespace trireme::inline v0::plan {

/// `workers` and `servers` >= 1. Updating weights is not counted.
double server_exchange_seconds(const LinkCost& link, int workers, int servers, double bytes);

}  // namespace trireme::inline v0::plan
