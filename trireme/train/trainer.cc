#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/base/waiter.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/comm/trace/gather_trace.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/job/job_input.h"
#include "trireme/job/stop_signal.h"
#include "trireme/observe/machine.h"
#include "trireme/observe/trace.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/train/device.h"
#include "trireme/train/early_stop.h"
#include "trireme/train/evaluation/forward_model.h"
#include "trireme/train/evaluation/generate.h"
#include "trireme/train/report/kernel_profile.h"
#include "trireme/train/report/recorded_passes.h"
#include "trireme/train/report/report.h"
#include "trireme/train/report/step_figures.h"
#include "trireme/train/report/trigram.h"
#include "trireme/train/run/resume_changes.h"
#include "trireme/train/session.h"

namespace trireme::inline v0::train {
namespace {

constexpr long kTimedSteps = 3;  // after them the expected time is printed

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string subtitle(const Settings& settings, const RunData& data, int ranks) {
  const DataWords& words = settings.model.data->words();
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " · " + data.corpus->source() +
         " · " + grouped(settings.batches.batch * words.items_per_sample) + " " + words.items +
         " a step";
}

parallel::StrategyContext context_of(Job& job, Job& joined) {
  parallel::StrategyContext env = parallel::context_of(job), all = parallel::context_of(joined);
  env.servers = std::move(all.servers);
  env.note_stop = std::move(all.note_stop);
  return env;
}

// Steps in the events after `first`, which are done again.
long steps_repeated(const observe::History& past, long first) {
  if (past.training.empty()) return 0;
  return std::max(0l, static_cast<long>(past.training.back().first) - first);
}

// Runs a training job on one rank: config -> Job -> Blocks -> Strategy -> steps.
//
// All ranks run the same code; only rank 0 prints, writes events and draws the plot. Sees the model
// and the layout only through Strategy. One per process (or simulated rank); not thread safe.
class Trainer {
 public:
  explicit Trainer(Session& session)
      : session_(session),
        own_(session.own_job()),
        job_(own_ ? *own_ : joined_),
        leads_(joined_.rank() == 0),
        device_(session.simulated
                    ? share_device(spec_.device, job_.rank())
                    : take_device(spec_.device, joined_.local_rank(), settings_.ranks_per_device)),
        strategy_(context_of(job_, joined_), settings_.model.blocks, strategy_options(),
                  settings_.optimizer),
        batches_(batches(job_, data_.train, batch_options())),
        changed_(recorded_changes(folder_)),
        early_stop_(settings_.patience, settings_.min_improvement),
        checkpointer_(job_, folder_.checkpoint(),
                      checkpoint_options(settings_, data_.corpus->hash(), changed_,
                                         folder_.claim(spec_.claim))),
        profile_(leads_ ? session.spec.profile : "", device_) {
    if (!settings_.strategy_name.empty())
      plan::check_ranks(plan::find_strategy(settings_.strategy_name), joined_.size(),
                        joined_.num_hosts());
    checkpointer_.add("train", strategy_)
        .add("data", changed_.empty() && !own_ ? static_cast<Saveable&>(batches_) : changed_input_)
        .add("early_stop", early_stop_);
  }

  // Measures the last step: the first one also allocates memory and sets up kernels.
  int run_trial() {
    Report silent(folder_, {.silent = true});
    std::shared_ptr<void> snapshot;  // a training has one while a checkpoint is written
    for (long step = 0; step < kTrialSteps; ++step) {
      if (step + 1 == kTrialSteps) snapshot = checkpointer_.rehearse();
      train_one(silent, step);
    }
    const auto bytes = static_cast<long>(
        largest(spec_.device == "cpu" ? observe::peak_memory_bytes() : peak_device_bytes(device_)));
    if (!leads_) return 0;
    observe::EventWriter events;
    events.open(folder_.events());
    events.write(observe::Event("trial")
                     .set("step_seconds", step_seconds_.back())
                     .set("measured_memory_bytes", bytes));
    return 0;
  }

