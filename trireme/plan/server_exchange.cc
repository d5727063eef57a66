#include "trireme/plan/server_exchange.h"

#include "trireme/base/check.h"

namespace trireme::inline v0::plan {

double server_exchange_seconds(const LinkCost& link, int workers, int servers, double bytes) {
  TRIREME_CHECK(workers >= 1);
  TRIREME_CHECK(servers >= 1);
  const double parts = workers + servers - 1;  // of bytes / servers
  return 4 * link.alpha + 2 * parts / servers * bytes * link.beta +
         double(workers - 1) / servers * bytes * link.gamma;
}

}  // namespace trireme::inline v0::plan
