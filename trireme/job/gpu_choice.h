// Chooses a rank's GPU: the one with its local rank. No two ranks may use the same GPU. Every rank
// tells the others what it found, so all ranks refuse with the same reason.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/nccl/gpu.h"

namespace trireme::inline v0::job {

/// A rank's report about its GPUs to the others when they join; one line of text.
struct GpuReport {
  std::string uuid;  // of the chosen GPU
  int nccl_version = 0;
  std::string fault;  // why the rank has no GPU; empty: it has one
};
std::string text_of(const GpuReport& report);
GpuReport parse_gpu_report(const std::string& text);

struct GpuChoice {
  GpuReport report;
  std::shared_ptr<comm::nccl::Gpu> gpu;  // null if report.fault is set
};
/// Chooses GPU number `local_rank` modulo the number of GPUs. Does not throw.
GpuChoice choose_gpu(int local_rank);

/// Throws ConfigError (exit code 2) if a rank has no GPU or ranks of a host share one, RefusedError
/// if NCCL versions differ. `hosts` and `reports` are indexed by rank; `rank` is the caller's.
void check_gpus(const std::vector<std::string>& hosts, const std::vector<GpuReport>& reports,
                int rank);

}  // namespace trireme::inline v0::job
