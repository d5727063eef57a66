#include "trireme/input/shared_corpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::input {
namespace {

// The memory begins with this; source, hash, training and validation part follow without gaps.
struct Head {
  char magic[8] = {'T', 'R', 'I', 'C', 'O', 'R', 'P', '1'};
  std::uint64_t source = 0, hash = 0, train = 0, validation = 0;  // bytes
};
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

[[noreturn]] void refuse_shared(const std::string& what) {
  throw ResourceError(what, {.operation = "data", .advice = "Free some memory, or use less text."});
}

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      refuse_shared(std::string("cannot hold the text in memory: ") + strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::shared_ptr<const SharedCorpus> SharedCorpus::make(const Corpus& corpus) {
  const Descriptor memory(memfd_create("trireme-corpus", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) refuse_shared(std::string("cannot make shared memory: ") + strerror(errno));
  Head head;
  head.source = corpus.source.size();
  head.hash = corpus.hash.size();
  head.train = corpus.train.size();
  head.validation = corpus.validation.size();
  write_all(memory.get(), {reinterpret_cast<const char*>(&head), sizeof head});
  for (const std::string* part : {&corpus.source, &corpus.hash, &corpus.train, &corpus.validation})
    write_all(memory.get(), *part);
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    refuse_shared(std::string("cannot seal shared memory: ") + strerror(errno));
  return open(memory.get());
}

std::shared_ptr<const SharedCorpus> SharedCorpus::open(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  struct stat status {};
  Head head;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(descriptor, &status) != 0 ||
      status.st_size < static_cast<off_t>(sizeof head))
    refuse_shared("descriptor " + std::to_string(descriptor) + " holds no sealed text");
  std::shared_ptr<SharedCorpus> shared(new SharedCorpus);
  shared->descriptor_ = Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!shared->descriptor_)
    throw ResourceError(std::string("cannot keep the text's descriptor: ") + strerror(errno),
                        {.operation = "data", .advice = "Raise the limit `ulimit -n`."});
  const auto size = static_cast<std::size_t>(status.st_size);
  // Linux before 6.7 refuses MAP_SHARED of memory that is sealed against writing.
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) refuse_shared(std::string("cannot map the text: ") + strerror(errno));
  shared->data_ = static_cast<const std::byte*>(data);
  shared->size_ = size;
  std::memcpy(&head, data, sizeof head);
  std::string_view rest(static_cast<const char*>(data) + sizeof head, size - sizeof head);
  const auto take = [&](std::uint64_t bytes) {
    if (bytes > rest.size()) refuse_shared("the shared text is shorter than its head says");
    const std::string_view part = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return part;
  };
  if (std::memcmp(head.magic, Head{}.magic, sizeof head.magic) != 0)
    refuse_shared("the shared text begins with something else");
  shared->source_ = take(head.source);
  shared->hash_ = take(head.hash);
  shared->train_ = take(head.train);
  shared->validation_ = take(head.validation);
  return shared;
}

SharedCorpus::~SharedCorpus() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace trireme::inline v0::input
