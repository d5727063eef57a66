#include "trireme/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::net {
namespace {

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'E', 'M', 'E', '\n'};

struct HelloMessage {
  char magic[8];
  std::uint32_t version;
  std::uint32_t epoch;
  std::int32_t rank;
  std::int32_t size;
  std::uint32_t purpose;
  std::uint32_t reserved;
  unsigned char nonce[32];
};
static_assert(sizeof(HelloMessage) == 64);

HelloMessage hello_of(const Identity& mine) {
  HelloMessage hello{};
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

void check(const HelloMessage& mine, const HelloMessage& theirs) {
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

template <class T>
T read_as(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

HandshakeState::HandshakeState(bool dialler, const Identity& mine, std::string secret)
    : dialler_(dialler), secret_(std::move(secret)), theirs_{}, wanted_(sizeof(Hello)) {
  const HelloMessage hello = hello_of(mine);
  static_assert(sizeof hello == sizeof own_);
  std::memcpy(own_.data(), &hello, sizeof hello);
  put(own_);
}

void HandshakeState::put(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

HandshakeState::Proof HandshakeState::prove(const char* role) const {
  std::string text(role);
  for (const Hello* hello : {dialler_ ? &own_ : &theirs_, dialler_ ? &theirs_ : &own_}) {
    text.append(reinterpret_cast<const char*>(hello->data()), hello->size());
  }
  Proof proof{};
  unsigned length = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &length);
  return proof;
}

void HandshakeState::feed(std::span<const std::byte> bytes) {
  TRIREME_CHECK(bytes.size() == wanted_);
  if (greeted_) return verify(bytes);
  std::copy(bytes.begin(), bytes.end(), theirs_.begin());
  check(read_as<HelloMessage>(own_), read_as<HelloMessage>(theirs_));
  greeted_ = true;
  wanted_ = sizeof(Proof);
  if (dialler_) put(prove("dial"));
}

void HandshakeState::verify(std::span<const std::byte> proof) {
  const Proof expected = prove(dialler_ ? "accept" : "dial");
  if (CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) != 0) {
    if (!dialler_) put(Proof{});  // tells the dialler why it is refused
    throw RefusedError(
        ExitCode::Unauthenticated, "the other end does not know the job's secret",
        {.operation = "handshake", .advice = "Give every rank the same TRIREME_JOB_SECRET_FILE."});
  }
  if (!dialler_) put(prove("accept"));
  wanted_ = 0;
}

Identity HandshakeState::other() const noexcept {
  const auto hello = read_as<HelloMessage>(theirs_);
  return {hello.epoch, hello.rank, hello.size, hello.purpose};
}

Identity handshake(Waiter& waiter, int socket, bool dialler, const Identity& mine,
                   const std::string& secret, const Until& until) {
  const std::string other = dialler ? "the accepting end" : "the dialling end";
  HandshakeState state(dialler, mine, secret);
  const auto flush = [&] { write_all(waiter, socket, state.take_output(), until, other); };
  flush();
  while (state.wanted() > 0) {
    std::byte bytes[64];
    const std::span<std::byte> part(bytes, state.wanted());
    read_all(waiter, socket, part, until, other);
    try {
      state.feed(part);
    } catch (const RefusedError&) {
      flush();
      throw;
    }
    flush();
  }
  return state.other();
}

}  // namespace trireme::inline v0::net