  int run() {
    if (spec_.trial) return run_trial();
    const bool regrouped = joined_.changes().epoch().number > 0;
    const bool later = joined_.joined_later();  // a worker that trains on its own
    const long saved = spec_.resume || regrouped || (later && leads_) ? restore() : 0;
    const long first = later ? join_later(saved) : saved;
    if ((regrouped || later) && leads_)
      past_ = observe::read_history(folder_.events(), session_.unwritten_events);
    const bool goes_on = regrouped || !past_.validation.empty();
    if (!own_) check_counts(first, batches_.position(), strategy_.metadata());
    Report report(folder_, report_options(first));
    if (leads_ && settings_.max_time)  // the others learn of the stop from the vote
      job::stop_at(TimePoint(Duration(spec_.began)) + *settings_.max_time, "train.max_time");
    // Nothing waits for the baseline for text until the end.
    if (leads_ && !past_.trigram && settings_.model.context > 0 &&
        has_trigrams(data_.corpus->train(), data_.corpus->validation()))
      trigram_.emplace(data_.corpus->train(), data_.corpus->validation());
    const StrategyNotes notes = strategy_.notes();
    if (const std::string note = notes.stages + notes.servers; !note.empty() && !goes_on)
      report.line(note.substr(0, note.find_last_not_of('\n') + 1));
    began_ = job_.waiter()->now();
    goes_on ? take_up(report, first) : begin(report, first);
    long done = first;  // steps
    while (!interrupted_ && done < settings_.steps && !early_stop_.reached() &&
           !joined_.training_ended()) {
      const long step = done;
      const int signal = train_one(report, step);
      if (step == first && regrouped) tell_regrouping(report, first);
      // Servers count the steps of all workers that train on their own, so `done` may skip numbers.
      done =
          own_ ? std::max(done, std::min<long>(strategy_.steps_done(), settings_.steps)) : done + 1;
      const bool last = done >= settings_.steps;
      tell_trigram(report, last);
      if (signal >= 128 && !last) return stop(report, done, signal);
      const auto every = settings_.validate_every;
      if (leads_or_joins() && (last || (every > 0 && done / every > step / every))) {
        outcome_.last_validation = validate(report, done);
        if (interrupted_) break;
        if (outcome_.last_validation) {
          early_stop_.judge(done, *outcome_.last_validation);
          checkpointer_.validated(*outcome_.last_validation);
        }
        tell_servers(report, done);
        report.plot();
      }
      if (!last) {  // finish() saves the last step
        const auto span = traced("checkpoint");
        for (long ended = step; ended < done && leads_or_joins(); ++ended)
          checkpointer_.after(ended);
        tell_saved(report);
      }
      if (const std::string why = step == first ? strategy_.notes().lanes : ""; !why.empty())
        report.line("one lane instead of " + std::to_string(settings_.strategy.lanes) + ": " + why);
      if (step_seconds_.size() == kTimedSteps && !goes_on && !last) expect(report, first);
    }
    if (interrupted_) return stop(report, done, strategy_.stop_signal());
    if (early_stop_.reached()) {
      report.early_stop(done, early_stop_.best_loss(), static_cast<long>(early_stop_.best_step()));
      tell_trigram(report, /*needed=*/true);
    }
    return finish(report, first, done);
  }

 private:
  // Keeps the values with which the run is resumed if its checkpoint fits them.
  long restore() {
    try {
      const long saved = checkpointer_.resume();
      if (leads_) folder_.drop_former_config();
      return saved;
    } catch (const Error& error) {
      // If a rank was lost, the job may go on with these values, or the next start looks again.
      if (leads_ && !JobChanges::may_go_on_after(error)) folder_.take_former_config();
      throw;
    }
  }

  void tell_saved(Report& report) {
    if (const auto saved = checkpointer_.take_report()) report.saved(*saved);
  }

  void begin(Report& report, long first) {
    const std::string checkpoint = folder_.checkpoints().path_of(first);
    if (first > 0) report.resumed({first, joined_.size(), joined_.roles().servers, checkpoint});
    outcome_.first_validation = outcome_.last_validation = validate(report, first);
    validation_seconds_ = to_seconds(job_.waiter()->now() - began_);
    const auto every = settings_.validate_every;
    const bool due = first == 0 || (every > 0 && first % every == 0 && early_stop_.lacks(first));
    if (due && outcome_.first_validation) early_stop_.judge(first, *outcome_.first_validation);
  }

  // The servers' count of steps. Rank 0 takes at least one step, since it saves after a step.
  long join_later(long saved) {
    const long last = static_cast<long>(settings_.steps) - (leads_ ? 1 : 0);
    const long first = std::max(saved, std::min(static_cast<long>(strategy_.steps_done()), last));
    batches_.seek(first);
    return first;
  }

