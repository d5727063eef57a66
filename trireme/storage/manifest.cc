#include "trireme/storage/manifest.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"

namespace trireme::inline v0::storage {
namespace {

using nlohmann::json;
constexpr std::uint64_t kMost = 1'000'000'000'000'000;  // limit of steps and bytes
constexpr std::int64_t kMostChunk = 1 << 30;            // bytes; readers have several in memory
constexpr const char* kSavedPart = "saved";
constexpr std::int64_t kOldestVersion = kManifestVersion - 1;
constexpr const char* kFormat = "trireme-checkpoint";

[[noreturn]] void refuse_manifest(const std::string& title, const std::string& what,
                                  const std::string& advice) {
  throw CheckpointError(title + ": " + what, {.operation = "checkpoint", .advice = advice});
}

[[noreturn]] void refuse_damage(const std::string& title, const std::string& what) {
  refuse_manifest(title, what,
                  "The file is torn or was changed: remove this checkpoint's folder to resume "
                  "from an older one.");
}

json files_of(const std::map<std::string, FileRecord>& records, std::int64_t version) {
  json files = json::object();
  for (const auto& [name, record] : records) {
    files[name] = {{"bytes", record.bytes}, {"xxh3", record.chunks}};
    if (version > 2) files[name]["header"] = record.header_bytes;
  }
  return files;
}

json body_of(const Manifest& manifest) {
  return {{"format", kFormat},
          {"version", manifest.version},
          {"step", manifest.step},
          {"identity", manifest.identity},
          {"files", files_of(manifest.files, manifest.version)},
          {"chunk_bytes", manifest.chunk_bytes},
          {"parts", manifest.parts}};
}

std::string hash_of(const json& body) {
  const std::string text = body.dump();
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

// Reads an object of exactly `num_keys` keys.
class Reader {
 public:
  Reader(const json& object, const std::string& title, std::size_t num_keys)
      : object_(object), title_(title) {
    if (!object.is_object() || object.size() != num_keys) {
      refuse_damage(title, "a key is missing or unknown");
    }
  }
  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse_damage(title_, std::string("it lacks \"") + key + "\"");
    return *found;
  }
  std::int64_t number(const char* key) const {
    const json& value = at(key);
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > kMost;
    if (!huge && (!value.is_number_integer() || value < 0)) bad(key);
    if (huge) refuse_damage(title_, std::string("\"") + key + "\" is too large");
    return value.get<std::int64_t>();
  }
  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) bad(key);
    return value.get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    const json& value = at(key);
    const auto is_text = [](const json& one) { return one.is_string(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) bad(key);
    return value.get<std::vector<std::string>>();
  }
  const json& object(const char* key) const {
    const json& value = at(key);
    if (!value.is_object()) bad(key);
    return value;
  }
  [[noreturn]] void bad(const std::string& key) const {
    refuse_damage(title_, "\"" + key + "\" has the wrong type");
  }

 private:
  const json& object_;
  const std::string& title_;
};

void check_version(const json& root, const std::string& title) {
  const auto number = [&](const char* key) -> std::int64_t {
    return root.contains(key) && root[key].is_number_integer() ? root[key].get<std::int64_t>() : -1;
  };
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat) {
    refuse_damage(title, "it is not the manifest of a checkpoint");
  }
  const std::int64_t version = number("version");
  if (version < 1) refuse_damage(title, "it has no version");
  if (version < kOldestVersion || version > kManifestVersion) {
    refuse_manifest(
        title,
        "it is of version " + std::to_string(version) + " and this Trireme reads " +
            std::to_string(kOldestVersion) + " to " + std::to_string(kManifestVersion),
        version < kOldestVersion ? "Use the Trireme that wrote it." : "Use a newer Trireme.");
  }
}

