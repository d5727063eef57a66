#include "trireme/checkpoint/background_save.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/signals_blocked.h"
#include "trireme/base/words.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::checkpoint {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(30);
constexpr Duration kWarnEvery = std::chrono::minutes(1);

// The ranks that write besides rank 0.
class Others final : public storage::OtherWriters {
 public:
  explicit Others(CheckpointContent& content) : content_(content) {}

  void start() override { content_.tell(CheckpointContent::Word::Write); }
  storage::WrittenFiles finish() override {
    content_.drain();
    storage::WrittenFiles all;
    std::exception_ptr failure;
    for (storage::WrittenFiles& one : content_.reports()) {
      all.files.merge(std::move(one.files));
      all.kept_bytes += one.kept_bytes;
      if (!one.failure.empty() && !failure)
        failure = std::make_exception_ptr(ResourceError(
            one.failure, {.operation = "checkpoint", .advice = std::move(one.advice)}));
    }
    if (failure) std::rethrow_exception(failure);
    return all;
  }

 private:
  CheckpointContent& content_;
};

}  // namespace

bool Outage::go_on(TimePoint now, std::int64_t step, const std::string& reason) {
  const bool first = !since_;
  if (first) since_ = now;
  if (now - *since_ >= patience_) return false;
  if (!first && now - warned_ < kWarnEvery) return true;
  warned_ = now;
  const std::string limit = duration_text(to_seconds(patience_));
  observe::warning(
      first ? "the checkpoint of step " + grouped(step) + " is not saved: " + reason +
                  ". The training goes on and tries again; it ends if the storage fails for " +
                  limit + " (checkpoint.patience)."
            : "no checkpoint could be saved for " + duration_text(to_seconds(now - *since_)) +
                  " of " + limit + ": " + reason);
  return true;
}

void Outage::end(TimePoint now, std::int64_t step) {
  if (!since_) return;
  observe::info("the checkpoint of step " + grouped(step) +
                " is saved; the storage had failed for " +
                duration_text(to_seconds(now - *since_)));
  since_.reset();
}

bool ask_patiently(const std::function<void()>& ask, Duration patience, Waiter& waiter,
                   const std::function<bool()>& ended) {
  const TimePoint until = waiter.now() + patience;
  for (bool first = true;; first = false) {
    try {
      ask();
      return true;
    } catch (const ResourceError& error) {
      if (ended()) return false;
      if (waiter.now() >= until) throw;
      if (first)
        observe::warning("the ranks wait for the storage of the checkpoints, at most " +
                         duration_text(to_seconds(patience)) +
                         " (checkpoint.patience): " + error.message());
    }
    waiter.wait_until(ended, waiter.now() + kFirstPause);
  }
}

BackgroundSave::BackgroundSave(std::unique_ptr<CheckpointContent> content,
                               storage::Manifest manifest, storage::CheckpointFolder folder,
                               storage::Retention keep, int rank, Outage& outage, Reach& reach,
                               std::shared_ptr<Waiter> waiter)
    : content_(std::move(content)),
      manifest_(std::move(manifest)),
      folder_(std::move(folder)),
      keep_(keep),
      rank_(rank),
      outage_(outage),
      reach_(reach),
      waiter_(std::move(waiter)) {}

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

// The thread has the rank's priority, since the next save and the end of the rank wait for it.
void BackgroundSave::start() {
  const SignalsBlocked signals_blocked;  // only threads that existed before handle signals
  thread_ = std::thread([this] { work(); });
}

void BackgroundSave::run_here() {
  alone_ = true;
  work();
}

void BackgroundSave::give_up() noexcept {
  given_up_ = true;
  waiter_->wake();
}

void BackgroundSave::work() noexcept {
  try {
    reach_.share(*content_, folder_);
    rank_ == 0 ? lead() : follow();
  } catch (...) {
    error_ = std::current_exception();
  }
  ended_ = true;
  waiter_->wake();
}

// Whatever happens, the other ranks hear End, if they can be reached.
void BackgroundSave::lead() {
  std::exception_ptr unexpected;
  Duration delay = kFirstPause;
  for (;;) {
    bool more = false;
    try {
      more = !try_once() && !given_up_ && !alone_;
    } catch (...) {
      unexpected = std::current_exception();
    }
    waiter_->wake();
    if (!more) break;
    pause(std::exchange(delay, std::min(2 * delay, kLongestPause)));
    if (given_up_) break;
  }
  try {
    content_->tell(CheckpointContent::Word::End);
  } catch (...) {
    if (!unexpected) throw;  // else the other rank is lost for the same reason, or later
  }
  if (unexpected) std::rethrow_exception(unexpected);
}

void BackgroundSave::follow() {
  using Word = CheckpointContent::Word;
  for (Word word = content_->hear(); word != Word::End; word = content_->hear()) {
    if (word == Word::Look) {
      reach_.answer(*content_, folder_);
      continue;
    }
    if (!content_->writes()) {
      content_->send();
      continue;
    }
    storage::WrittenFiles written;
    std::exception_ptr unexpected;
    try {
      written = folder_.write_files(manifest_, content_->writers());
    } catch (const ResourceError& error) {
      written.failure = "rank " + std::to_string(rank_) + ": " + error.message();
      written.advice = error.advice();
    } catch (...) {
      unexpected = std::current_exception();
      written.failure = "rank " + std::to_string(rank_) + ": " + describe(unexpected).sentence;
    }
    content_->report(written);
    if (unexpected) std::rethrow_exception(unexpected);
  }
  succeeded_ = true;
}

// False if the storage failed and may be tried again. Throws if the save has failed for good.
bool BackgroundSave::try_once() {
  try {
    if (reach_.is_needed(*content_)) reach_.find(*content_, folder_);
    Others others(*content_);
    // A try that failed may have completed the checkpoint, if only the answer was lost.
    if (failed_ && folder_.has(manifest_.step)) folder_.remove(manifest_.step);
    report_ = folder_.write(manifest_, content_->writers(), keep_, &others);
    if (!report_.undone.empty())
      observe::warning("the checkpoint of step " + grouped(manifest_.step) + " is complete, but " +
                       report_.undone);
  } catch (const ResourceError& error) {
    failed_ = true;
    failure_ = std::current_exception();
    if (!outage_.go_on(waiter_->now(), manifest_.step, error.message())) throw;
    return false;
  }
  succeeded_ = true;
  outage_.end(waiter_->now(), manifest_.step);
  return true;
}

void BackgroundSave::pause(Duration delay) {
  pausing_ = true;
  waiter_->wake();
  waiter_->wait_until([this] { return given_up_.load(); }, waiter_->now() + delay);
  pausing_ = false;
}

}  // namespace trireme::inline v0::checkpoint
