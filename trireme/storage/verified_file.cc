#include "trireme/storage/verified_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"

namespace trireme::inline v0::storage {
namespace {

constexpr std::int64_t kLengthBytes = format::kLengthBytes;

[[noreturn]] void refuse_file(const std::string& what) {
  throw CheckpointError(what, {.operation = "checkpoint"});
}

std::int64_t end_of(const VerifiedFile::Piece& piece) {
  return piece.at + static_cast<std::int64_t>(piece.to.size());
}

}  // namespace

void FileHashes::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const bool begins = record_.bytes < kLengthBytes;
    const std::int64_t end = begins ? std::min(kLengthBytes, end_of_chunk()) : end_of_chunk();
    const auto part =
        bytes.first(std::min(bytes.size(), static_cast<std::size_t>(end - record_.bytes)));
    chunk_.update(part);
    record_.bytes += static_cast<std::int64_t>(part.size());
    if (begins) take_first(part);
    if (record_.bytes == end_of_chunk()) end_chunk();
    bytes = bytes.subspan(part.size());
  }
}

std::int64_t FileHashes::end_of_chunk() const {
  return record_.header_bytes + static_cast<std::int64_t>(record_.chunks.size()) * chunk_bytes_;
}

void FileHashes::take_first(std::span<const std::byte> bytes) {
  first_.insert(first_.end(), bytes.begin(), bytes.end());
  if (record_.bytes < kLengthBytes) return;
  const std::uint64_t length = format::header_length(std::span(first_).first<kLengthBytes>());
  if (std::cmp_less_equal(length, chunk_bytes_ - kLengthBytes))
    record_.header_bytes = kLengthBytes + static_cast<std::int64_t>(length);
}

void FileHashes::end_chunk() {
  record_.chunks.push_back(chunk_.hex());
  chunk_.reset();
}

bool FileHashes::may_be(const FileRecord& record) const {
  const std::size_t chunks = record_.chunks.size();
  return record_.bytes <= record.bytes &&
         (chunks == 0 ||
          (chunks <= record.chunks.size() && record_.chunks.back() == record.chunks[chunks - 1]));
}

FileRecord FileHashes::finish() {
  const auto chunk = static_cast<std::int64_t>(record_.chunks.size());
  if (record_.bytes > record_.begin_of(chunk, chunk_bytes_)) end_chunk();
  return std::move(record_);
}

VerifiedFile::VerifiedFile(Open open, FileRecord record, std::int64_t chunk_bytes, std::string path)
    : open_(std::move(open)),
      record_(std::move(record)),
      path_(std::move(path)),
      chunk_bytes_(chunk_bytes) {
  this->open();
}

void VerifiedFile::open() {
  file_ = open_();
  if (file_->size() != record_.bytes)
    refuse_file(path_ + " is torn: it has " + std::to_string(file_->size()) +
                " bytes, and the manifest says " + std::to_string(record_.bytes));
}

void VerifiedFile::check(std::int64_t chunk, std::span<const std::byte> bytes) const {
  const std::string& wanted = record_.chunks[static_cast<std::size_t>(chunk)];
  const std::string hash = format::xxh3_hex(bytes);
  if (hash == wanted) return;
  const std::int64_t begin = begin_of(chunk);
  refuse_file(path_ + " was changed: the XXH3 of its bytes " + std::to_string(begin) + " to " +
              std::to_string(begin + static_cast<std::int64_t>(bytes.size())) + " is " + hash +
              ", and the manifest says " + wanted);
}

void VerifiedFile::load(std::int64_t first_chunk, std::int64_t end_chunk) {
  const std::int64_t begin = begin_of(first_chunk), end = begin_of(end_chunk);
  if (!loaded_.empty() && begin == begin_ &&
      static_cast<std::int64_t>(loaded_.size()) == end - begin)
    return;
  if (!file_) open();
  loaded_.resize(static_cast<std::size_t>(end - begin));
  begin_ = begin;
  try {
    file_->read(begin, loaded_);
    for (std::int64_t chunk = first_chunk; chunk < end_chunk; ++chunk)
      check(chunk, std::span(loaded_).subspan(
                       static_cast<std::size_t>(begin_of(chunk) - begin),
                       static_cast<std::size_t>(begin_of(chunk + 1) - begin_of(chunk))));
  } catch (...) {
    drop();
    throw;
  }
}

void VerifiedFile::drop() {
  loaded_ = {};
  file_.reset();
}

void VerifiedFile::verify() {
  const auto chunks = static_cast<std::int64_t>(record_.chunks.size());
  for (std::int64_t chunk = 0; chunk < chunks; chunk += kChunksAtOnce)
    load(chunk, std::min(chunk + kChunksAtOnce, chunks));
  drop();
}

void VerifiedFile::verify_some(std::int64_t first, std::int64_t of) {
  const auto chunks = static_cast<std::int64_t>(record_.chunks.size());
  for (std::int64_t chunk = first; chunk < chunks; chunk += of) load(chunk, chunk + 1);
  drop();
}

void VerifiedFile::read(std::vector<Piece> pieces) {
  std::erase_if(pieces, [](const Piece& piece) { return piece.to.empty(); });
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.at < b.at; });
  for (const Piece& piece : pieces)
    TRIREME_CHECK((piece.at >= 0 && end_of(piece) <= record_.bytes));
  std::size_t first = 0;  // the pieces before it are filled
  std::int64_t next = 0;  // chunks before this one are done
  while (first < pieces.size()) {
    const std::int64_t begin = std::max(chunk_of(pieces[first].at), next);
    std::int64_t end = begin + 1;  // grows while a piece begins in, or goes on to, the next chunk
    for (std::size_t i = first; i < pieces.size() && end < begin + kChunksAtOnce; ++i) {
      if (chunk_of(pieces[i].at) > end) break;
      end = std::max(end, chunk_of(end_of(pieces[i]) - 1) + 1);
    }
    end = std::min(end, begin + kChunksAtOnce);
    load(begin, end);
    next = end;
    const std::int64_t limit = begin_ + static_cast<std::int64_t>(loaded_.size());
    for (std::size_t i = first; i < pieces.size() && pieces[i].at < limit; ++i) {
      const std::int64_t from = std::max(pieces[i].at, begin_),
                         to = std::min(end_of(pieces[i]), limit);
      if (from < to)
        std::memcpy(pieces[i].to.data() + (from - pieces[i].at), loaded_.data() + (from - begin_),
                    static_cast<std::size_t>(to - from));
    }
    while (first < pieces.size() && end_of(pieces[first]) <= limit) ++first;
  }
}

}  // namespace trireme::inline v0::storage
