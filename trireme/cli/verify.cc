// trireme verify: checks an algorithm on many rank counts.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/cli/command.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"
#include "trireme/show/collective/verify.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

struct VerifyCommandOptions {
  std::string collective, algorithm, ranks = "2..16";
  int seeds = 100, hosts = 1;
  bool json = false;
};

// "2..16" or "4": the least and the most.
std::pair<int, int> range_of(const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto least = parse_number<int>(text.substr(0, dots));
  const auto most = dots == text.npos ? least : parse_number<int>(text.substr(dots + 2));
  if (least && most) return {*least, *most};
  refuse("verify", "\"" + text + "\" is no range of ranks", "Write --ranks 4 or --ranks 2..16.");
}

// "3, 5..8"
std::string list_of(const std::vector<show::Flaw>& flaws) {
  std::vector<int> counts;
  for (const show::Flaw& flaw : flaws) counts.push_back(flaw.ranks);
  return joined(show::runs_of(counts), [](const std::pair<int, int>& run) {
    const std::string first = std::to_string(run.first);
    return run.first == run.second ? first : first + ".." + std::to_string(run.second);
  });
}

void print(const show::VerifyOptions& options, const show::Verdict& verdict) {
  const std::string name = show::title_of(options.kind) + " " + options.algorithm;
  if (!verdict.counts.empty()) std::printf("ranks  rounds   sent  runs  formula\n");
  for (const auto& count : verdict.counts) {
    const std::string sent = count.runs > 0 ? show::fixed(count.most_sent, 2) + " S" : "-";
    std::printf("%5d  %6d %6s  %4d  %s\n", count.ranks, count.shape.rounds, sent.c_str(),
                count.runs, show::formula_of(count.shape).c_str());
  }
  if (verdict.flaws.empty()) {
    const std::string hosts =
        options.hosts == 1 ? std::string() : " on " + std::to_string(options.hosts) + " hosts";
    std::printf("%s is right on %d to %d ranks%s: %d simulated runs, every sum, count and byte\n",
                name.c_str(), options.least, options.most, hosts.c_str(), verdict.runs);
    return;
  }
  const show::Flaw& first = verdict.flaws.front();
  std::printf("%s is wrong on %s ranks\n\n%s\n", name.c_str(), list_of(verdict.flaws).c_str(),
              first.what.c_str());
  if (!first.drawing.empty()) std::printf("\n%s\n", first.drawing.c_str());
  if (!first.advice.empty()) std::printf("%s\n", first.advice.c_str());
}

void print_json(const show::VerifyOptions& options, const show::Verdict& verdict) {
  nlohmann::ordered_json event = {{"event", "verify"},
                                  {"collective", show::title_of(options.kind)},
                                  {"algorithm", options.algorithm},
                                  {"hosts", options.hosts},
                                  {"runs", verdict.runs},
                                  {"right", nlohmann::json::array()},
                                  {"wrong", nlohmann::json::array()}};
  for (const auto& count : verdict.counts) {
    event["right"].push_back({{"ranks", count.ranks}, {"rounds", count.shape.rounds}});
    if (count.runs > 0) event["right"].back()["sent"] = count.most_sent;
  }
  for (const auto& flaw : verdict.flaws) {
    event["wrong"].push_back({{"ranks", flaw.ranks},
                              {"what", flaw.what},
                              {"drawing", flaw.drawing},
                              {"advice", flaw.advice}});
  }
  std::fputs(show::json_line(event).c_str(), stdout);
}

bool verify_one(show::VerifyOptions options, bool json) {
  const show::Verdict verdict = show::verify(options);
  json ? print_json(options, verdict) : print(options, verdict);
  return verdict.flaws.empty();
}

int verify_command(const VerifyCommandOptions& options) {
  show::VerifyOptions one{
      .kind = show::kind_named(options.collective), .seeds = options.seeds, .hosts = options.hosts};
  std::tie(one.least, one.most) = range_of(options.ranks);
  bool right = true;
  for (const auto* entry : comm::algorithms_of(one.kind)) {
    if (!options.algorithm.empty() && entry->name != options.algorithm) continue;
    one.algorithm = entry->name;
    right &= verify_one(one, options.json);
  }
  if (!options.algorithm.empty()) show::entry_named(one.kind, options.algorithm);
  return right ? 0 : static_cast<int>(ExitCode::UserCode);
}

}  // namespace

void declare_verify(Command& command) {
  auto& options = command.keep<VerifyCommandOptions>();
  command.about("Check an algorithm: sum, bytes, uneven counts, deadlock")
      .footer("Example:\n  trireme verify all-reduce ring --ranks 2..16");
  command.option("COLLECTIVE", options.collective, "all-reduce, broadcast, ...")
      .required()
      .completes(show::collective_names());
  command.option("ALGORITHM", options.algorithm, "ring, ...; none: all of them")
      .completes(show::registered_algorithms());
  command.option("--ranks", options.ranks, "How many ranks: 4, or 2..16");
  command.option("--seeds", options.seeds, "Runs over the simulated network, on all in turn")
      .between(0, 1'000'000);
  command.option("--hosts", options.hosts, "On how many hosts the ranks lie: evenly, and not")
      .at_least(1);
  command.flag("--json", options.json, "One JSON line per algorithm");
  command.run([&options] { return verify_command(options); });
}

}  // namespace trireme::inline v0::cli
