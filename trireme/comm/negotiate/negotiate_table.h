// NegotiationTable: rank 0's side of a negotiation, without any network: who has submitted which
// name, in which order names became ready everywhere, and what is refused. Every submission gets
// one answer: of a refused name, those who come later get it when they come. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/negotiate/negotiate_wire.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class NegotiationTable {
 public:
  NegotiationTable(int size, std::size_t cached_names);
  /// What `rank` said; appends to `answers` what all ranks are to be told.
  void hear(int rank, Record record, std::vector<Record>& answers);
  /// True when all ranks have said Bye.
  bool ended() const noexcept { return byes_ == size_; }

 private:
  struct Row {
    std::vector<bool> from;  // by rank
    int count = 0, first = 0;
    Signature signature;
  };
  struct Refused {
    Record record;
    std::vector<bool> owed;  // to those who have not submitted the name yet
    int left = 0;
  };
  void ready(int rank, const std::string& name, const Signature& signature,
             std::vector<Record>& answers);
  void go(const std::string& name, const Signature& signature, std::vector<Record>& answers);
  void refuse(Row& row, Record record, std::vector<Record>& answers);
  void refuse_overdue(int rank, const std::string& name, std::vector<Record>& answers);
  std::string missing(const Row& row) const;

  const int size_;
  const std::size_t cached_names_;
  int byes_ = 0;
  std::map<std::string, Row> rows_;
  std::map<std::string, Refused> refused_;
  std::vector<std::pair<std::string, Signature>> by_number_;  // number - 1
  std::unordered_map<std::string, std::uint32_t> numbers_;    // the last of each name
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
