// ServedModel: the parameters that servers hold, and which server has which part of them.
//
// All parameters together are one flat memory, in which each starts at a multiple of 64 bytes. It
// is cut into one interval per server, at chunk ends only (sync/levels/ownership.h), so that
// servers have about equal bytes, and a push or a pull moves one interval per server. Rows of
// embedding tables are spread by a hash of their ids (served_table.h). A value: all workers of a
// job make the same one, and a server compares it with its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/ps/rows/served_table.h"

namespace trireme::inline v0::ps {

struct ServedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::F32;  // of master weight and gradient: F32 or F64
  bool decay = true;         // weight decay group
  std::int64_t count() const noexcept;
  friend bool operator==(const ServedParameter&, const ServedParameter&) = default;
};

class ServedModel {
 public:
  /// Elements [begin, end) of a parameter, at `offset` bytes of its server's interval.
  struct Slice {
    std::uint32_t parameter = 0;
    DType dtype = DType::F32;
    std::int64_t begin = 0, end = 0;
    std::size_t offset = 0;
    std::size_t size() const noexcept { return static_cast<std::size_t>(end - begin); }
    std::size_t bytes() const noexcept { return size() * size_of(dtype); }
    /// The place of its i-th element in the interval.
    std::size_t at(std::size_t i) const noexcept { return offset + i * size_of(dtype); }
  };

  /// `servers` >= 1. `more_uses`: for each use of a tied parameter after its first, the parameter,
  /// in the order in which the uses are added.
  ServedModel(std::vector<ServedParameter> parameters, int servers,
              std::vector<std::uint32_t> more_uses = {}, std::vector<ServedTable> tables = {});
  /// From to_text(). ConfigError for anything else.
  static ServedModel from_text(std::string_view text);
  std::string to_text() const;

  const std::vector<ServedParameter>& parameters() const noexcept { return parameters_; }
  int servers() const noexcept { return static_cast<int>(slices_.size()); }
  const std::vector<ServedTable>& tables() const noexcept { return tables_; }
  /// A server's slices, at most one of each parameter: ascending, then those without elements.
  const std::vector<Slice>& slices(int server) const {
    return slices_[static_cast<std::size_t>(server)];
  }
  /// Bytes of its interval.
  std::size_t bytes(int server) const { return bytes_[static_cast<std::size_t>(server)]; }
  /// Behind the interval: slices for the sums of further uses of tied parameters. The bytes of
  /// both.
  const std::vector<Slice>& more_uses(int server) const {
    return more_slices_[static_cast<std::size_t>(server)];
  }
  std::size_t sum_bytes(int server) const { return sum_bytes_[static_cast<std::size_t>(server)]; }

  /// A sentence on the first difference from `other`, which is the caller's; empty: there is none.
  std::string difference(const ServedModel& other) const;
  /// One line per server: its bytes (a push sends and returns as many), its share of all bytes, its
  /// number of parameters, or that it has none. Then one line per table.
  std::string describe() const;

 private:
  void add_more_uses();

  std::vector<ServedParameter> parameters_;
  std::vector<std::uint32_t> more_uses_;
  std::vector<ServedTable> tables_;
  std::vector<std::vector<Slice>> slices_, more_slices_;  // by server
  std::vector<std::size_t> bytes_, sum_bytes_;
};

}  // namespace trireme::inline v0::ps
