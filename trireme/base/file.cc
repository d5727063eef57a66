#include "trireme/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/descriptor.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0 {
namespace {

constexpr std::size_t kPiece = 1 << 16;
constexpr std::size_t kLongestPath = 300;  // in a message

// False at an error; errno says which.
bool read_all(int file, std::string& text) {
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const ssize_t got = ::read(file, text.data() + before, kPiece);
    text.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

}  // namespace

std::optional<std::string> try_read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file || !read_all(file.get(), text)) return std::nullopt;
  return text;
}

std::string read_file(const std::string& path, const std::string& what, ErrorContext context) {
  std::optional<std::string> text = try_read_file(path);
  if (text) return *std::move(text);
  const std::string reason = std::strerror(errno);
  throw ConfigError("cannot read " + what + shortened(path, kLongestPath) + ": " + reason,
                    std::move(context));
}

}  // namespace trireme::inline v0