  // After the ranks have changed, the run's events say what has been done.
  void take_up(Report& report, long first) {
    if (const long repeated = steps_repeated(past_, first); repeated > 1)
      report.line("the job goes back from step " + grouped(first + repeated) + " to step " +
                  grouped(first) +
                  (own_ ? ", of which it has a checkpoint"
                        : ": the ranks do not have all parts of any later step "
                          "(checkpoint.memory)"));
    if (!past_.validation.empty()) {
      outcome_.first_validation = past_.validation.front().second;
      outcome_.last_validation = past_.validation.back().second;
    }
    if (past_.trigram) report.trigram(*past_.trigram, /*told=*/true);
    const bool lacks = first > 0 && (past_.training.empty() ||
                                     past_.training.back().first < static_cast<double>(first));
    if (const auto figures = last_step(job_.world(), lacks, first, session_.last_step))
      report.step(*figures);
    // Ranks that went on may have judged a loss that is not in the events, or the reverse.
    const auto every = settings_.validate_every;
    const bool due = leads_ && (first >= settings_.steps || (every > 0 && first % every == 0)) &&
                     (early_stop_.lacks(first) || past_.validation.empty() ||
                      past_.validation.back().first < static_cast<double>(first));
    if (largest(due) == 0) return;
    outcome_.last_validation = validate(report, first);
    if (outcome_.last_validation) early_stop_.judge(first, *outcome_.last_validation);
  }

  void tell_regrouping(Report& report, long first) {
    const rendezvous::Epoch epoch = joined_.changes().epoch();
    report.regrouped({.step = first,
                      .epoch = static_cast<long>(epoch.number),
                      .ranks = joined_.size(),
                      .cause = epoch.cause,
                      .steps_repeated = steps_repeated(past_, first),
                      .seconds = to_seconds(steady_now() - joined_.changes().told())});
  }

  // Whether this rank validates and saves: all that train together do; of the others, rank 0.
  bool leads_or_joins() const { return leads_ || !own_; }

  BatchesOptions batch_options() const {
    BatchesOptions options = session_.batches();
    options.device = device_;
    // A simulated rank's clock does not know a thread that reads ahead.
    if (session_.simulated) options.prefetch = 0;
    return options;
  }

  // The Strategy measures blocks on a micro-batch of the validation data.
  StrategyOptions strategy_options() const {
    StrategyOptions options = settings_.strategy;
    options.device = device_;
    if (!spec_.recompute.empty()) options.recompute = spec_.recompute;
    options.example = [this] {
      return input::example_of(*data_.validation, settings_.batches.micro);
    };
    return options;
  }

  ReportOptions report_options(long first) const {
    return {.silent = !leads_,
            .json = spec_.json,
            .terminal = spec_.terminal,
            .ranks = joined_.size(),
            .goes_on = joined_.changes().epoch().number > 0 || joined_.joined_later(),
            .unwritten = &session_.unwritten_events,
            .steps = static_cast<long>(settings_.steps),
            .first = first,
            .title = base_name(folder_.path()),
            .subtitle = subtitle(settings_, data_, joined_.size()),
            .unit = words().unit,
            .items = words().items};
  }

  const DataWords& words() const { return settings_.model.data->words(); }

  // Runs one step; returns the stop signal on which the ranks agreed in it, or 0.
  int train_one(Report& report, long step) {
    joined_.set_step(step);
    const TimePoint start = job_.waiter()->now();
    const Duration input_before = batches_.time_waited();
    const double rate = optim::learning_rate(settings_.schedule, step);
    strategy_.set_learning_rate(rate);
    const Batch batch = [&] {
      const auto span = traced("input");
      return batches_.next();
    }();
    profile_.begin();
    const StepResult result = strategy_.step(batch, settings_.model.loss);
    const double took = to_seconds(job_.waiter()->now() - start);
    tell_profile(report, step + 1 == settings_.steps);
    // Not result.count: with masked text, the loss counts only the targets. Workers that train on
    // their own have a share of the batch each; the others are taken to be as fast as this one.
    const std::int64_t items = settings_.batches.batch * words().items_per_sample;
    step_seconds_.push_back(took);
    observe::StepFigures figures = figures_of(result);
    figures.step = step + 1;
    figures.step_seconds = took;
    if (took > 0) figures.items_per_second = static_cast<double>(items) / took;
    figures.input_seconds = to_seconds(batches_.time_waited() - input_before);
    if (const auto bytes = static_cast<long>(peak_device_bytes(device_)); bytes > 0)
      figures.device_bytes = bytes;
    if (spec_.product_seconds > 0 && took > 0)
      figures.model_flops_utilization = spec_.product_seconds / took;
    if (settings_.strategy.outliers.limit != 0)
      figures.skipped_steps = static_cast<long>(result.skipped_steps);
    session_.last_step = figures;
    report.step(figures);
    if (result.share_change) report.shares(step + 1, *result.share_change);
    if (!result.skipped.empty()) report.skipped(step + 1, result.skipped);
    return result.stop_signal;
  }

