// NegotiationTable: rank 0's state of a negotiation, without any network. It records which ranks
// have submitted each name, and decides which names start, in which order, and which are refused. A
// rank that submits a refused name later gets the refusal then. Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/group_facts.h"
#include "trireme/comm/negotiate/negotiate_wire.h"

namespace trireme::inline v0::comm {

class NegotiationTable {
 public:
  /// `facts` must outlive it.
  NegotiationTable(const GroupFacts& facts, std::size_t cached_names);
  /// Takes a record from `rank`; appends the records to be sent (Record::to) to `answers`.
  void hear(int rank, Record record, std::vector<Record>& answers);

 private:
  struct Row {
    std::vector<bool> from;  // by rank: it has submitted the name
    int count = 0, first = 0;
    Signature signature;
  };
  struct Refused {
    Record record;
    std::vector<bool> owed;  // by rank: it has not been told yet
    int left = 0;            // how many these are
  };
  void ready(int rank, const std::string& name, const Signature& signature,
             std::vector<Record>& answers);
  void go(const std::string& name, const Signature& signature, std::vector<Record>& answers);
  void refuse(Row& row, Record record, std::vector<Record>& answers);
  void refuse_overdue(int rank, const std::string& name, std::vector<Record>& answers);
  std::string missing(const Row& row) const;

  std::string name_of(int rank) const;

  const GroupFacts& facts_;
  const int size_;
  const std::size_t cached_names_;
  int byes_ = 0;
  std::map<std::string, Row> rows_;
  std::map<std::string, std::deque<Refused>> refused_;        // the oldest first
  std::vector<std::pair<std::string, Signature>> by_number_;  // number - 1
  std::unordered_map<std::string, std::uint32_t> numbers_;    // the latest of each name
};

}  // namespace trireme::inline v0::comm
