#include "trireme/show/server/server_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/joined.h"
#include "trireme/base/plot/doubling_bins.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using Json = nlohmann::ordered_json;
using Request = ServerRun::Request;

constexpr int kColumns = 80;  // of the grid
constexpr std::size_t kBar = 30;

std::string in_ms(double seconds) { return fixed(1e3 * seconds, 1); }
std::string worker_name(int worker) { return "worker " + std::to_string(worker); }

bool held(const Request& request) { return request.answered > request.arrived; }

// The worker whose request at the same server ended this wait; -1: not known.
int releaser_of(const ServerRun& run, const Request& waiting) {
  for (const Request& other : run.requests)
    if (other.server == waiting.server && other.worker != waiting.worker &&
        other.arrived == waiting.answered && other.kind != Request::Kind::Commit)
      return other.worker;
  return -1;
}

std::string for_whom(const ServerWait& wait) {
  return wait.by < 0 ? "" : " for " + worker_name(wait.by);
}

// The step or the wait of this worker at this time; null if there is none.
template <class Span>
const Span* span_at(const std::vector<Span>& spans, int worker, double time) {
  for (const Span& span : spans)
    if (span.worker == worker && span.begin <= time && time < span.end) return &span;
  return nullptr;
}

std::string worker_row(const ServerRun& run, const std::vector<ServerWait>& waits, int worker) {
  std::string row;
  for (int column = 0; column < kColumns; ++column) {
    const double time = run.shown * (column + 0.5) / kColumns;
    const ServerRun::Step* step = span_at(run.steps, worker, time);
    if (step == nullptr)
      row += ' ';
    else if (time < step->sent)
      row += static_cast<char>('0' + step->number % 10);
    else
      row += span_at(waits, worker, time) != nullptr ? '.' : '-';
  }
  return row;
}

std::string server_row(const ServerRun& run, int server) {
  std::vector<int> updates(kColumns, 0);
  for (const ServerRun::Update& update : run.updates)
    if (update.server == server && update.time < run.shown)
      ++updates[static_cast<std::size_t>(update.time / run.shown * kColumns)];
  std::string row;
  for (const int count : updates)
    row += count == 0 ? ' ' : count > 9 ? '+' : static_cast<char>('0' + count);
  return row;
}

std::string grid(const ServerRun& run) {
  const std::vector<ServerWait> waits = waits_of(run);
  const std::string end = in_ms(run.shown) + " ms";
  std::string text = padded("", 10) + padded("0 ms", kColumns - end.size()) + end + "\n";
  for (int worker = 0; worker < run.workers; ++worker)
    text += line_of(padded(worker_name(worker), 10) + worker_row(run, waits, worker));
  for (int server = 0; server < run.servers; ++server)
    text += line_of(padded("server " + std::to_string(server), 10) + server_row(run, server));
  return text +
         "a digit of a worker: the step that it computes; - it exchanges, . it waits; of a server: "
         "updates\n";
}

// "12 (2)": the version that this worker's step made there, and its staleness.
std::string version_text(const ServerRun& run, const Request& request) {
  const bool push = request.kind == Request::Kind::Push;
  for (const ServerRun::Update& update : run.updates) {
    if (update.server != request.server || update.time < request.arrived) continue;
    if (push && (update.worker != request.worker || update.time > request.arrived)) continue;
    return std::to_string(update.version) +
           (push ? " (" + std::to_string(update.staleness) + ")" : "");
  }
  return "-";
}

const Request* request_of(const ServerRun& run, const ServerRun::Step& step, int server) {
  for (const Request& request : run.requests)
    if (request.worker == step.worker && request.step == step.number && request.server == server &&
        request.kind != Request::Kind::Commit)
      return &request;
  return nullptr;
}

