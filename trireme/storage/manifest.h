// manifest.json describes a checkpoint: version, step, identity, the size of every file and a hash
// of each of its chunks, each part's metadata, and its own SHA-256. A checkpoint's last file.
//
// A plain value; parsing is strict (unknown or missing keys are damage). No LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/storage/retention.h"

namespace trireme::inline v0::storage {

/// This version and the one before can be read; tests/compat/golden has a checkpoint of each.
inline constexpr std::int64_t kManifestVersion = 3;
/// Each chunk has a hash, so that a part of a file can be verified.
inline constexpr std::int64_t kChunkBytes = 8 << 20;

/// The first chunk of a file is its header, which every rank reads. In version 2, or if the header
/// is larger, it has chunk_bytes, as all others have; the last one may be short.
struct FileRecord {
  std::int64_t bytes = 0;
  std::int64_t header_bytes = kChunkBytes;  // of the first chunk
  std::vector<std::string> chunks = {};     // XXH3 of each

  std::int64_t chunk_of(std::int64_t byte, std::int64_t chunk_bytes) const noexcept {
    return byte < header_bytes ? 0 : 1 + (byte - header_bytes) / chunk_bytes;
  }
  /// The byte at which a chunk begins and the one before it ends.
  std::int64_t begin_of(std::int64_t chunk, std::int64_t chunk_bytes) const noexcept {
    return chunk == 0 ? 0 : std::min(bytes, header_bytes + (chunk - 1) * chunk_bytes);
  }
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct Manifest {
  std::int64_t version = kManifestVersion;
  std::int64_t step = 0;  // steps done
  std::string identity;   // of the job; empty = not compared
  std::int64_t chunk_bytes = kChunkBytes;
  std::map<std::string, FileRecord> files;   // by name in the checkpoint's folder
  std::map<std::string, std::string> parts;  // Saveable::metadata() by part
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// One rank's result of a save: the files that it has written, or why it could not. Sent to rank 0
/// as text.
struct WrittenFiles {
  std::map<std::string, FileRecord> files;
  std::int64_t kept_bytes = 0;  // of files taken over from the checkpoint before
  std::string failure, advice;  // failure: empty if all are written
};
std::string to_text(const WrittenFiles& written);
WrittenFiles parse_written_files(std::string_view text);

/// The text of manifest.json. Equal manifests give equal texts.
std::string to_text(const Manifest& manifest);
/// Throws CheckpointError naming `title` and the damage, or both versions if this one is newer.
Manifest parse_manifest(std::string_view text, const std::string& title);
/// Notes when a checkpoint was saved and its validation loss, for Retention. They are in the part
/// "saved", which no Saveable may have as its name.
void note_saved(Manifest& manifest, double seconds, std::optional<double> validation_loss);
/// The step of a manifest, and what note_saved() has noted.
SavedCheckpoint describe_saved(const Manifest& manifest);
/// The manifest's own SHA-256. Equal manifests have equal digests.
std::string digest(const Manifest& manifest);

}  // namespace trireme::inline v0::storage
