// The functions of NCCL that Trireme calls, as pointers loaded from libnccl.so.2 at run time.
// NCCL's types are replaced by their ABI types (see cuda_api.h); api_check.cc compares every line
// with nccl.h if the build finds it. Needs NCCL 2.14, the first with non-blocking communicators.
#pragma once

#include <cstddef>

namespace trireme::inline v0::comm::nccl {

struct NcclId {
  char bytes[128];
};
/// ncclConfig_t of NCCL 2.14. Later versions append members, and read `size` and `version`.
struct NcclConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kOldestNccl = 21400;  // 2.14.0 in ncclGetVersion's encoding

// (member, function of nccl.h, return type, parameters)
#define TRIREME_NCCL_FUNCTIONS(F)                                                                 \
  F(version, ncclGetVersion, int, (int* version))                                                 \
  F(unique_id, ncclGetUniqueId, int, (NcclId * id))                                               \
  F(comm_init, ncclCommInitRankConfig, int,                                                       \
    (void** comm, int size, NcclId id, int rank, NcclConfig* config))                             \
  F(comm_async_error, ncclCommGetAsyncError, int, (void* comm, int* error))                       \
  F(comm_finalize, ncclCommFinalize, int, (void* comm))                                           \
  F(comm_destroy, ncclCommDestroy, int, (void* comm))                                             \
  F(comm_abort, ncclCommAbort, int, (void* comm))                                                 \
  F(error_text, ncclGetErrorString, const char*, (int error))                                     \
  F(last_error, ncclGetLastError, const char*, (void* comm))                                      \
  F(group_start, ncclGroupStart, int, ())                                                         \
  F(group_end, ncclGroupEnd, int, ())                                                             \
  F(all_reduce, ncclAllReduce, int,                                                               \
    (const void* in, void* out, std::size_t count, int type, int op, void* comm, void* stream))   \
  F(reduce, ncclReduce, int,                                                                      \
    (const void* in, void* out, std::size_t count, int type, int op, int root, void* comm,        \
     void* stream))                                                                               \
  F(reduce_scatter, ncclReduceScatter, int,                                                       \
    (const void* in, void* out, std::size_t count, int type, int op, void* comm, void* stream))   \
  F(all_gather, ncclAllGather, int,                                                               \
    (const void* in, void* out, std::size_t count, int type, void* comm, void* stream))           \
  F(broadcast, ncclBroadcast, int,                                                                \
    (const void* in, void* out, std::size_t count, int type, int root, void* comm, void* stream)) \
  F(send, ncclSend, int,                                                                          \
    (const void* in, std::size_t count, int type, int peer, void* comm, void* stream))            \
  F(recv, ncclRecv, int,                                                                          \
    (void* out, std::size_t count, int type, int peer, void* comm, void* stream))

struct NcclApi {
#define TRIREME_MEMBER(member, function, type, parameters) type(*member) parameters = nullptr;
  TRIREME_NCCL_FUNCTIONS(TRIREME_MEMBER)
#undef TRIREME_MEMBER
};

// ncclResult_t, ncclDataType_t, ncclRedOp_t
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclSystemError = 2,
  kNcclRemoteError = 6,
  kNcclInProgress = 7
};
enum NcclType : int {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9
};
enum NcclOp : int { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4 };

}  // namespace trireme::inline v0::comm::nccl
