#include "trireme/base/weights_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "trireme/base/check.h"
#include "trireme/base/hex.h"

namespace trireme::inline v0 {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    TRIREME_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* data, std::size_t size) {
    TRIREME_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void add(std::int64_t value) {  // little endian, like the machines that Trireme supports
    add(&value, sizeof value);
  }
  void add_text(std::string_view text) {
    add(text.data(), text.size());
    add("", 1);
  }
  std::array<unsigned char, 32> finish() {
    std::array<unsigned char, 32> digest{};
    TRIREME_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

void add_tensor(Sha256& hash, const HashedTensor& tensor) {
  hash.add_text(tensor.name);
  hash.add_text(name_of(tensor.dtype));
  hash.add(static_cast<std::int64_t>(tensor.shape.size()));
  for (std::int64_t dim : tensor.shape) hash.add(dim);
  hash.add(static_cast<std::int64_t>(tensor.bytes.size()));
  hash.add(tensor.bytes.data(), tensor.bytes.size());
}

}  // namespace

std::string weights_hash(std::vector<HashedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const HashedTensor& a, const HashedTensor& b) { return a.name < b.name; });
  WeightsHash hash;
  for (const HashedTensor& tensor : tensors) hash.add(tensor);
  return hash.finish();
}

struct WeightsHash::State {
  Sha256 hash;
  std::string last;
};
WeightsHash::WeightsHash() : state_(std::make_unique<State>()) {}
WeightsHash::~WeightsHash() = default;

void WeightsHash::add(const HashedTensor& tensor) {
  TRIREME_CHECK(state_->last <= tensor.name);
  state_->last = tensor.name;
  add_tensor(state_->hash, tensor);
}

std::string WeightsHash::finish() {
  const auto digest = state_->hash.finish();
  return to_hex(std::as_bytes(std::span(digest)));
}

std::uint64_t tensor_hash(const HashedTensor& tensor) {
  Sha256 hash;
  add_tensor(hash, tensor);
  std::uint64_t value = 0;
  std::memcpy(&value, hash.finish().data(), sizeof value);
  return value;
}

}  // namespace trireme::inline v0
