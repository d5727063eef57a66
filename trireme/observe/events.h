// Events: a run's reports, one JSON object per line, with the stable names of docs/api.md.
//
// EventWriter appends them to events.jsonl and, with --json, to standard output. One per run, on
// rank 0; not thread safe. Each line is written and flushed whole, so a reader may follow the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme::inline v0::observe {

/// Ordered fields. line() is their JSON text; numbers that are not finite become null.
class Event {
 public:
  using Value = std::variant<bool, long, double, std::string, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<std::string>>;
  explicit Event(std::string_view kind);
  Event& set(std::string_view name, Value value);
  /// Adds every field of `other` except "event", with `prefix` before its name.
  Event& merge(const std::string& prefix, const Event& other);
  std::string line() const;

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

/// Figures of a training step. Fields that are nullopt are unknown and left out.
struct StepFigures {
  long step = 0;               // from 1
  std::optional<double> loss;  // of training: mean over the global batch, nats
  double step_seconds = 0;
  std::optional<double> items_per_second;                      // of `items`, over all ranks
  std::optional<double> communication_seconds, input_seconds;  // how long rank 0 waited
  std::optional<long> device_bytes;  // of tensors on rank 0's device, the most so far
  std::optional<double> learning_rate, gradient_norm;
  /// Model FLOPs utilization (MFU): the model's operations over the processors' peak, without
  /// recomputation.
  std::optional<double> model_flops_utilization = std::nullopt;
  std::optional<long> skipped_steps;  // number so far; nullopt: the run never skips
  std::optional<double> noise_scale;  // of the gradient, in items
  std::optional<double> loss_scale;   // of the next step, in fp16
  std::optional<long> overflows;      // steps skipped for overflow, not in skipped_steps
  long last_rank = -1;                // the last rank to reach the step's vote; -1: unknown
  double behind_seconds = 0;          // its delay after the median of the other ranks
  std::string_view items = "tokens";  // or "samples": the field is "samples_per_second"
};
Event step_event(const StepFigures& figures);
/// `count` items were evaluated; `items` is the field's name. `accuracy`: share of right answers.
Event validation_event(long step, double loss, long count, std::optional<double> trigram,
                       std::string_view items = "tokens",
                       std::optional<double> accuracy = std::nullopt);

class EventWriter {
 public:
  EventWriter() = default;
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  /// Appends to `path`. Throws ResourceError.
  void open(const std::string& path);
  void echo_to_stdout(bool on) noexcept { echo_ = on; }
  /// Throws ResourceError if the disk is full; then the file is as it was.
  void write(const Event& event);
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Instead of write(), in two steps. keep() echoes the event and keeps it in memory; of more than
  /// 100,000 the oldest is dropped. write_kept() writes those that are kept, in their order; throws
  /// ResourceError, and then keeps what it has not written.
  void keep(const Event& event);
  void write_kept();
  /// For another EventWriter of the file: what is kept here, and will not be written.
  std::deque<std::string> release_kept() noexcept { return std::exchange(kept_, {}); }
  /// Keeps those of an earlier EventWriter whose step is at most `until`. Call it first.
  void take_kept(std::deque<std::string> kept, long until);
  /// The number of events that keep() got and the file has not.
  std::size_t unwritten() const noexcept { return dropped_ + kept_.size(); }

 private:
  void append(const std::string& line);
  void echo(const std::string& line) const;

  std::FILE* file_ = nullptr;
  std::string path_;
  bool echo_ = false;
  std::deque<std::string> kept_;
  std::size_t dropped_ = 0;
};

/// Writes all `bytes` and flushes. False, with errno, if that fails; then the file is as it was, or,
/// if it cannot be cut, has a part of them and `after_part`.
bool append_whole(std::FILE* file, std::string_view bytes, std::string_view after_part = {});

/// The contents of a run's events.jsonl, for plots and for resumed runs.
struct History {
  std::vector<std::pair<double, double>> training, validation;  // (step, loss)
  std::optional<double> trigram;
  std::optional<double> early_stop;  // after which step
  std::optional<int> ranks;          // at the last start ("plan" or "resumed")
};
/// Seconds since 1970, by the system's clock.
double wall_seconds() noexcept;
/// A missing file gives an empty history. Lines that are not events (a torn last one) are ignored.
/// `unwritten`: lines that the file lacks at its end, as EventWriter::release_kept() gives them.
History read_history(const std::string& path, const std::deque<std::string>& unwritten = {});
/// Keeps only lines whose "step" is at most `step`; a resumed run writes later steps again.
void keep_until(const std::string& path, long step);

}  // namespace trireme::inline v0::observe
