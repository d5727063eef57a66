// TensorBoardWriter: scalars as an event file that TensorBoard reads, without TensorBoard.
//
// The format: TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C of that) around
// Event messages of tensorboard/compat/proto/event.proto, of which a few fields are written by
// hand. One per folder and process; not thread safe. Each scalar is flushed, so that TensorBoard
// may follow the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace observe {

class TensorBoardWriter {
 public:
  TensorBoardWriter() = default;
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  /// Makes `folder` where it is missing, and in it a new file events.out.tfevents.SECONDS.HOST.
  /// first_step > 0: TensorBoard drops what earlier files of the folder say of it and later steps.
  /// Throws ResourceError.
  void open(const std::string& folder, long first_step = 0);
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Does nothing before open(). The value is kept as fp32. Throws ResourceError where the disk is
  /// full.
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
}  // namespace v0
}  // namespace trireme
