#include "trireme/job/gpu_choice.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::inline v0::job {
namespace {

std::string name_of(const std::vector<std::string>& hosts, std::size_t rank) {
  return "rank " + std::to_string(rank) + " on " + hosts[rank];
}

// Throws if ranks of `host` have the same GPU; the message has the arithmetic.
void check_host(const std::string& host, const std::vector<const GpuReport*>& reports, int rank) {
  std::set<std::string> gpus;
  for (const GpuReport* report : reports) gpus.insert(report->uuid);
  if (gpus.size() == reports.size()) return;
  const std::string ranks = std::to_string(reports.size()), there = std::to_string(gpus.size());
  throw ConfigError(ranks + " ranks on " + host + " for " + there +
                        (gpus.size() == 1 ? " GPU" : " GPUs") + " (" + ranks + " > " + there + ")",
                    {.rank = rank,
                     .operation = "join",
                     .label = "comm.transport",
                     .advice = "Start at most " + there +
                               " a host, or look at CUDA_VISIBLE_DEVICES; NCCL takes "
                               "one GPU a rank."});
}

}  // namespace

std::string text_of(const GpuReport& report) {
  if (!report.fault.empty()) return "- " + report.fault;
  return report.uuid + " " + std::to_string(report.nccl_version);
}

GpuReport parse_gpu_report(const std::string& text) {
  GpuReport report;
  if (text.starts_with("- ")) {
    report.fault = text.substr(2);
    return report;
  }
  std::istringstream in(text);
  if (in >> report.uuid >> report.nccl_version) return report;
  return {.fault = "its report makes no sense: " + text};
}

GpuChoice choose_gpu(int local_rank) {
  GpuChoice choice;
  try {
    const auto library = comm::nccl::open_gpu_library();
    const auto gpus = comm::nccl::list_gpus(*library);
    const int index = local_rank % static_cast<int>(gpus.size());
    choice.gpu = std::make_shared<comm::nccl::Gpu>(library, index);
    choice.report = {gpus[static_cast<std::size_t>(index)].uuid, library->nccl_version, {}};
  } catch (const Error& error) {
    choice.report.fault = error.message() + ". " + error.advice();
    std::replace(choice.report.fault.begin(), choice.report.fault.end(), '\n', ' ');
  }
  return choice;
}

void check_gpus(const std::vector<std::string>& hosts, const std::vector<GpuReport>& reports,
                int rank) {
  for (std::size_t one = 0; one < reports.size(); ++one) {
    if (reports[one].fault.empty()) continue;
    throw ConfigError("transport nccl: " + name_of(hosts, one) + ": " + reports[one].fault,
                      {.rank = rank, .operation = "join", .label = "comm.transport", .advice = ""});
  }
  for (const std::string& host : std::set(hosts.begin(), hosts.end())) {
    std::vector<const GpuReport*> here;
    for (std::size_t one = 0; one < reports.size(); ++one) {
      if (hosts[one] == host) here.push_back(&reports[one]);
    }
    check_host(host, here, rank);
  }
  for (std::size_t one = 1; one < reports.size(); ++one) {
    if (reports[one].nccl_version == reports[0].nccl_version) continue;
    const auto version = [&](std::size_t of) {
      return name_of(hosts, of) + " has NCCL " +
             comm::nccl::nccl_version_text(reports[of].nccl_version);
    };
    throw RefusedError(version(0) + ", " + version(one),
                       {.rank = rank,
                        .operation = "join",
                        .label = "comm.transport",
                        .advice = "Give all ranks one NCCL (TRIREME_NCCL_LIBRARY)."});
  }
}

}  // namespace trireme::inline v0::job
