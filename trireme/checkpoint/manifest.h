// manifest.json: what makes a folder of files a checkpoint. It is written last, and says version,
// step, identity, the size and SHA-256 of every file, each part's own text, and its own SHA-256.
//
// A plain value; parsing is strict (unknown or missing keys are damage). No LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace checkpoint {

/// This version and the one before can be read; tests/compat/golden has a checkpoint of each.
inline constexpr std::int64_t kManifestVersion = 1;

struct FileRecord {
  std::int64_t bytes = 0;
  std::string sha256;
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct Manifest {
  std::int64_t version = kManifestVersion;
  std::int64_t step = 0;                     // steps done
  std::string identity;                      // of the job; empty: not compared
  std::map<std::string, FileRecord> files;   // by name in the checkpoint's folder
  std::map<std::string, std::string> parts;  // Saveable::metadata() by part
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The file's text. The same manifest gives the same text.
std::string to_text(const Manifest& manifest);
/// Throws CheckpointError naming `title` and the damage; a newer version names both versions.
Manifest parse_manifest(std::string_view text, const std::string& title);
/// What tells two manifests apart: their own SHA-256.
std::string digest(const Manifest& manifest);

}  // namespace checkpoint
}  // namespace v0
}  // namespace trireme
