// Negotiator::Core: the implementation of a Negotiator: links to rank 0, and pending submissions.
//
// submit(), close(), on_deadline() and statistics() may be called from any thread; the rest runs in
// the progress context. Only for negotiate*.cc.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/comm/engine.h"
#include "trireme/comm/negotiate/negotiate.h"
#include "trireme/comm/negotiate/negotiate_table.h"
#include "trireme/comm/negotiate/negotiate_wire.h"

namespace trireme::inline v0::comm {

class Negotiator::Core : public std::enable_shared_from_this<Core> {
 public:
  using Start = std::function<Work(Communicator&, const OpOptions&)>;

  Core(Communicator& world, const NegotiatorOptions& options);

  void listen_to_all();
  Work submit(std::string name, Signature signature, Start start);
  void close();
  Statistics statistics() const;
  int size() const noexcept { return size_; }

 private:
  class Submission;
  struct Pending {
    WorkSource source;
    Start start;
  };
  struct PeerRecords {
    RecordWriter out;
    RecordReader in;
    Parcel sending, receiving;
    bool sends = false, flushing = false;  // a parcel is being sent; flush() is on the stack
    // listen() is on the stack; a parcel has arrived meanwhile; the peer has sent its Bye.
    bool listening = false, heard = false, silent = false;
  };

  PeerRecords& at(int peer) { return links_[static_cast<std::size_t>(peer)]; }
  void enqueue(const std::string& name, const Signature& signature, Pending pending);
  void tell_rank_0(const Record& record);
  void flush(int peer);
  void listen(int peer);
  void take(int peer);
  void hear(int peer, const Record& record);
  void apply_commands();
  void apply(const Record& record);
  void start(const std::string& name);
  void refuse(const Record& record);
  void fail(const std::exception_ptr& error);
  TimePoint on_deadline(const std::string& name, std::atomic<bool>& asked, TimePoint now,
                        Duration waited);

  const std::shared_ptr<Engine> engine_;  // world's: timeout, watch, time waited
  const std::shared_ptr<Waiter> waiter_;
  const int rank_, size_;
  const int name_;  // of this rank, in errors
  std::shared_ptr<Communicator> control_, data_;
  std::vector<PeerRecords> links_;  // by peer; other ranks than 0 use the link to rank 0 only
  NegotiationTable table_;          // used on rank 0 only
  std::vector<Record> orders_;
  bool applying_ = false;
  std::map<std::string, Pending> pending_;
  std::vector<std::pair<std::string, Signature>> by_number_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::exception_ptr failure_;
  std::atomic<bool> closed_{false};
  std::atomic<int> under_way_{0};  // parcels that are being sent
  std::atomic<std::uint64_t> submitted_{0}, num_by_number_{0};
};

}  // namespace trireme::inline v0::comm
