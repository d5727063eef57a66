#include "trireme/rendezvous/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::rendezvous {
namespace {

[[noreturn]] void refuse_secret(const std::string& what, const std::string& advice) {
  throw RefusedError(ExitCode::Unauthenticated, what, {.operation = "join", .advice = advice});
}

// Reads up to 4 KiB; no secret is longer.
std::string read_all(int descriptor) {
  std::string bytes(4096, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got =
        pread(descriptor, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t size = 0;
  while (size < count) {
    const ssize_t got = getrandom(bytes.data() + size, count - size, 0);
    if (got < 0 && errno != EINTR) {
      throw ResourceError(std::string("getrandom failed: ") + std::strerror(errno));
    }
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  return bytes;
}

int secret_descriptor(std::string_view secret) {
  Descriptor file(memfd_create("trireme-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file ||
      write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()) ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
    throw ResourceError(std::string("could not hold the job's secret: ") + std::strerror(errno));
  return file.release();
}

std::string read_secret_descriptor(int descriptor) {
  const std::string secret = peek_secret_descriptor(descriptor);
  close(descriptor);
  return secret;
}

std::string peek_secret_descriptor(int descriptor) {
  const std::string secret = read_all(descriptor);
  if (secret.size() < 16) {
    refuse_secret("the job's secret was not found in descriptor " + std::to_string(descriptor),
                  "Start ranks by `trireme launch`; one process makes one Job.");
  }
  return secret;
}

std::string read_secret_file(const std::string& path) {
  // O_NONBLOCK: open() must not wait for the other end of a named pipe.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) {
    refuse_secret("could not open the secret file " + path + ": " + std::strerror(errno),
                  "Set TRIREME_JOB_SECRET_FILE to a readable file.");
  }
  struct stat status {};
  fstat(descriptor, &status);
  std::string secret = read_all(descriptor);
  close(descriptor);
  if (!S_ISREG(status.st_mode)) {
    refuse_secret("the secret file " + path + " is no regular file",
                  "Set TRIREME_JOB_SECRET_FILE to a file that only you may read.");
  }
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    refuse_secret("the secret file " + path + " may be read or written by others",
                  "Run `chmod 600` on it as its owner.");
  }
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < 16) {
    refuse_secret("the secret file " + path + " holds fewer than 16 bytes",
                  "Make one by `openssl rand -hex 32`.");
  }
  return secret;
}

std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts) {
  std::string message;
  for (const std::string_view part : parts) {
    const std::uint64_t size = part.size();
    message.append(reinterpret_cast<const char*>(&size), sizeof size);
    message.append(part);
  }
  std::string mac(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &size);
  mac.resize(size);
  return mac;
}

bool same_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trireme::inline v0::rendezvous