std::string pushes(const ServerRun& run) {
  constexpr std::size_t kWide = 11;
  const std::size_t time = std::max<std::size_t>(10, in_ms(run.shown).size() + 4);
  std::vector<ServerRun::Step> steps;
  for (const ServerRun::Step& step : run.steps)
    if (step.sent < run.shown) steps.push_back(step);
  std::ranges::stable_sort(steps, [](const auto& a, const auto& b) { return a.sent < b.sent; });
  std::string head = padded("pushed", time) + padded("worker", 8) + padded("step", 6);
  for (int server = 0; server < run.servers; ++server)
    head += padded("server " + std::to_string(server), kWide);
  std::string text = head + "waits\n";
  const std::vector<ServerWait> waits = waits_of(run);
  for (const ServerRun::Step& step : steps) {
    std::string line = padded(in_ms(step.sent) + " ms", time) +
                       padded(std::to_string(step.worker), 8) +
                       padded(std::to_string(step.number), 6);
    for (int server = 0; server < run.servers; ++server) {
      const Request* request = request_of(run, step, server);
      const bool applied = request != nullptr && !step.dropped;
      line += padded(step.dropped ? "dropped" : applied ? version_text(run, *request) : "-", kWide);
    }
    for (const ServerWait& wait : waits)
      if (wait.worker == step.worker && wait.step == step.number)
        line += in_ms(wait.end - wait.begin) + " ms" + for_whom(wait);
    text += line_of(line);
  }
  return text +
         (staleness_of(run).empty()
              ? "under a server: the version of its weights that the gradient became part of\n"
              : "under a server: the version of its weights that the gradient made, and its "
                "staleness\n");
}

std::string moment_text(const ServerRun& run, const std::vector<ServerWait>& waits, double time) {
  // A worker in none of its steps.
  const auto idle = [&](int worker) {
    for (const ServerRun::Step& step : run.steps)
      if (step.worker == worker && step.begin > time)
        return " has not begun step " + std::to_string(step.number);
    return std::string(" has ended");
  };
  std::string text = in_ms(time) + " ms: ";
  for (int worker = 0; worker < run.workers; ++worker) {
    if (worker > 0) text += ", ";
    text += worker_name(worker);
    const ServerRun::Step* step = span_at(run.steps, worker, time);
    if (const ServerWait* wait = span_at(waits, worker, time))
      text += " waits" + for_whom(*wait);
    else if (step == nullptr)
      text += idle(worker);
    else
      text += (time < step->sent ? " computes step " : " exchanges step ") +
              std::to_string(step->number);
  }
  for (int server = 0; server < run.servers; ++server) {
    std::int64_t version = 0;
    for (const ServerRun::Update& update : run.updates)
      if (update.server == server && update.time <= time) version = update.version;
    text += "; server " + std::to_string(server) + " has version " + std::to_string(version);
  }
  return text;
}

const char* name_of(Request::Kind kind) {
  return kind == Request::Kind::Push ? "push" : kind == Request::Kind::Terms ? "terms" : "commit";
}

}  // namespace

std::vector<ServerWait> waits_of(const ServerRun& run) {
  std::map<std::pair<int, int>, ServerWait> waits;
  for (const Request& request : run.requests) {
    if (!held(request) || request.kind == Request::Kind::Commit) continue;
    const int by = releaser_of(run, request);
    const auto [found, is_new] = waits.try_emplace(
        {request.worker, request.step},
        ServerWait{request.worker, request.step, by, request.arrived, request.answered});
    if (is_new) continue;
    ServerWait& wait = found->second;
    wait.begin = std::min(wait.begin, request.arrived);
    if (request.answered > wait.end) wait.by = by;
    wait.end = std::max(wait.end, request.answered);
  }
  std::vector<ServerWait> list;
  for (const auto& [key, wait] : waits) list.push_back(wait);
  return list;
}

std::map<std::int64_t, std::int64_t> staleness_of(const ServerRun& run) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const ServerRun::Update& update : run.updates)
    if (update.worker >= 0) ++counts[update.staleness];
  return counts;
}

std::vector<double> waited_shares(const ServerRun& run) {
  std::vector<double> shares(static_cast<std::size_t>(run.workers), 0);
  for (const ServerWait& wait : waits_of(run))
    shares[static_cast<std::size_t>(wait.worker)] += (wait.end - wait.begin) / run.end;
  return shares;
}

