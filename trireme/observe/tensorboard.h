// TensorBoardWriter: writes scalars to an event file for TensorBoard, without TensorBoard itself.
//
// Format: TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C of that) around
// Event messages of tensorboard/compat/proto/event.proto; this file writes the few fields it needs
// by hand. One per folder and process; not thread safe. Flushes each scalar.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace trireme::inline v0 {
namespace observe {

class TensorBoardWriter {
 public:
  TensorBoardWriter() = default;
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  /// Makes `folder` if missing, and in it a new file events.out.tfevents.SECONDS.HOST. If
  /// first_step > 0, TensorBoard discards earlier files' data from that step on. Throws
  /// ResourceError.
  void open(const std::string& folder, long first_step = 0);
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Does nothing before open(). Stores fp32. Throws ResourceError if the disk is full;
  /// then the file is as it was.
  void scalar(std::string_view tag, long step, double value);

 private:
  void write(const std::string& event);
  std::FILE* file_ = nullptr;
  std::string path_;
};

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
std::uint32_t crc32c(std::string_view bytes) noexcept;

}  // namespace observe
using observe::TensorBoardWriter;
}  // namespace trireme::inline v0
