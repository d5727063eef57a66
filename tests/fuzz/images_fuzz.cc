// A file of images may hold anything, compressed or not: it is refused with ConfigError, or every
// record of both parts is complete and has a valid label.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/base/error.h"
#include "trireme/input/image_files.h"

namespace {

void check(const std::string& records) {
  const auto size = static_cast<std::int64_t>(records.size());
  if (size == 0 || size % trireme::input::kImageRecord != 0) std::abort();
  for (std::int64_t at = 0; at < size; at += trireme::input::kImageRecord) {
    const auto label = static_cast<unsigned char>(records[static_cast<std::size_t>(at)]);
    if (label >= trireme::input::kImageClasses) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0) std::abort();
  if (pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const trireme::input::Corpus corpus = trireme::input::load_images(path);
    check(corpus.train);
    check(corpus.validation);
  } catch (const trireme::ConfigError&) {
  }
  return 0;
}
