#include "trireme/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "trireme/base/check.h"
#include "trireme/format/sha256.h"

namespace trireme::inline v0::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr const char* kLatestFile = "latest";

std::string name_of_step(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

}  // namespace

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return name_of_step(step) == name ? std::optional(step) : std::nullopt;
}

namespace {

FileRecord write_file(OutputFile& file, const FileWriter& writer) {
  format::Sha256 hash;
  FileRecord record;
  writer([&](std::span<const std::byte> bytes) {
    file.write(bytes);
    hash.update(bytes);
    record.bytes += static_cast<std::int64_t>(bytes.size());
  });
  file.finish();
  record.sha256 = hash.hex();
  return record;
}

[[noreturn]] void refuse_folder(const std::string& what, const std::string& advice) {
  throw CheckpointError(what, {.operation = "checkpoint", .advice = advice});
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory)
    : storage_(std::move(storage)), directory_(std::move(directory)) {}

CheckpointFolder::CheckpointFolder(const Location& location)
    : CheckpointFolder(location.storage, location.path) {}

std::string CheckpointFolder::path_of(std::int64_t step) const {
  return directory_ + "/" + name_of_step(step);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  for (const std::string& name : storage_->list(directory_)) {
    if (const auto step = step_of_folder(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void CheckpointFolder::remove(std::int64_t step) const { storage_->remove(path_of(step)); }

void CheckpointFolder::remove_outdated(const Retention& keep) const {
  std::vector<SavedCheckpoint> saved;
  for (const std::int64_t step : steps()) {
    saved.push_back({.step = step});
    if (keep.counts_only()) continue;
    try {
      const Manifest manifest = read_manifest(step);
      saved.back() = describe_saved(manifest);
    } catch (const CheckpointError&) {  // damaged: kept only if it is one of the newest
    }
  }
  for (const std::int64_t step : outdated(saved, keep)) remove(step);
}

void CheckpointFolder::remove_all() const {
  for (const std::int64_t step : steps()) remove(step);
  const std::vector<std::string> rest = storage_->list(directory_);
  if (std::count(rest.begin(), rest.end(), kLatestFile) > 0)
    storage_->remove(directory_ + "/" + kLatestFile);
}

// The checkpoint is complete.
void CheckpointFolder::finish_save(std::int64_t step, const Retention& keep) const {
  storage_->put(directory_ + "/" + kLatestFile, name_of_step(step) + "\n");
  remove_outdated(keep);
}

// Gives the draft a file of another folder's checkpoint; false if that has been removed.
bool CheckpointFolder::take(Draft& draft, const CheckpointFolder& other, std::int64_t step,
                            const std::string& name) const {
  const std::string path = other.path_of(step) + "/" + name;
  const bool same = storage_ == other.storage_ || (!is_remote() && !other.is_remote());
  if (same && draft.reuse(name, path)) return true;
  try {
    const format::MappedFile content = other.storage_->read(path);
    const auto file = draft.create(name);
    file->write(content.bytes());
    file->finish();
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

bool CheckpointFolder::adopt(const CheckpointFolder& other, std::int64_t step) {
  const std::vector<std::int64_t> existing = steps();
  if (std::count(existing.begin(), existing.end(), step) > 0) return true;
  // The other folder loses its manifest, or its name, before it loses a file.
  const std::vector<std::string> names = other.storage_->list(other.path_of(step));
  if (names.empty()) return false;
  const auto draft = storage_->begin(path_of(step));
  for (const std::string& name : names)
    if (name != kManifestFile && !take(*draft, other, step, name)) return false;
  try {
    const format::MappedFile manifest = other.map(step, kManifestFile);
    draft->publish(std::string(manifest.text()));
  } catch (const CheckpointError&) {
    const std::vector<std::int64_t> left = other.steps();
    if (std::count(left.begin(), left.end(), step) > 0) throw;
    return false;
  }
  storage_->put(directory_ + "/" + kLatestFile, name_of_step(step) + "\n");
  return true;
}

std::string CheckpointFolder::write(Manifest manifest,
                                    const std::map<std::string, FileWriter>& files,
                                    const Retention& keep) {
  const std::vector<std::int64_t> existing = steps();
  TRIREME_CHECK(std::count(existing.begin(), existing.end(), manifest.step) == 0);
  {
    const auto draft = storage_->begin(path_of(manifest.step));
    for (const auto& [name, writer] : files)
      manifest.files[name] = write_file(*draft->create(name), writer);
    draft->publish(to_text(manifest));
  }
  try {
    finish_save(manifest.step, keep);
  } catch (const ResourceError& error) {
    return error.message();
  }
  return {};
}

format::MappedFile CheckpointFolder::map(std::int64_t step, const std::string& file) const {
  return storage_->read(path_of(step) + "/" + file);
}

Manifest CheckpointFolder::read_manifest(std::int64_t step) const {
  const format::MappedFile file = map(step, kManifestFile);
  Manifest manifest = parse_manifest(file.text(), file.path());
  if (manifest.step != step) {
    refuse_folder(file.path() + ": it is the manifest of step " + std::to_string(manifest.step),
                  "The folder was renamed: give it its old name back.");
  }
  return manifest;
}

void CheckpointFolder::compare_files(std::int64_t step, const Manifest& manifest) const {
  for (const char* name : {kModelFile, kStateFile})
    if (!manifest.files.contains(name))
      refuse_folder(path_of(step) + "/" + kManifestFile + " does not vouch for " + name, "");
  for (const auto& [name, record] : manifest.files) {
    const format::MappedFile file = map(step, name);
    const auto bytes = static_cast<std::int64_t>(file.bytes().size());
    if (bytes != record.bytes) {
      refuse_folder(file.path() + " is torn: it has " + std::to_string(bytes) +
                        " bytes, and the manifest says " + std::to_string(record.bytes),
                    "");
    }
    if (const std::string hash = format::sha256_hex(file.bytes()); hash != record.sha256) {
      refuse_folder(file.path() + " was changed: its SHA-256 is " + hash +
                        ", and the manifest says " + record.sha256,
                    "");
    }
  }
}

Manifest CheckpointFolder::verify(std::int64_t step) const {
  const auto intact = [&](std::int64_t candidate) {
    try {
      compare_files(candidate, read_manifest(candidate));
      return true;
    } catch (const CheckpointError&) {
      return false;
    }
  };
  try {
    Manifest manifest = read_manifest(step);
    compare_files(step, manifest);
    return manifest;
  } catch (const CheckpointError& error) {
    std::vector<std::int64_t> before = steps();
    std::erase_if(before, [&](std::int64_t other) { return other >= step; });
    while (!before.empty() && !intact(before.back())) before.pop_back();
    if (before.empty()) {
      refuse_folder(error.message(),
                    error.advice().empty()
                        ? "There is no older checkpoint that is intact: start anew in "
                          "another folder."
                        : error.advice());
    }
    refuse_folder(error.message(), "Step " + std::to_string(before.back()) + " is intact: remove " +
                                       path_of(step) + " to resume from it.");
  }
}

}  // namespace trireme::inline v0::checkpoint
