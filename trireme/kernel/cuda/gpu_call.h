// TRIREME_GPU_CALL marks functions that nvcc compiles for GPUs as well, and g++ for the host, where
// tests run the same arithmetic.
#pragma once

#ifdef __CUDACC__
#define TRIREME_GPU_CALL __host__ __device__ __forceinline__
#else
#define TRIREME_GPU_CALL inline
#endif
