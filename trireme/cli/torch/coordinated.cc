#include "trireme/cli/torch/coordinated.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/words.h"
#include "trireme/cli/torch/start_ranks.h"
#include "trireme/job/job.h"
#include "trireme/job/options.h"
#include "trireme/launch/output.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/train/run/run_end.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::cli {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr int kLooksPerDial = 5, kLooksPerEnd = 50;

// Whether the run has ended and no coordinator comes within its timeout, which would make this
// process a rank. A lost process may be started again when the job has just ended.
bool has_ended(const rendezvous::RankEnvironment& place, const std::string& run) {
  if (place.secret_file.empty()) return false;
  const std::string secret = rendezvous::read_secret_file(place.secret_file);
  const auto coordinated = [&] { return rendezvous::is_coordinator(place.coordinator, secret); };
  if (coordinated()) return false;  // the usual case; the events are not read
  const std::optional<train::RunEnd> ended = train::run_end(train::RunFolder(run));
  if (!ended) return false;
  for (const TimePoint end = steady_now() + ended->timeout; steady_now() < end;
       std::this_thread::sleep_for(kLookEvery))
    if (coordinated()) return false;
  launch::say("the run in " + run +
              (ended->early ? " has stopped early after step " : " has ended after step ") +
              std::to_string(ended->step) +
              ", and its coordinator is gone: nothing is left to do.");
  return true;
}

// nullopt if no coordinator answers now.
std::optional<rendezvous::CoordinatorClient::Answer> ask(const rendezvous::RankEnvironment& place) {
  try {
    return rendezvous::CoordinatorClient::ask(
        {.endpoint = place.coordinator,
         .secret = place.secret_descriptor >= 0
                       ? rendezvous::peek_secret_descriptor(place.secret_descriptor)
                       : rendezvous::read_secret_file(place.secret_file),
         .job = place.job,
         .rank = place.process(),
         .timeout = std::chrono::seconds(1)});
  } catch (const TimeoutError&) {
  } catch (const PeerLost&) {  // it has just ended
  }
  return std::nullopt;
}

// Whether other workers of the job train.
bool has_workers(const rendezvous::RankEnvironment& place) {
  const auto answer = ask(place);
  return answer && answer->has_workers;
}

// Process 0 waits for server 0, beside which the coordinator is: it may start much later. False if the
// run has ended meanwhile.
bool await_server(const rendezvous::RankEnvironment& place, const std::string& run) {
  if (place.secret_file.empty()) return true;  // the Job refuses it
  const std::string secret = rendezvous::read_secret_file(place.secret_file);
  const TimePoint end = steady_now() + job::resolve_options({}).timeout_user_code;
  for (int looks = 0; !rendezvous::is_coordinator(place.coordinator, secret); ++looks) {
    if (looks == 0) launch::say("waits for server 0, beside which the coordinator is");
    if (looks % kLooksPerDial == 0 && has_ended(place, run)) return false;
    if (steady_now() > end) return true;  // the Job says that it is not there
    std::this_thread::sleep_for(kLooksPerDial * kLookEvery);
  }
  return true;
}

int become_rank(const rendezvous::RankEnvironment& place, int argc, char** argv,
                const train::WorkerSpec& spec) {
  if (has_ended(place, spec.folder)) return 0;
  const bool first = place.coordinator_beside_server && place.process() == 0;
  if (first && !await_server(place, spec.folder)) return 0;
  return run_process(place.role, argc, argv, spec);
}

}  // namespace

std::optional<rendezvous::RankEnvironment> under_coordinator() {
  rendezvous::RankEnvironment place = rendezvous::resolve_environment();
  if (!(place.elastic || place.on_its_own) || !place.launcher.empty()) return std::nullopt;
  place.launcher = "the coordinator's job";
  return place;
}

int run_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                          const train::WorkerSpec& spec) {
  train::WorkerSpec own = spec;
  own.resume = true;  // if there is a checkpoint: the job may have been started again
  const std::string file = train::RunFiles(spec.folder).worker_spec();
  const std::string before = try_read_file(file).value_or("");
  // If this process was started again, train.max_time counts from the job's start.
  if (!before.empty() && has_workers(place)) own.began = train::WorkerSpec::from_text(before).began;
  train::write_whole(file, own.elsewhere().to_text());
  const int code = become_rank(place, argc, argv, own);
  std::error_code none;
  if (code == 0 || code == 128 + SIGINT || code == 128 + SIGTERM)
    std::filesystem::remove(file, none);
  return code;
}

int follow_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                             const std::string& folder) {
  const std::string path = train::RunFiles(folder).worker_spec();
  const JobOptions options = job::resolve_options({});
  const TimePoint end = steady_now() + options.timeout_user_code;
  TimePoint lost = TimePoint::max();   // until when to wait for a coordinator that once answered
  TimePoint first = TimePoint::max();  // until when to wait for process 0 once the job has begun
  std::error_code none;
  // A job that was killed as a whole may have left a file for another configuration. The file is
  // this job's if a worker is there, since process 0 writes it first, or if the job has begun: then
  // process 0 may never come.
  for (int looks = 0;; ++looks, std::this_thread::sleep_for(kLookEvery)) {
    const bool is_prepared = std::filesystem::exists(path, none);
    if (looks % (is_prepared ? kLooksPerDial : kLooksPerEnd) == 0) {
      const auto answer = ask(place);
      const bool is_alone = answer && is_prepared && answer->has_begun && !answer->has_workers;
      first = is_alone ? std::min(first, steady_now() + options.timeout) : TimePoint::max();
      const bool comes_first = steady_now() > first;
      if ((answer && is_prepared && answer->has_workers) || comes_first) {
        if (comes_first)
          launch::say("process 0 has not come for " + duration_text(to_seconds(options.timeout)) +
                      "; the job has begun, and goes on with what is in " + folder);
        // Process 0 may just have ended, and removed it: has_ended() will say so.
        if (const auto text = try_read_file(path))
          return become_rank(place, argc, argv, train::WorkerSpec::from_text(*text));
      }
      if (answer) lost = steady_now() + std::max(answer->returns_within, options.timeout);
    }
    const bool is_lost = steady_now() > lost;
    if ((is_lost || looks % kLooksPerEnd == 0) && has_ended(place, folder)) return 0;
    if (is_lost && !ask(place))
      throw TimeoutError("process 0 has not prepared " + folder + ", and the coordinator at " +
                             place.coordinator + " is gone",
                         {.operation = "train",
                          .advice = "See the coordinator's last lines. Start it again, then "
                                    "process 0 and this one."});
    if (looks == 0) launch::say("waits for process 0, which prepares " + folder);
    if (steady_now() > end)
      throw TimeoutError(
          "process 0 has not prepared " + folder,
          {.operation = "train", .advice = "Start it, and put the run on a disk that all share."});
  }
}

}  // namespace trireme::inline v0::cli
