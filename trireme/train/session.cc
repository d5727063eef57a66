#include "trireme/train/session.h"

#include <utility>

#include "trireme/net/alone_transport.h"
#include "trireme/observe/trace.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/tensor/processor.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/train/device.h"
#include "trireme/train/report/report.h"

namespace trireme::inline v0::train {
namespace {

// Compared in reproducible jobs only: ranks of others may be on different machines.
std::string what_decides_bits(const std::string& device) {
  return "processor = " + tensor::describe_processor() +
         "\nproducts = " + tensor::describe(tensor::kernel_table()) + "\n" +
         (device == "cpu" ? std::string() : "device = " + describe_devices(device) + "\n");
}

JobOptions job_options(const Settings& settings, const RunData& data, const WorkerSpec& spec) {
  JobOptions options = settings.job;
  if (!spec.trace.empty()) options.trace = std::make_shared<observe::Trace>();
  options.identity += "data = " + data.corpus->hash() + "\n";
  if (options.reproducible) options.identity += what_decides_bits(spec.device);
  if (!spec.transport.empty()) options.transport = spec.transport;
  return options;
}

Job job_of(const Entry& entry, JobOptions options) {
  return entry.transport ? Job(entry.transport, std::move(options), entry.tuning)
                         : Job(entry.argc, entry.argv, std::move(options));
}

}  // namespace

Session::Session(const Entry& entry, WorkerSpec given)
    : spec(std::move(given)),
      folder(spec.folder),
      settings(read_settings(spec)),
      data(settings, spec),
      simulated(entry.transport != nullptr),
      job(job_of(entry, job_options(settings, data, spec))) {}

Session::~Session() { warn_of_lost(unwritten_events.size(), folder); }

bool Session::alone() const {
  return parallel::is_served(settings.strategy.sync) && settings.strategy.server.alone();
}

BatchesOptions Session::batches() const {
  BatchesOptions options = settings.batches;
  if (!alone()) return options;
  const std::int64_t workers = job.size(), rank = job.rank();
  options.batch /= workers;
  options.every = workers;
  // Workers beyond the number at the start read batches that come after the end.
  options.first = rank % workers + rank / workers * workers * settings.steps;
  return options;
}

std::unique_ptr<Job> Session::own_job() const {
  if (!alone()) return nullptr;
  return std::make_unique<Job>(std::make_shared<net::AloneTransport>(job.waiter()), job.options(),
                               nullptr);
}

}  // namespace trireme::inline v0::train
