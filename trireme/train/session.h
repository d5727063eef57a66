// Session: what a process of a training has from its start to its end, whatever ranks the job has
// meanwhile: the settings, the data and its Job.
#pragma once

#include <memory>

#include "trireme/job/job.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/run_data.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/schema.h"
#include "trireme/train/worker_spec.h"

namespace trireme::inline v0::train {

/// How a process gets its Job: it joins one, or is a rank simulated over the transport `transport`.
struct Entry {
  int argc = 0;
  char** argv = nullptr;
  std::shared_ptr<net::Transport> transport = nullptr;
  std::shared_ptr<const plan::Tuning> tuning = nullptr;
};

struct Session {
  Session(const Entry& entry, WorkerSpec given);

  const WorkerSpec spec;
  const RunFolder folder;
  const Settings settings;
  const RunData data;
  const bool simulated;
  Job job;
};

}  // namespace trireme::inline v0::train
