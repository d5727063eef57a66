#include "trireme/parallel/seat.h"

#include "trireme/job/job.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

Seat seat_of(Job& job) {
  return {.world = &job.world(),
          .host = job.host_name(),
          .stop_signal = [&job] { return job.stop_signal(); },
          .input_plan = [&job] { return job.input_plan(); },
          .set_step = [&job](long step) { job.set_step(step); }};
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
