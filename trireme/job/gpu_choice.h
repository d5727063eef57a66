// Which GPU is a rank's: the one of its local rank, and no two ranks' the same. Every rank tells
// the others what it found, so that all of them refuse with the same reason.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/nccl/gpu.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// What a rank says of its GPUs when the ranks meet; one line.
struct GpuReport {
  int count = 0;     // GPUs that it may use
  std::string uuid;  // of the one that it takes
  int nccl_version = 0;
  std::string fault;  // why it has none; empty: it has one
};
std::string text_of(const GpuReport& report);
GpuReport parse_gpu_report(const std::string& text);

struct GpuChoice {
  GpuReport report;
  std::shared_ptr<comm::nccl::Gpu> gpu;  // null where report.fault says why
};
/// The GPU of `local_rank`, counted round. Throws nothing.
GpuChoice choose_gpu(int local_rank);

/// Throws ConfigError (exit 2) where a rank has no GPU or ranks of a host share one, RefusedError
/// where their NCCLs differ. hosts and reports by rank; `rank` is the caller's.
void check_gpus(const std::vector<std::string>& hosts, const std::vector<GpuReport>& reports,
                int rank);

}  // namespace job
}  // namespace v0
}  // namespace trireme