  void tell_profile(Report& report, bool last) {
    if (profile_.end(last))
      report.line("the operators and kernels of some steps are in " + profile_.path());
    if (last && profile_.lacks())
      report.line("no profile was written to " + profile_.path() + ": it covers steps " +
                  std::to_string(KernelProfile::kWarmUp + 1) + " to " +
                  std::to_string(KernelProfile::kWarmUp + KernelProfile::kSteps) +
                  " of a start, and this start took fewer steps");
  }

  // If it is `needed` and the low-priority thread has not finished, counts again here.
  void tell_trigram(Report& report, bool needed) {
    if (!trigram_) return;
    std::optional<double> loss = trigram_->result();
    if (!loss && !needed) return;
    if (!loss) {
      joined_.activity("count a trigram");
      loss = trigram_->count_now();
      joined_.activity("train");
    }
    trigram_.reset();
    report.trigram(*loss);
  }

  std::optional<double> validate(Report& report, long step) {
    if (!leads_or_joins() || !spec_.validates) return std::nullopt;
    joined_.activity("validation");
    const auto span = traced("validation");
    const auto held_out =
        held_out_batches(job_, settings_, *data_.validation, settings_.validate_samples);
    strategy_.use_average(true);
    const auto result = evaluate(strategy_, settings_.model, held_out, /*until_stop=*/true);
    strategy_.use_average(false);
    joined_.activity("train");
    if ((interrupted_ = !result)) return std::nullopt;
    report.validation(step, result->loss, static_cast<long>(result->count), result->accuracy);
    return result->loss;
  }

  // Reports what the servers counted, if the workers train on their own.
  void tell_servers(Report& report, long step) {
    if (!leads_ || !own_) return;
    outcome_.servers = ps::ServerFigures::from_text(strategy_.server_figures());
    report.servers(step, *outcome_.servers);
  }

  // The first step also allocates memory and sets up kernels, so the pace is that of the next two.
  void expect(Report& report, long first) {
    const double pace = (step_seconds_[1] + step_seconds_[2]) / 2;
    const auto left = static_cast<double>(settings_.steps - first - kTimedSteps);
    const auto every = static_cast<double>(settings_.validate_every);
    const double validations = every > 0 ? std::floor(left / every) + 1 : 1;
    report.expected(pace * left + validations * validation_seconds_);
  }

  int stop(Report& report, long steps_done, int signal) {
    if (leads_or_joins()) checkpointer_.save_and_wait(steps_done);
    tell_saved(report);
    if (profile_.lacks()) tell_profile(report, /*last=*/true);
    tell_servers(report, steps_done);
    write_trace();
    report.plot();
    report.close();
    const std::string saved = "; checkpoint written to " + folder_.checkpoint();
    report.line("stopped by " + job::stop_cause() + " after step " + grouped(steps_done) +
                (steps_done >= settings_.steps ? ", the last one, during its validation" : "") +
                (steps_done > 0 ? saved : ""));
    return signal;
  }

