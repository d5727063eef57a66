// Masks of dropout on GPUs, with the CPU's bits: the kernels trireme_mask_<type> (kernels.cu).
#pragma once

#include "trireme/kernel/cuda/codec.h"
#include "trireme/kernel/philox.h"

namespace trireme::inline v0::kernel {
namespace cuda {

/// Element i is `kept`, or 0 if the upper 24 bits of the stream's word `first` + i are below
/// `below`.
template <class T>
struct MaskArguments {
  T* out = nullptr;
  std::uint64_t count = 0, first = 0;
  std::uint64_t seed = 0, stream = 0;
  const std::int64_t* stream_words = nullptr;  // two words in the GPU's memory instead of `stream`
  std::uint32_t below = 0;
  float kept = 1;
};
/// Blocks of four words, which are drawn together.
template <class T>
constexpr std::uint64_t num_blocks(const MaskArguments<T>& mask) {
  return mask.count == 0 ? 0 : (mask.first + mask.count + 3) / 4 - mask.first / 4;
}

template <class T>
TRIREME_GPU_CALL void mask_share(const MaskArguments<T>& mask, std::uint64_t thread,
                                 std::uint64_t num_threads) {
  using C = Codec<T>;
  const std::uint64_t stream = mask.stream_words == nullptr
                                   ? mask.stream
                                   : static_cast<std::uint64_t>(mask.stream_words[1]) << 32 |
                                         static_cast<std::uint64_t>(mask.stream_words[0]);
  for (std::uint64_t index = thread; index < num_blocks(mask); index += num_threads) {
    const std::uint64_t block = mask.first / 4 + index;
    const PhiloxBlock words = philox(mask.seed, stream, block);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::uint64_t element = block * 4 + i;
      if (element < mask.first || element >= mask.first + mask.count) continue;
      mask.out[element - mask.first] =
          C::encode(static_cast<typename C::Math>(words[i] >> 8 < mask.below ? 0 : mask.kept));
    }
  }
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
