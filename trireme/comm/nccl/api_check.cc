// Compares cuda_api.h and nccl_api.h with the headers of CUDA and NCCL, at compile time. Empty
// unless CMake finds these headers.
#ifdef TRIREME_CHECK_GPU_HEADERS
#include <cuda.h>
#include <nccl.h>

#include <string_view>
#include <type_traits>

#include "trireme/comm/nccl/cuda_api.h"
#include "trireme/comm/nccl/nccl_api.h"

namespace trireme::comm::nccl {
namespace {

// True if both types are pointers, numbers (integers or enums) of one size, or structures of one
// size.
template <class Ours, class Theirs>
constexpr bool alike() {
  constexpr auto is_number = []<class T>(std::type_identity<T>) {
    return std::is_integral_v<T> || std::is_enum_v<T>;
  };
  constexpr bool numbers =
      is_number(std::type_identity<Ours>()) && is_number(std::type_identity<Theirs>());
  constexpr bool pointers = std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  constexpr bool structures = std::is_class_v<Ours> && std::is_class_v<Theirs>;
  return (numbers || pointers || structures) && sizeof(Ours) == sizeof(Theirs);
}

template <class Ours, class Theirs>
struct SameSignature : std::false_type {};
template <class R, class... P, class TheirR, class... TheirP>
requires(sizeof...(P) == sizeof...(TheirP)) struct SameSignature<R (*)(P...), TheirR (*)(TheirP...)>
    : std::bool_constant<alike<R, TheirR>() && (alike<P, TheirP>() && ...)> {
};

// Macros of cuda.h choose a function's version; our symbol must be the one that they choose.
#define TRIREME_TEXT_OF(text) #text
#define TRIREME_TEXT(name) TRIREME_TEXT_OF(name)
#define TRIREME_SAME(member, function, symbol, parameters)                                \
  static_assert(SameSignature<decltype(CudaApi::member), decltype(&function)>(), symbol); \
  static_assert(std::string_view(TRIREME_TEXT(function)) == symbol);
TRIREME_CUDA_FUNCTIONS(TRIREME_SAME)
#undef TRIREME_SAME
#define TRIREME_SAME(member, function, type, parameters) \
  static_assert(SameSignature<decltype(NcclApi::member), decltype(&function)>(), #function);
TRIREME_NCCL_FUNCTIONS(TRIREME_SAME)
#undef TRIREME_SAME

static_assert(kCudaSuccess == CUDA_SUCCESS && kCudaOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              kCudaNotReady == CUDA_ERROR_NOT_READY);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING &&
              kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kNcclSuccess == int(ncclSuccess) && kNcclInProgress == int(ncclInProgress) &&
              kNcclSystemError == int(ncclSystemError) && kNcclRemoteError == int(ncclRemoteError));
static_assert(kNcclUint8 == int(ncclUint8) && kNcclInt32 == int(ncclInt32) &&
              kNcclInt64 == int(ncclInt64) && kNcclFloat16 == int(ncclFloat16) &&
              kNcclFloat32 == int(ncclFloat32) && kNcclFloat64 == int(ncclFloat64) &&
              kNcclBfloat16 == int(ncclBfloat16));
static_assert(kNcclSum == int(ncclSum) && kNcclProd == int(ncclProd) && kNcclMax == int(ncclMax) &&
              kNcclMin == int(ncclMin) && kNcclAvg == int(ncclAvg));
constexpr ncclConfig_t kTheirConfig = NCCL_CONFIG_INITIALIZER;
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              kConfigMagic == kTheirConfig.magic && sizeof(NcclId) == NCCL_UNIQUE_ID_BYTES);

}  // namespace
}  // namespace trireme::comm::nccl
#endif
