#include "trireme/base/weights_hash.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "trireme/base/check.h"

namespace trireme::inline v0 {
namespace {

void add(Sha256& hash, std::int64_t value) {  // little endian, like the machines that run this
  hash.update(std::as_bytes(std::span(&value, 1)));
}

void add(Sha256& hash, std::string_view text) {
  hash.update(text);
  hash.update(std::string_view("", 1));
}

void add_tensor(Sha256& hash, const HashedTensor& tensor) {
  add(hash, tensor.name);
  add(hash, name_of(tensor.dtype));
  add(hash, static_cast<std::int64_t>(tensor.shape.size()));
  for (std::int64_t dim : tensor.shape) add(hash, dim);
  add(hash, static_cast<std::int64_t>(tensor.bytes.size()));
  hash.update(tensor.bytes);
}

}  // namespace

std::string weights_hash(std::vector<HashedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const HashedTensor& a, const HashedTensor& b) { return a.name < b.name; });
  WeightsHash hash;
  for (const HashedTensor& tensor : tensors) hash.add(tensor);
  return hash.finish();
}

void WeightsHash::add(const HashedTensor& tensor) {
  TRIREME_CHECK(last_ <= tensor.name);
  last_ = tensor.name;
  add_tensor(hash_, tensor);
}

std::uint64_t tensor_hash(const HashedTensor& tensor) {
  Sha256 hash;
  add_tensor(hash, tensor);
  std::uint64_t value = 0;
  std::memcpy(&value, hash.digest().data(), sizeof value);
  return value;
}

}  // namespace trireme::inline v0
