#include "trireme/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstring>
#include <span>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace net {
namespace {

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'E', 'M', 'E', '\n'};

struct Hello {
  char magic[8];
  std::uint32_t version;
  std::uint32_t epoch;
  std::int32_t rank;
  std::int32_t size;
  std::uint32_t purpose;
  std::uint32_t reserved;
  unsigned char nonce[32];
};
static_assert(sizeof(Hello) == 64);

using Proof = std::array<unsigned char, 32>;

Proof prove(const std::string& secret, const char* role, const Hello& dialler,
            const Hello& acceptor) {
  std::string text(role);
  text.append(reinterpret_cast<const char*>(&dialler), sizeof dialler);
  text.append(reinterpret_cast<const char*>(&acceptor), sizeof acceptor);
  Proof proof{};
  unsigned length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &length);
  return proof;
}

Hello hello_of(const Identity& mine) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.version = kWireVersion;
  hello.epoch = mine.epoch;
  hello.rank = mine.rank;
  hello.size = mine.size;
  hello.purpose = mine.purpose;
  if (RAND_bytes(hello.nonce, sizeof hello.nonce) != 1) {
    throw ResourceError("the system has no random numbers", {.operation = "handshake"});
  }
  return hello;
}

void check(const Hello& mine, const Hello& theirs) {
  const auto refuse = [](const std::string& why, const char* advice) {
    throw RefusedError(why, {.operation = "handshake", .advice = advice});
  };
  if (std::memcmp(theirs.magic, kMagic, sizeof kMagic) != 0) {
    refuse("the other end does not speak Trireme", "Check addresses and ports.");
  }
  const auto differ = [&](const char* what, long a, long b, const char* advice) {
    if (a != b) {
      refuse("the other end has " + std::string(what) + " " + std::to_string(b) + ", this one " +
                 std::to_string(a),
             advice);
    }
  };
  differ("wire version", mine.version, theirs.version, "Run the same version on every host.");
  differ("epoch", mine.epoch, theirs.epoch, "A rank of an earlier membership is still running.");
  differ("group size", mine.size, theirs.size, "Start every rank with the same number of ranks.");
  differ("connection kind", mine.purpose, theirs.purpose, "Check addresses and ports.");
}

}  // namespace

Identity handshake(Waiter& waiter, int socket, bool dialler, const Identity& mine,
                   const std::string& secret, TimePoint deadline) {
  const std::string other = dialler ? "the accepting end" : "the dialling end";
  const Hello own = hello_of(mine);
  Hello theirs{};
  const auto put = [&](const auto& value) {
    write_all(waiter, socket, std::as_bytes(std::span(&value, 1)), deadline, other);
  };
  const auto get = [&](auto& value) {
    read_all(waiter, socket, std::as_writable_bytes(std::span(&value, 1)), deadline, other);
  };
  put(own);
  get(theirs);
  check(own, theirs);
  const Hello& first = dialler ? own : theirs;
  const Hello& second = dialler ? theirs : own;
  const Proof dial_proof = prove(secret, "dial", first, second);
  const Proof accept_proof = prove(secret, "accept", first, second);
  const auto verify = [&](const Proof& expected) {
    Proof proof{};
    get(proof);
    if (CRYPTO_memcmp(proof.data(), expected.data(), proof.size()) != 0) {
      if (!dialler) put(Proof{});  // so that the dialler hears why it is turned away
      throw RefusedError(ExitCode::Unauthenticated, "the other end does not know the job's secret",
                         {.operation = "handshake",
                          .advice = "Give every rank the same TRIREME_JOB_SECRET_FILE."});
    }
  };
  if (dialler) {
    put(dial_proof);
    verify(accept_proof);
  } else {
    verify(dial_proof);
    put(accept_proof);
  }
  return {theirs.epoch, theirs.rank, theirs.size, theirs.purpose};
}

}  // namespace net
}  // namespace v0
}  // namespace trireme
