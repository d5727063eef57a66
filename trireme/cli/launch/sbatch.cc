#include "trireme/cli/launch/sbatch.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "trireme/base/refuse.h"
#include "trireme/base/shell_word.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::cli {
namespace {

// A rank that is asked to stop saves a checkpoint and ends with this code (docs/errors.md).
constexpr const char* kStopped = "143";

void check_word(const std::string& what, const std::string& word, const char* more) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [&](unsigned char one) {
    return std::isalnum(one) != 0 || std::strchr(more, one) != nullptr;
  });
  if (plain) return;
  refuse("launch", "\"" + word + "\" cannot be a " + what + " in Slurm",
         "Use letters, digits and " + std::string(more) + ".");
}

// Removes a number from the front of `text`; false if there is none.
bool take_number(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(end);
  return end > 0;
}

// "90", "90:30", "12:00:00", "1-12", "1-12:30", "1-12:30:00" or "UNLIMITED" (man sbatch).
void check_time(const std::string& time) {
  if (time == "UNLIMITED" || time == "INFINITE") return;
  std::string_view rest = time;
  bool good = take_number(rest);
  if (rest.starts_with('-')) {
    rest.remove_prefix(1);
    good = good && take_number(rest);
  }
  for (int part = 0; part < 2 && rest.starts_with(':'); ++part) {
    rest.remove_prefix(1);
    good = good && take_number(rest);
  }
  if (good && rest.empty()) return;
  refuse("launch", "\"" + time + "\" is no time limit of Slurm",
         "Write hours:minutes:seconds (12:00:00), days-hours (1-12) or minutes (90).");
}

}  // namespace

std::string sbatch_script(const SbatchJob& job) {
  check_word("job name", job.name, "_-.");
  check_time(job.time);
  if (job.nodes < 1 || job.ranks % job.nodes != 0) {
    refuse("launch",
           counted(job.ranks, "rank") + " cannot be divided among " + counted(job.nodes, "node"),
           "Give a multiple of --nodes as -n.");
  }
  std::string text = "#!/bin/bash\n#SBATCH --job-name=" + job.name +
                     "\n#SBATCH --nodes=" + std::to_string(job.nodes) +
                     "\n#SBATCH --ntasks-per-node=" + std::to_string(job.ranks / job.nodes) +
                     "\n##SBATCH --cpus-per-task=8     # cores of a rank; one # less to use it\n"
                     "#SBATCH --time=" +
                     job.time + "\n#SBATCH --output=" + job.name +
                     "-%j.log --open-mode=append\n"
                     "# Two minutes before the time limit the ranks are asked to stop: they save a "
                     "checkpoint.\n#SBATCH --signal=USR1@120 --requeue\n";
  if (job.nodes > 1)
    text +=
        "# Ranks on several nodes prove by this secret that they belong together. The nodes must "
        "all mount $HOME.\n"
        "export TRIREME_JOB_SECRET_FILE=${TRIREME_JOB_SECRET_FILE:-$HOME/.trireme-secret}\n"
        "[ -s \"$TRIREME_JOB_SECRET_FILE\" ] || (umask 077; head -c 32 /dev/urandom "
        "> \"$TRIREME_JOB_SECRET_FILE\")\n";
  text += "srun";
  for (const std::string& word : job.command) text += " " + shell_word(word);
  return text +
         "\ncode=$?\n# Stopped: go on from the checkpoint when Slurm has time again.\n[ $code "
         "-eq " +
         kStopped + " ] && scontrol requeue \"$SLURM_JOB_ID\"\nexit $code\n";
}

}  // namespace trireme::inline v0::cli
