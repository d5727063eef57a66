#include "trireme/job/job.h"

#include "trireme/job/job_changes.h"

namespace trireme::inline v0 {

int run_elastic(Job& job, const std::function<int()>& body) {
  JobChanges& changes = job.changes();
  for (;;) {
    try {
      return body();
    } catch (const RanksChanged&) {
    } catch (const Error& error) {
      if (!JobChanges::may_go_on_after(error) || !changes.await(job.options().timeout)) throw;
    }
    job.activity("regroup");
    changes.enter_next();
    job.activity("train");
  }
}

}  // namespace trireme::inline v0