double rate_of(const ServerRun& run) {
  double steps = 0, last = 0;
  for (const ServerRun::Step& step : run.steps) {
    last = std::max(last, step.end);
    if (!step.dropped) ++steps;
  }
  return last > 0 ? steps / last : 0;
}

std::vector<double> moments(const ServerRun& run) {
  std::set<double> times = {0, run.shown};
  for (const ServerRun::Step& step : run.steps)
    for (const double time : {step.begin, step.sent})
      if (time < run.shown) times.insert(time);
  for (const ServerRun::Update& update : run.updates)
    if (update.time < run.shown) times.insert(update.time);
  return {times.begin(), times.end()};
}

std::string moment_text(const ServerRun& run, double time) {
  return moment_text(run, waits_of(run), time);
}

std::vector<std::string> moment_texts(const ServerRun& run) {
  const std::vector<ServerWait> waits = waits_of(run);
  std::vector<std::string> texts;
  for (const double time : moments(run)) texts.push_back(moment_text(run, waits, time));
  return texts;
}

std::string footer(const ServerRun& run) {
  std::string text;
  const auto add = [&](const std::string& label, const std::string& line) {
    text += line_of(padded(label, 12) + line);
  };
  const std::vector<CountBin> bins = doubling_bins(staleness_of(run));
  std::string label = "staleness";
  std::size_t wide = 8;
  for (const CountBin& bin : bins) wide = std::max(wide, bin.label.size() + 1);
  for (const CountBin& bin : bins)
    add(std::exchange(label, ""),
        padded(bin.label, wide) + padded(percent_text(bin.share), 6) +
            std::string(static_cast<std::size_t>(bin.share * kBar + 0.5), '#'));
  if (bins.empty()) add("staleness", "0: all workers have the same weights");
  std::string waited;
  const std::vector<double> shares = waited_shares(run);
  for (std::size_t worker = 0; worker < shares.size(); ++worker)
    waited += (worker > 0 ? ", " : "") + worker_name(static_cast<int>(worker)) + " " +
              percent_text(shares[worker]);
  add("waited", waited + " of the time");
  const auto rate_text = [](const auto& one) { return one.first + " " + figure_text(one.second); };
  add("rate", joined(run.rates, rate_text) + " steps a second of all workers");
  add("over",
      figure_text(1e3 * run.end) + " ms, of which " + figure_text(1e3 * run.shown) + " are drawn");
  return text;
}

std::string text_of(const ServerRun& run) {
  return run.name + "\n" + run.about + "\n\n" + grid(run) + "\n" + pushes(run) + "\n" + footer(run);
}

std::string json_of(const ServerRun& run) {
  std::string text;
  const auto add = [&text](const Json& line) { text += json_line(line); };
  add({{"event", "show"},
       {"name", run.name},
       {"workers", run.workers},
       {"servers", run.servers},
       {"seconds", run.end}});
  for (const ServerRun::Step& step : run.steps)
    add({{"event", "step"},
         {"worker", step.worker},
         {"step", step.number},
         {"begin", step.begin},
         {"sent", step.sent},
         {"end", step.end},
         {"dropped", step.dropped}});
  for (const ServerRun::Request& request : run.requests) {
    Json line = {{"event", name_of(request.kind)}, {"worker", request.worker},
                 {"step", request.step},           {"server", request.server},
                 {"sent", request.sent},           {"arrived", request.arrived}};
    if (request.answered >= 0) line["answered"] = request.answered;
    add(line);
  }
  for (const ServerRun::Update& update : run.updates)
    add({{"event", "update"},
         {"server", update.server},
         {"worker", update.worker},
         {"time", update.time},
         {"version", update.version},
         {"staleness", update.staleness}});
  Json summary = {{"event", "summary"}, {"waited", waited_shares(run)}};
  summary["staleness"] = Json::object();
  for (const auto& [staleness, count] : staleness_of(run))
    summary["staleness"][std::to_string(staleness)] = count;
  summary["steps_per_second"] = Json::object();
  for (const auto& [rule, rate] : run.rates) summary["steps_per_second"][rule] = rate;
  add(summary);
  return text;
}

}  // namespace trireme::inline v0::show
