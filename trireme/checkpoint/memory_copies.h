// MemoryCopies: copies, in memory, of the shards of an elastic job's ranks, so that a lost rank's
// shards are not lost (checkpoint.memory; docs/design/040-elastic-jobs.md).
//
// Every `every` steps each rank copies its shards. While the next step computes, it sends those
// that no other rank has to other ranks, on other hosts if there are any:
//
//     after step S    copy own shards; start to send and receive
//     after step S+1  wait for both; the vote of step S+2 then proves that all ranks have done so
//     after step S+2  copies older than S are dropped
//
// Copies are made only if ranks have different shards, even if each shard is on several ranks,
// since the ranks that survive may be a step apart. Ranks that leave the job at the end of a step
// (`trireme resize`) hand their shards over, even if no copies are configured. One per
// Checkpointer. after() and hand_over() are collective and throw the communicator's errors.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/checkpoint/kept_state.h"
#include "trireme/job/job.h"

namespace trireme::inline v0::checkpoint {

struct MemoryCopyOptions {
  int copies = 0;  // on other ranks; 0: none
  long every = 1;  // steps
};

class MemoryCopies {
 public:
  MemoryCopies(Job& job, const MemoryCopyOptions& options);
  ~MemoryCopies();

  /// Call it after every step, and after the state was restored, then with `now`.
  void after(const Parts& parts, std::int64_t steps_done,
             const std::map<std::string, std::string>& metadata, bool now = false);
  /// Call it before the ranks change at the end of a step: a rank that leaves gives its sole shards
  /// to a rank that stays. Returns when that is done.
  void hand_over(const Parts& parts, std::int64_t steps_done,
                 const std::map<std::string, std::string>& metadata);
  /// Whether every rank has copies made in the present epoch, or needs none.
  bool confirmed() const;
  /// Without the costs of snapshots.
  const CheckpointCosts& costs() const noexcept { return costs_; }
  /// Moves the copies of this rank's shards, and those received from other ranks, to `kept`.
  void move_to(KeptState& kept);

  struct Row;  // of the tables that ranks exchange

 private:
  struct Generation;
  struct Layout;
  void lay_out(std::vector<Row> rows);
  std::set<int> leaving_ranks() const;
  std::vector<int> receivers_of(int rank, const std::vector<std::string>& hosts) const;
  void count();
  bool is_confirmed(const Generation& one) const;
  void settle() noexcept;
  void begin(const Parts& parts, std::int64_t steps_done,
             const std::map<std::string, std::string>& metadata);

  Job& job_;
  const MemoryCopyOptions options_;
  std::shared_ptr<comm::Communicator> group_;  // for copies alone, so that no other call is between
  std::shared_ptr<const Layout> layout_;
  std::set<int> leaving_;  // in hand_over()
  std::deque<Generation> generations_;
  std::int64_t calls_ = 0;
  CheckpointCosts costs_;
};

}  // namespace trireme::inline v0::checkpoint
