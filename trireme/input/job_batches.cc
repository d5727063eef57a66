#include "trireme/input/batches.h"
#include "trireme/job/job.h"

namespace trireme {
inline namespace v0 {

Batches batches(const Job& job, std::shared_ptr<const Dataset> data,
                const BatchesOptions& options) {
  return Batches(std::move(data), options, job.rank(), job.size(), job.waiter());
}

}  // namespace v0
}  // namespace trireme
