#include "trireme/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "trireme/base/check.h"
#include "trireme/format/sha256.h"

namespace trireme::inline v0::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kLatestFile = "latest";

std::string name_of_step(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return name_of_step(step) == name ? std::optional(step) : std::nullopt;
}

FileRecord write_file(Storage& storage, const std::string& path, const FileWriter& writer) {
  const auto file = storage.create(path);
  format::Sha256 hash;
  FileRecord record;
  writer([&](std::span<const std::byte> bytes) {
    file->write(bytes);
    hash.update(bytes);
    record.bytes += static_cast<std::int64_t>(bytes.size());
  });
  file->finish();
  record.sha256 = hash.hex();
  return record;
}

FileRecord write_text(Storage& storage, const std::string& path, const std::string& text) {
  return write_file(storage, path, [&](const auto& sink) { sink(std::as_bytes(std::span(text))); });
}

[[noreturn]] void refuse_folder(const std::string& what, const std::string& advice) {
  throw CheckpointError(what, {.operation = "checkpoint", .advice = advice});
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory)
    : storage_(std::move(storage)), directory_(std::move(directory)) {}

std::string CheckpointFolder::path_of(std::int64_t step) const {
  return directory_ + "/" + name_of_step(step);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  for (const std::string& name : storage_->list(directory_)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void CheckpointFolder::remove_leftovers() const {
  for (const std::string& name : storage_->list(directory_)) {
    if (name.starts_with(kTemporary)) storage_->remove(directory_ + "/" + name);
  }
}

void CheckpointFolder::point_latest(std::int64_t step) const {
  const std::string temporary = directory_ + "/" + std::string(kTemporary) + kLatestFile;
  write_text(*storage_, temporary, name_of_step(step) + "\n");
  storage_->rename(temporary, directory_ + "/" + kLatestFile);
  storage_->sync(directory_);
}

// Renames the folder before removing it, so that a crash leaves no incomplete checkpoint.
void CheckpointFolder::remove(std::int64_t step) const {
  const std::string dying =
      directory_ + "/" + std::string(kTemporary) + "old-" + name_of_step(step);
  storage_->rename(path_of(step), dying);
  storage_->remove(dying);
}

void CheckpointFolder::remove_all_but(int keep) const {
  const std::vector<std::int64_t> kept = steps();
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < kept.size(); ++i) remove(kept[i]);
}

std::string CheckpointFolder::temporary_of(std::int64_t step) const {
  return directory_ + "/" + std::string(kTemporary) + name_of_step(step);
}

// All files are in the temporary folder: gives it its name.
void CheckpointFolder::publish(std::int64_t step) const {
  storage_->sync(temporary_of(step));
  storage_->rename(temporary_of(step), path_of(step));
  storage_->sync(directory_);
  point_latest(step);
}

bool CheckpointFolder::adopt(const CheckpointFolder& other, std::int64_t step) {
  storage_->make_directory(directory_);
  remove_leftovers();
  const std::vector<std::int64_t> existing = steps();
  if (std::count(existing.begin(), existing.end(), step) > 0) return true;
  // The other folder gives a checkpoint another name before it removes it, so each of these links
  // fails from then on.
  const std::string from = other.path_of(step), to = temporary_of(step);
  const std::vector<std::string> names = storage_->list(from);
  storage_->make_directory(to);
  const bool all = !names.empty() && std::all_of(names.begin(), names.end(), [&](const auto& name) {
    return storage_->link(from + "/" + name, to + "/" + name);
  });
  all ? publish(step) : storage_->remove(to);
  return all;
}

void CheckpointFolder::write(Manifest manifest, const std::map<std::string, FileWriter>& files,
                             int keep) {
  const std::string temporary = temporary_of(manifest.step);
  storage_->make_directory(directory_);
  const std::vector<std::int64_t> existing = steps();
  TRIREME_CHECK(std::count(existing.begin(), existing.end(), manifest.step) == 0);
  remove_leftovers();
  try {
    storage_->make_directory(temporary);
    for (const auto& [name, writer] : files) {
      manifest.files[name] = write_file(*storage_, temporary + "/" + name, writer);
    }
    write_text(*storage_, temporary + "/" + kManifestFile, to_text(manifest));
    publish(manifest.step);
  } catch (const ResourceError&) {
    try {
      remove_leftovers();  // also frees the space
    } catch (const ResourceError&) {
    }
    throw;
  }
  remove_all_but(keep);
}

format::MappedFile CheckpointFolder::map(std::int64_t step, const std::string& file) const {
  return storage_->map(path_of(step) + "/" + file);
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