  int finish(Report& report, long first, long done) {
    joined_.changes().note_agreed_stop(0);  // a signal in the last step changes nothing
    if (leads_or_joins()) checkpointer_.save(done);
    outcome_.measured_seconds = to_seconds(job_.waiter()->now() - began_);
    outcome_.one_process = settings_.job.transport == "sim";
    (spec_.device == "cpu" ? outcome_.predicted_bytes : outcome_.predicted_device_bytes) =
        static_cast<double>(spec_.predicted_bytes);
    outcome_.measured_device_bytes = static_cast<double>(largest(peak_device_bytes(device_)));
    outcome_.predicted_step = spec_.predicted_step;
    outcome_.measured_step = median(step_seconds_);
    outcome_.measured_bytes = static_cast<double>(largest(observe::peak_memory_bytes()));
    take_costs(done - first);
    if (const std::string graphs = strategy_.notes().graphs; !graphs.empty()) report.line(graphs);
    strategy_.use_average(true);  // on all ranks
    // If weights are sharded, all ranks take part and generate the same text; a rank that generates
    // alone ends the text when it is asked to stop.
    const bool alone = strategy_.has_whole_weights();
    if (settings_.sample_bytes > 0 && settings_.model.context > 0 && (leads_ || !alone)) {
      joined_.activity("generate");
      outcome_.sample =
          generate(strategy_, settings_.model.context, "\n",
                   {.bytes = settings_.sample_bytes,
                    .seed = settings_.batches.seed,
                    .multiple = settings_.strategy.sequence      ? settings_.strategy.tensor
                                : settings_.strategy.context > 1 ? 2 * settings_.strategy.context
                                                                 : 1,
                    .ends = [alone] { return alone && job::stop_signal() != 0; }});
    }
    if (early_stop_.reached() && profile_.lacks()) tell_profile(report, /*last=*/true);
    if (leads_or_joins()) checkpointer_.wait();
    tell_saved(report);
    write_trace();  // after the checkpoint, which does not depend on it
    report.finish(outcome_);
    job_.world().barrier().wait(Deadline::in(settings_.job.timeout_user_code));
    return 0;
  }

  // The costs of checkpoints and copies in memory, for the report, beside the predicted ones.
  void take_costs(long steps) {
    const CheckpointCosts costs = checkpointer_.costs();
    Outcome::Keeping& keeping = outcome_.keeping;
    keeping.predicted_snapshot = static_cast<double>(spec_.predicted_snapshot);
    keeping.predicted_copies = static_cast<double>(spec_.predicted_copies);
    keeping.snapshot = static_cast<double>(largest(costs.snapshot_bytes));
    keeping.copies = static_cast<double>(largest(costs.copy_bytes));
    if (keeping.copies <= 0 || steps <= 0) return;
    const auto each = static_cast<double>(steps);
    keeping.sent = static_cast<double>(largest(costs.copy_bytes_sent)) / each;
    keeping.waited = static_cast<double>(largest(costs.copy_wait.count())) / 1e9 / each;
  }

  observe::TracedScope traced(const char* what) const {
    return {job_.options().trace.get(), *job_.waiter(), what};
  }

  // Collective: rank 0 writes the spans of all ranks.
  void write_trace() {
    const auto& trace = job_.options().trace;
    if (!trace) return;
    joined_.activity("trace");
    const auto traces = comm::gather_traces(job_.world(), *trace, job_.host_name());
    if (!leads_) return;
    write_whole(spec_.trace, observe::chrome_json(traces));
    if (const kernel::Assignment shares = job_.input().assignment();
        settings_.strategy.pipeline > 1)
      write_whole(folder_.passes(), recorded_passes(traces, shares.size() * shares.together));
  }

  std::int64_t largest(std::int64_t mine) {
    job_.world().all_reduce(Buffer::of(std::span(&mine, 1)), Max, {.label = "peak memory"}).wait();
    return mine;
  }

  Session& session_;
  const WorkerSpec& spec_ = session_.spec;
  const RunFolder& folder_ = session_.folder;
  const Settings& settings_ = session_.settings;
  const RunData& data_ = session_.data;
  Job& joined_ = session_.job;
  const std::unique_ptr<Job> own_;  // null: this rank trains together with the others
  Job& job_;                        // own_ or joined_
  const bool leads_;                // rank 0
  const Device device_;
  Strategy strategy_;
  Batches batches_;
  ChangedInput changed_input_{batches_};
  const std::vector<std::string> changed_;  // identity keys changed since the run began
  EarlyStop early_stop_;
  Checkpointer checkpointer_;  // after its parts: at the end it may still copy them
  KernelProfile profile_;
  Outcome outcome_;
  TimePoint began_{};
  std::vector<double> step_seconds_;
  double validation_seconds_ = 0;
  bool interrupted_ = false;             // the last validation, by a request to stop
  observe::History past_;                // of the run's events before the ranks changed; rank 0
  std::optional<TrigramCount> trigram_;  // while it counts; rank 0
};

}  // namespace

int train(Session& session) {
  return run_elastic(session.job, [&] { return Trainer(session).run(); });
}

}  // namespace trireme::inline v0::train
