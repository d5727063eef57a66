#include "trireme/format/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "trireme/base/refuse.h"

namespace trireme::inline v0::format {
namespace {

constexpr unsigned kPiece = 1 << 20;

}  // namespace

std::string read_gzip(const std::string& path, std::int64_t most_bytes) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rbe"), gzclose);
  if (!file) refuse("data", "cannot read " + path + ": " + std::strerror(errno), "Check the path.");
  std::string bytes;
  while (true) {
    const std::size_t filled = bytes.size();
    bytes.resize(filled + kPiece);
    const int got = gzread(file.get(), bytes.data() + filled, kPiece);
    bytes.resize(filled + static_cast<std::size_t>(std::max(got, 0)));
    int state = Z_OK;
    const std::string reason = gzerror(file.get(), &state);
    // A file that ends in the middle of its stream reads as a shorter one (Z_BUF_ERROR).
    if (got < 0 || state != Z_OK) {
      refuse("data", path + " cannot be unpacked: " + (reason.empty() ? "it is damaged" : reason),
             "Fetch it again.");
    }
    if (static_cast<std::int64_t>(bytes.size()) > most_bytes) {
      refuse("data", path + " unpacks to more than " + std::to_string(most_bytes) + " bytes",
             "Check that it is the file you mean.");
    }
    if (got == 0) return bytes;
  }
}

}  // namespace trireme::inline v0::format
