#include "trireme/storage/folder.h"

#include <algorithm>
#include <random>
#include <set>

#include "trireme/observe/log.h"

namespace trireme::inline v0::storage {
namespace {

constexpr const char* kLatestFile = "latest";
constexpr const char* kMarkFile = ".writers";

std::string random_mark() {
  std::random_device random;
  std::string mark(kMarkBytes, ' ');
  for (char& letter : mark) letter = static_cast<char>('a' + random() % 26);
  return mark;
}

// Lets several calls be made although one of them fails.
class FirstFailure {
 public:
  void watch(auto call) {
    try {
      call();
    } catch (const ResourceError&) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

FileRecord write_file(OutputFile& file, const FileWriter& writer, std::int64_t chunk_bytes) {
  FileHashes hashes(chunk_bytes);
  writer.write([&](std::span<const std::byte> bytes) {
    file.write(bytes);
    hashes.update(bytes);
  });
  file.finish();
  return hashes.finish();
}

// Whether the file has the content of `record`. Stops at the first chunk that differs.
bool is_unchanged(const FileWriter& writer, const FileRecord& record, std::int64_t chunk_bytes) {
  struct Differs {};
  FileHashes hashes(chunk_bytes);
  try {
    writer.write([&](std::span<const std::byte> bytes) {
      hashes.update(bytes);
      if (!hashes.may_be(record)) throw Differs{};
    });
  } catch (const Differs&) {
    return false;
  }
  return hashes.finish() == record;
}

void copy_file(InputFile& from, OutputFile& to) {
  constexpr std::int64_t kAtOnce = 32 << 20;
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(std::min<std::int64_t>(from.size(), kAtOnce)));
  for (std::int64_t at = 0; at < from.size(); at += kAtOnce) {
    const std::span<std::byte> part = std::span(bytes).first(
        static_cast<std::size_t>(std::min<std::int64_t>(from.size() - at, kAtOnce)));
    from.read(at, part);
    to.write(part);
  }
  to.finish();
}

// The manifest of the checkpoint before `step`; nullopt if there is none or it cannot be read.
std::optional<Manifest> manifest_before(const CheckpointReader& folder, std::int64_t step) {
  std::optional<std::int64_t> before;
  for (const std::int64_t one : folder.steps())
    if (one < step) before = one;
  try {
    return before ? std::optional(folder.read_manifest(*before)) : std::nullopt;
  } catch (const Error&) {  // damaged, or the disk fails there: all files are written
    return std::nullopt;
  }
}

// Whether a file may be linked on into the checkpoint of `step`: a link to a damaged file would pass
// the damage on. Compares the size and one of kParts parts of the bytes, at each save another one,
// since reading all takes about as long as writing. A bucket verifies its bytes itself.
bool seems_intact(const CheckpointReader& folder, const Manifest& manifest, const std::string& name,
                  std::int64_t step) {
  constexpr std::int64_t kParts = 16;
  try {
    VerifiedFile file = folder.open(manifest, name);
    const std::int64_t save = step / (step - manifest.step);  // its number, if saves are regular
    if (!folder.is_remote()) file.verify_some(save % kParts, kParts);
    return true;
  } catch (const Error& error) {  // damaged, or the disk fails there
    observe::warning(error.message() + "; it is written again");
    return false;
  }
}

}  // namespace

bool is_mark(std::string_view text) {
  return text.size() == kMarkBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

CheckpointFolder::CheckpointFolder(std::shared_ptr<Storage> storage, std::string directory)
    : CheckpointReader(std::move(storage), std::move(directory)), mark_(random_mark()) {}

void CheckpointFolder::remove(std::int64_t step) const {
  check_claim();
  storage_->remove(path_of(step));
}

void CheckpointFolder::remove_outdated(const Retention& keep) const {
  std::vector<SavedCheckpoint> saved;
  std::set<std::int64_t> unknown;  // manifests that cannot be read now: these checkpoints stay
  FirstFailure failure;
  for (const std::int64_t step : steps()) {
    saved.push_back({.step = step});
    if (keep.counts_only()) continue;
    unknown.insert(step);
    failure.watch([&] {
      try {
        saved.back() = describe_saved(read_manifest(step));
      } catch (const CheckpointError&) {  // damaged: kept only if it is one of the newest
      }
      unknown.erase(step);
    });
  }
  for (const std::int64_t step : outdated(saved, keep))
    if (!unknown.contains(step)) failure.watch([&] { remove(step); });
  failure.rethrow();
}

void CheckpointFolder::remove_all() const {
  check_claim();
  for (const std::int64_t step : steps()) remove(step);
  for (const std::string& name : storage_->list(directory_))
    if (name == kLatestFile) storage_->remove(directory_ + "/" + name);
}

bool CheckpointFolder::adopt(const CheckpointFolder& other, std::int64_t step) {
  if (has(step)) return true;
  check_claim();
  try {
    // The folder may hold more than its manifest names: other programs' files stay there.
    const Manifest manifest = other.read_manifest(step);
    const auto draft = storage_->begin(path_of(step), mark_);
    const bool same = storage_ == other.storage_ || (!is_remote() && !other.is_remote());
    for (const auto& [name, record] : manifest.files) {
      const std::string path = other.path_of(step) + "/" + name;
      if (!same || !draft->reuse(name, path))
        copy_file(*other.storage_->open(path), *draft->create(name));
    }
    check_claim();
    draft->publish(to_text(manifest));
  } catch (const Error&) {
    if (other.has(step)) throw;
    return false;
  }
  storage_->put(directory_ + "/" + kLatestFile, name_of_step(step) + "\n");
  return true;
}

WrittenFiles CheckpointFolder::write_all(Draft& draft, const Manifest& manifest,
                                         const std::map<std::string, FileWriter>& files) const {
  WrittenFiles written;
  const std::optional<Manifest> last = manifest_before(*this, manifest.step);
  for (const auto& [name, writer] : files) {
    const bool known = last && last->chunk_bytes == manifest.chunk_bytes &&
                       last->files.contains(name) && writer.repeatable;
    const FileRecord same = known ? last->files.at(name) : FileRecord();
    const bool unchanged = same.bytes > manifest.chunk_bytes &&
                           is_unchanged(writer, same, manifest.chunk_bytes) &&
                           seems_intact(*this, *last, name, manifest.step);
    check_claim();
    if (unchanged && draft.reuse(name, path_of(last->step) + "/" + name)) {
      written.files[name] = same;
      written.kept_bytes += same.bytes;
    } else {
      written.files[name] = write_file(*draft.create(name), writer, manifest.chunk_bytes);
    }
  }
  return written;
}

// Returns the bytes that were not written anew.
std::int64_t CheckpointFolder::complete(Draft& draft, Manifest& manifest,
                                        const std::map<std::string, FileWriter>& files,
                                        OtherWriters* others) const {
  if (others != nullptr) others->start();
  WrittenFiles written;
  std::exception_ptr failure;
  try {
    written = write_all(draft, manifest, files);
  } catch (...) {
    failure = std::current_exception();
  }
  // Also after a failure: while another rank writes, the draft cannot be removed.
  const WrittenFiles theirs = others != nullptr ? others->finish() : WrittenFiles();
  if (failure) std::rethrow_exception(failure);
  manifest.files = std::move(written.files);
  manifest.files.insert(theirs.files.begin(), theirs.files.end());
  check_claim();
  draft.publish(to_text(manifest));
  return written.kept_bytes + theirs.kept_bytes;
}

SaveReport CheckpointFolder::write(Manifest manifest,
                                   const std::map<std::string, FileWriter>& files,
                                   const Retention& keep, OtherWriters* others) {
  check_claim();
  if (const auto there = steps(); !there.empty() && there.back() >= manifest.step)
    throw ConfigError("step " + std::to_string(manifest.step) +
                          " is not saved: " + path_of(there.back()) + " is there already",
                      {.operation = "checkpoint",
                       .advice = "If another job has trained this run, see how far it has come."});
  SaveReport report;
  {
    const auto draft = storage_->begin(path_of(manifest.step), mark_);
    report.kept_bytes = complete(*draft, manifest, files, others);
  }
  for (const auto& [name, record] : manifest.files) report.written_bytes += record.bytes;
  report.written_bytes -= report.kept_bytes;
  try {
    FirstFailure failure;  // if there is no space for `latest`, removing old checkpoints makes some
    failure.watch(
        [&] { storage_->put(directory_ + "/" + kLatestFile, name_of_step(manifest.step) + "\n"); });
    failure.watch([&] { remove_outdated(keep); });
    failure.rethrow();
  } catch (const ResourceError& error) {
    report.undone = error.message();
  }
  return report;
}

WrittenFiles CheckpointFolder::write_files(const Manifest& manifest,
                                           const std::map<std::string, FileWriter>& files) {
  return write_all(*storage_->join(path_of(manifest.step), mark_), manifest, files);
}

void CheckpointFolder::show_mark() {
  check_claim();
  storage_->put(directory_ + "/" + kMarkFile, mark_);
}

void CheckpointFolder::hide_mark() {
  check_claim();
  storage_->remove(directory_ + "/" + kMarkFile);
}

bool CheckpointFolder::sees(const std::string& mark) const {
  try {
    return text_of(*storage_->open(directory_ + "/" + kMarkFile)) == mark;
  } catch (const Error&) {  // there is none, or the storage cannot be reached from here
    return false;
  }
}

}  // namespace trireme::inline v0::storage
