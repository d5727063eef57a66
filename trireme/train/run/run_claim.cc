#include "trireme/train/run/run_claim.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shell_word.h"
#include "trireme/base/utf8.h"

namespace trireme::inline v0::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_make(const std::string& path, const std::string& reason) {
  throw ResourceError("cannot make the run's folder " + path + ": " + reason,
                      {.operation = "run folder", .advice = "Give another place with --out DIR."});
}

void make_directory(const std::string& path) {
  try {
    storage::local_file_system()->make_directory(path);
  } catch (const ResourceError& error) {
    throw ResourceError(error.message(), {.operation = "run folder",
                                          .advice = "Give another place with --out DIR."});
  }
}

// Refuses a new folder below a file.
void refuse_file_above(const fs::path& path) {
  std::error_code error;
  for (fs::path above = path.parent_path(); !above.empty(); above = above.parent_path()) {
    if (fs::is_directory(above, error)) return;
    if (fs::exists(above, error))
      refuse("run folder",
             above.string() + " is a file, so that no folder " + path.string() + " can be made",
             "Give the path of a new folder.");
    if (above == above.parent_path()) return;
  }
}

}  // namespace

void check_printable(const char* what, const std::string& path) {
  if (is_utf8(path) && escaped(path) == path) return;
  refuse("run folder",
         std::string(what) + " " + escaped(path) + " has a control character, or is not UTF-8",
         "Give a path of printable characters.");
}

RunClaim::RunClaim(RunRequest request)
    : request_{without_slashes(std::move(request.out)), without_slashes(std::move(request.resume)),
               request.shared},
      folder_("") {
  check_printable("--out", request_.out);
  check_printable("--resume", request_.resume);
  const bool by_name = !request_.resume.empty() && request_.resume != "auto";
  if (by_name && !request_.out.empty() && request_.out != request_.resume)
    refuse("run folder",
           "--resume " + request_.resume + " continues in that folder, so --out " + request_.out +
               " cannot hold it",
           "Leave out --out.");
  if (request_.resume == "auto" && request_.out.empty())
    refuse("run folder", "--resume auto needs --out DIR: the folder to continue in, or to start in",
           "Add --out DIR.");
  folder_ = RunFolder(by_name ? request_.resume : request_.out);
  if (folder_.path().empty()) return;
  std::error_code error;
  if (!fs::exists(folder_.path(), error)) {
    if (by_name) decide();  // throws
    refuse_file_above(folder_.path());
    return;
  }
  if (!fs::is_directory(folder_.path(), error))
    refuse("run folder", folder_.path() + " is a file, not a folder",
           by_name ? "Give the folder that `trireme train` printed, such as runs/gpt-nano."
                   : "Give the path of a new folder.");
  // A folder that another job has locked is refused with that job's name, whatever it holds so far.
  // A folder that is refused for its content gets no lock file.
  if (!observe::is_locked(folder_.path())) decide();
  lock();
  decide();
}

void RunClaim::lock() { lock_ = std::make_unique<observe::FolderLock>(folder_.path()); }

void RunClaim::decide() {
  const RunState state = folder_.state();
  resumes_ = false;
  if (request_.resume.empty()) return decide_out(state);
  resumes_ = state == RunState::Run;
  decide_resume(state);
}

void RunClaim::decide_out(RunState state) {
  const std::string& out = folder_.path();
  if (state == RunState::Run || state == RunState::Begun)
    refuse("run folder", "--out " + out + " already holds a run",
           (state == RunState::Run ? "Continue it with --resume " + out
                                   : "Begin it again with --resume auto --out " + out) +
               ", or give another --out.");
  if (state == RunState::Foreign)
    refuse("run folder",
           "--out " + out + " is not empty: it holds " + escaped(folder_.foreign_name()),
           "Give the path of a new folder.");
}

void RunClaim::decide_resume(RunState state) {
  const std::string& path = folder_.path();
  if (state == RunState::Run) return;
  if (request_.resume == "auto") {
    if (state == RunState::Foreign)
      refuse("run folder",
             "--out " + path + " is not empty, and holds no run: it holds " +
                 escaped(folder_.foreign_name()),
             "Give the path of a new folder, or of a run.");
    return;  // a run without a checkpoint begins again in its own folder
  }
  RunFolder::existing(path);
  refuse("run folder", path + " holds no checkpoint to continue from",
         "Start it again: trireme train " + shell_word(folder_.config()) + " --out " +
             shell_word(path) + " --resume auto");
}

void RunClaim::keep_checkpoints_at(const std::string& place) {
  const bool own = place.empty() || folder_.is_own_checkpoint(place);
  if (resumes_) {
    const std::string before = folder_.checkpoint();
    const std::string now = own ? folder_.own_checkpoint() : place;
    if (before != now && !(own && folder_.is_own_checkpoint(before)))
      refuse("run folder",
             folder_.path() + " has its checkpoints in " + before + ", and checkpoint.path names " +
                 now,
             "Leave checkpoint.path as it is: a run's checkpoints stay in one place.");
    return;
  }
  if (own) return;
  place_ = place;
  placed_ = folder_.with_checkpoints(place_);
  const std::int64_t step = placed_.newest_step();
  if (step == 0) return;
  if (request_.resume.empty())
    refuse(
        "run folder",
        "checkpoint.path " + place + " already holds a checkpoint, of step " + std::to_string(step),
        "Continue it with --resume auto --out DIR, or name another checkpoint.path.");
  from_elsewhere_ = true;
}

void RunClaim::make_folder() {
  if (lock_) return;
  make_directory(folder_.path());
  lock();
  decide();  // another job may have used the folder meanwhile
  if (resumes_)
    refuse("run folder", folder_.path() + " was filled by another job while this one was starting",
           "Start this command again.");
}

const RunFolder& RunClaim::take(const std::string& name) {
  if (folder_.path().empty()) {
    make_next_free(name);
    lock();
  } else {
    make_folder();
  }
  joins_ = request_.shared && fs::exists(folder_.config()) && fs::exists(folder_.events());
  if (!resumes() && !joins_) folder_.clear();
  placed_ = folder_.with_checkpoints(place_);
  return folder();
}

void RunClaim::make_next_free(const std::string& name) {
  check_printable("the run's name", name);
  make_directory("runs");
  const std::string first = "runs/" + name;
  for (int number = 1;; ++number) {
    const std::string path = number == 1 ? first : first + "-" + std::to_string(number);
    if (mkdir(path.c_str(), 0777) == 0) {
      folder_ = RunFolder(path);
      return storage::local_file_system()->sync("runs");
    }
    if (errno != EEXIST) cannot_make(path, std::strerror(errno));
  }
}

}  // namespace trireme::inline v0::train
