// The work of workers and parameter servers, recorded on the simulated network: who computed and
// pushed when, which version of the weights came of it, how stale each gradient was, and who waited
// for whom. `trireme show server` draws it (cli/torch/show records it).
//
// Plain values and pure functions; times are seconds of the virtual clock from the first step on.
// The drawings show the beginning of the run, and figures of the whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::inline v0::show {

struct ServerRun {
  /// One step of a worker: computes until `sent`, and has its answers at `end`.
  struct Step {
    int worker = 0, number = 1;
    double begin = 0, sent = 0, end = 0;
    bool dropped = false;  // backup workers: the servers had enough gradients without it
  };
  /// The message of a worker to one server in a step.
  struct Request {
    enum class Kind {
      Push,   // a gradient that is applied when it arrives
      Terms,  // synchronous: a gradient that is kept until all are here
      Commit  // synchronous: the update, which the first worker's request makes
    };
    Kind kind = Kind::Push;
    int worker = 0, step = 1, server = 0;
    double sent = 0, arrived = 0, answered = -1;  // -1: not answered
  };
  /// A new version of a server's weights.
  struct Update {
    int server = 0, worker = -1;  // -1: of all workers together
    double time = 0;
    std::int64_t version = 0, staleness = 0;
  };

  std::string name, about;  // "4 workers, 2 servers, staleness up to 2"; one line
  int workers = 1, servers = 1;
  double shown = 0, end = 0;  // seconds that are drawn, and of the run
  std::vector<Step> steps;    // by begin
  std::vector<Request> requests;
  std::vector<Update> updates;
  /// Steps a second of all workers together under this and other rules, for comparison.
  std::vector<std::pair<std::string, double>> rates;
};

/// A time in which a server held back a worker's answer, until worker `by` sent the awaited message
/// (-1: not known).
struct ServerWait {
  int worker = 0, step = 1, by = -1;
  double begin = 0, end = 0;
};
/// One wait per step that had any, from the first server that held it back to the last.
std::vector<ServerWait> waits_of(const ServerRun& run);

/// How many updates there were by staleness, over all servers. Empty if all are synchronous.
std::map<std::int64_t, std::int64_t> staleness_of(const ServerRun& run);
/// The share of the run for which each worker waited.
std::vector<double> waited_shares(const ServerRun& run);
/// Steps a second of all workers together, without dropped ones.
double rate_of(const ServerRun& run);

/// The times at which something begins in what is shown, ascending: the steps of the page.
std::vector<double> moments(const ServerRun& run);
/// "31.2 ms: worker 0 waits for worker 3, worker 1 computes step 4; server 0 has version 7".
std::string moment_text(const ServerRun& run, double time);
/// moment_text() of each of moments().
std::vector<std::string> moment_texts(const ServerRun& run);

/// Staleness, waits and rates, as lines "label  text".
std::string footer(const ServerRun& run);
std::string text_of(const ServerRun& run);
std::string json_of(const ServerRun& run);
std::string svg_of(const ServerRun& run);
std::string html_of(const ServerRun& run);

}  // namespace trireme::inline v0::show
