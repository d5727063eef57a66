#include "trireme/storage/checkpoint_reader.h"

#include <algorithm>
#include <cstdio>

#include "trireme/base/parse_number.h"

namespace trireme::inline v0::storage {

std::string name_of_step(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(name.substr(kPrefix.size()));
  return step && name_of_step(*step) == name ? step : std::nullopt;
}

std::string file_of(const std::string& file, int rank, bool frozen) {
  const auto dot = file.rfind('.');
  return file.substr(0, dot) + (rank > 0 ? "-" + std::to_string(rank) : "") +
         (frozen ? "-frozen" : "") + file.substr(dot);
}

bool is_of_file(const std::string& name, const std::string& file) {
  const auto dot = file.rfind('.');
  return name == file ||
         (name.starts_with(file.substr(0, dot) + "-") && name.ends_with(file.substr(dot)));
}

namespace {

// Compares the sizes of the files with the manifest (`whole`: every byte).
Manifest compared(const CheckpointReader& reader, std::int64_t step, bool whole) {
  Manifest manifest = reader.read_manifest(step);
  for (const auto& [name, record] : manifest.files) {
    VerifiedFile file = reader.open(manifest, name);
    if (whole) file.verify();
  }
  return manifest;
}

Manifest checked(const CheckpointReader& reader, std::int64_t step, bool whole) {
  try {
    return compared(reader, step, whole);
  } catch (const Error& error) {
    reader.refuse(step, error);
  }
}

// False also if the checkpoint cannot be read now.
bool is_intact(const CheckpointReader& reader, std::int64_t step) {
  try {
    compared(reader, step, /*whole=*/true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

[[noreturn]] void refuse_folder(const std::string& what, const std::string& advice) {
  throw CheckpointError(what, {.operation = "checkpoint", .advice = advice});
}

}  // namespace

std::string CheckpointReader::path_of(std::int64_t step) const {
  return directory_ + "/" + name_of_step(step);
}

std::vector<std::int64_t> CheckpointReader::steps() const {
  std::vector<std::int64_t> steps;
  for (const std::string& name : storage_->list(directory_))
    if (const auto step = step_of_folder(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool CheckpointReader::has(std::int64_t step) const {
  const std::vector<std::int64_t> all = steps();
  return std::binary_search(all.begin(), all.end(), step);
}

std::string CheckpointReader::read_text(std::int64_t step, const std::string& file) const {
  constexpr std::int64_t kMostText = 256 << 20;  // bytes
  const std::string path = path_of(step) + "/" + file;
  const auto opened = storage_->open(path);
  if (opened->size() > kMostText)
    refuse_folder(path + " is damaged: it has " + std::to_string(opened->size()) + " bytes", "");
  return text_of(*opened);
}

VerifiedFile CheckpointReader::open(const Manifest& manifest, const std::string& file) const {
  const std::string path = path_of(manifest.step) + "/" + file;
  return {[storage = storage_, path] { return storage->open(path); }, manifest.files.at(file),
          manifest.chunk_bytes, path};
}

Manifest CheckpointReader::read_manifest(std::int64_t step) const {
  const std::string path = path_of(step) + "/" + kManifestFile;
  Manifest manifest = parse_manifest(read_text(step, kManifestFile), path);
  if (manifest.step != step) {
    refuse_folder(path + ": it is the manifest of step " + std::to_string(manifest.step),
                  "The folder was renamed: give it its old name back.");
  }
  for (const char* name : {kModelFile, kStateFile})
    if (!manifest.files.contains(name))
      refuse_folder(path + " lists no hashes of " + name + ", so the checkpoint is incomplete",
                    "Remove this checkpoint's folder to resume from an older one.");
  return manifest;
}

Manifest CheckpointReader::verify(std::int64_t step) const { return checked(*this, step, true); }
Manifest CheckpointReader::look(std::int64_t step) const { return checked(*this, step, false); }

void CheckpointReader::refuse(std::int64_t step, const Error& error) const {
  ErrorContext context = error.context();
  if (!has(step)) {
    context.advice =
        "A running job removes its older checkpoints (checkpoint.keep): read a newer one.";
    throw CheckpointError(path_of(step) + " was removed while it was read: " + error.message(),
                          context);
  }
  if (error.code() != ExitCode::Checkpoint) throw;  // the storage fails, and nothing is damaged
  std::vector<std::int64_t> older = steps();
  while (!older.empty() && (older.back() >= step || !is_intact(*this, older.back())))
    older.pop_back();
  if (!older.empty())
    context.advice = "Step " + std::to_string(older.back()) + " is intact: remove " +
                     path_of(step) + " to resume from it.";
  else if (context.advice.empty())
    context.advice = "There is no older checkpoint that is intact: start anew in another folder.";
  throw CheckpointError(error.message(), context);
}

}  // namespace trireme::inline v0::storage
