// The files of a checkpoint, verified by the XXH3 of their chunks: FileHashes while one is written,
// VerifiedFile while one is read.
//
//     | header | chunk 1 | chunk 2 |..      a read of the bytes ===  loads chunks 1 and 2,
//                  ========                 verifies both, and copies what was asked for
//
// At most kChunksAtOnce chunks are in memory; drop() closes the file. Not thread safe. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/format/xxh3.h"
#include "trireme/storage/file_system.h"
#include "trireme/storage/manifest.h"

namespace trireme::inline v0::storage {

inline constexpr std::int64_t kChunksAtOnce = 4;

class FileHashes {
 public:
  explicit FileHashes(std::int64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {
    record_.header_bytes = chunk_bytes;
  }
  void update(std::span<const std::byte> bytes);
  /// Whether the chunks so far are those of `record`.
  bool may_be(const FileRecord& record) const;
  /// Call it once, as the last call.
  FileRecord finish();

 private:
  std::int64_t end_of_chunk() const;
  void take_first(std::span<const std::byte> bytes);
  void end_chunk();

  const std::int64_t chunk_bytes_;
  std::vector<std::byte> first_;  // of the file, until the length of its header is known
  format::Xxh3 chunk_;
  FileRecord record_;
};

class VerifiedFile {
 public:
  /// A part of the file, and where it goes.
  struct Piece {
    std::int64_t at = 0;
    std::span<std::byte> to;
  };

  using Open = std::function<std::unique_ptr<InputFile>()>;

  /// Calls `open` now, and before the first read after each drop(). `path` names the file in
  /// errors. Throws CheckpointError if the size is not that of `record`, and the errors of `open`.
  VerifiedFile(Open open, FileRecord record, std::int64_t chunk_bytes, std::string path);

  /// Fills all pieces, loading each chunk once. Throws CheckpointError naming the bytes that
  /// differ.
  void read(std::vector<Piece> pieces);
  /// Verifies the whole file, or only every `of`-th chunk from chunk `first` on.
  void verify();
  void verify_some(std::int64_t first, std::int64_t of);
  /// Frees the memory, and closes the file.
  void drop();

  std::int64_t size() const noexcept { return record_.bytes; }
  const std::string& path() const noexcept { return path_; }

 private:
  void open();
  std::int64_t chunk_of(std::int64_t byte) const { return record_.chunk_of(byte, chunk_bytes_); }
  std::int64_t begin_of(std::int64_t chunk) const { return record_.begin_of(chunk, chunk_bytes_); }
  void load(std::int64_t first_chunk, std::int64_t end_chunk);
  void check(std::int64_t chunk, std::span<const std::byte> bytes) const;

  Open open_;
  std::unique_ptr<InputFile> file_;  // null after drop()
  FileRecord record_;
  std::string path_;
  std::int64_t chunk_bytes_;
  std::vector<std::byte> loaded_;  // from byte `begin_` on
  std::int64_t begin_ = 0;
};

}  // namespace trireme::inline v0::storage