// Throws unless the number of chunks is that of the file's bytes.
void check_chunks(const FileRecord& record, std::int64_t chunk_bytes, const std::string& title,
                  const std::string& name) {
  const std::int64_t chunks =
      record.bytes == 0 ? 0 : record.chunk_of(record.bytes - 1, chunk_bytes) + 1;
  if (static_cast<std::int64_t>(record.chunks.size()) != chunks)
    refuse_damage(title, "\"" + name + "\" has " + std::to_string(record.chunks.size()) +
                             " hashes, and its size is that of " + std::to_string(chunks) +
                             " chunks");
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  json body = body_of(manifest);
  body["sha256"] = hash_of(body);
  return body.dump(2) + "\n";
}

std::string to_text(const WrittenFiles& written) {
  return json{{"files", files_of(written.files, kManifestVersion)},
              {"kept_bytes", written.kept_bytes},
              {"failure", written.failure},
              {"advice", written.advice}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

WrittenFiles parse_written_files(std::string_view text) {
  const json root = json::parse(text);
  WrittenFiles written{.kept_bytes = root.at("kept_bytes"),
                       .failure = root.at("failure"),
                       .advice = root.at("advice")};
  for (const auto& [name, one] : root.at("files").items())
    written.files[name] = {one.at("bytes"), one.at("header"), one.at("xxh3")};
  return written;
}

void note_saved(Manifest& manifest, double seconds, std::optional<double> validation_loss) {
  json note = {{"seconds", seconds}};
  if (validation_loss) note["validation_loss"] = *validation_loss;
  manifest.parts[kSavedPart] = note.dump();
}

SavedCheckpoint describe_saved(const Manifest& manifest) {
  SavedCheckpoint saved{.step = manifest.step};
  const auto part = manifest.parts.find(kSavedPart);
  if (part == manifest.parts.end()) return saved;
  const json note = json::parse(part->second, nullptr, false);
  const auto number = [&](const char* key) -> std::optional<double> {
    if (!note.is_object() || !note.contains(key) || !note[key].is_number()) return std::nullopt;
    return note[key].get<double>();
  };
  saved.seconds = number("seconds");
  saved.validation_loss = number("validation_loss");
  return saved;
}

std::string digest(const Manifest& manifest) { return hash_of(body_of(manifest)); }

Manifest parse_manifest(std::string_view text, const std::string& title) {
  const json root = json::parse(text.begin(), text.end(), nullptr, false);
  if (root.is_discarded()) {
    refuse_damage(title, "it is not valid JSON (" + std::to_string(text.size()) + " bytes)");
  }
  check_version(root, title);
  const Reader reader(root, title, 8);
  Manifest manifest;
  manifest.version = reader.number("version");
  manifest.step = reader.number("step");
  manifest.identity = reader.text("identity");
  manifest.chunk_bytes = reader.number("chunk_bytes");
  if (manifest.chunk_bytes == 0) refuse_damage(title, "\"chunk_bytes\" is 0");
  if (manifest.chunk_bytes > kMostChunk) refuse_damage(title, "\"chunk_bytes\" is too large");
  for (const auto& [name, value] : reader.object("files").items()) {
    // The file will be opened, so its name must not be a path out of the folder.
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      refuse_damage(title, "\"" + name + "\" is not a file name");
    }
    const bool has_header = manifest.version > 2;
    const Reader reading(value, title, has_header ? 3 : 2);
    FileRecord record{.bytes = reading.number("bytes"),
                      .header_bytes = has_header ? reading.number("header") : manifest.chunk_bytes,
                      .chunks = reading.texts("xxh3")};
    if (record.header_bytes > manifest.chunk_bytes)
      refuse_damage(title, "the \"header\" of \"" + name + "\" is larger than a chunk");
    check_chunks(record, manifest.chunk_bytes, title, name);
    manifest.files[name] = std::move(record);
  }
  for (const auto& [name, value] : reader.object("parts").items()) {
    if (!value.is_string()) reader.bad(name);
    manifest.parts[name] = value.get<std::string>();
  }
  if (reader.text("sha256") != digest(manifest)) {
    refuse_damage(title,
                  "its SHA-256 is " + digest(manifest) + ", but it says " + reader.text("sha256"));
  }
  return manifest;
}

}  // namespace trireme::inline v0::storage
