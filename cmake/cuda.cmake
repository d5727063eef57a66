# CUDA and NCCL, both optional and neither linked: Trireme opens the driver's libcuda.so.1 and
# libnccl.so.2 at run time (comm/nccl/gpu_library.h). A build may add
#   the kernels    if nvcc is found (CUDACXX, CUDA_HOME, PATH, /usr/local/cuda)
#   a check of our declarations against cuda.h and nccl.h    if both are found (NCCL_ROOT: a folder
#                       with include/nccl.h, such as nvidia/nccl of the wheel nvidia-nccl-cu13)
# TRIREME_CUDA=AUTO|ON|OFF: AUTO takes what it finds; ON stops if nvcc is missing.
set(TRIREME_CUDA AUTO CACHE STRING "CUDA kernels: AUTO, ON or OFF")
set_property(CACHE TRIREME_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_CUDA_ARCHITECTURES "80;90" CACHE STRING
    "GPUs that the kernels are compiled for; newer ones take the last one's PTX")
set(NCCL_ROOT "$ENV{NCCL_ROOT}" CACHE PATH "Folder with include/nccl.h and lib/libnccl.so.2")
set(TRIREME_NVCC_WORKS FALSE)
if(TRIREME_CUDA)
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(TRIREME_NVCC "$ENV{CUDACXX}" CACHE FILEPATH "CUDA's compiler")
  endif()
  find_program(TRIREME_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
               PATH_SUFFIXES bin)
  if(TRIREME_NVCC)
    execute_process(COMMAND ${TRIREME_NVCC} --version OUTPUT_VARIABLE version
                    RESULT_VARIABLE failed ERROR_QUIET)
    string(REGEX MATCH "release [0-9.]+" version "${version}")
    if(NOT failed AND version MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 12)   # C++20
      set(TRIREME_NVCC_WORKS TRUE)
      string(REPLACE "release " "" TRIREME_NVCC_VERSION "${version}")
    endif()
  endif()
  if(TRIREME_CUDA STREQUAL "ON" AND NOT TRIREME_NVCC_WORKS)
    message(FATAL_ERROR "TRIREME_CUDA=ON, but no nvcc of CUDA 12 or later was found: set CUDACXX or CUDA_HOME.")
  endif()
  find_path(TRIREME_CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
            PATH_SUFFIXES include)
  find_path(TRIREME_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} ${TORCH_INSTALL_PREFIX}/../nvidia/nccl
            PATH_SUFFIXES include)
  find_library(TRIREME_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${NCCL_ROOT}
               ${TORCH_INSTALL_PREFIX}/../nvidia/nccl PATH_SUFFIXES lib)
endif()
if(TRIREME_NVCC_WORKS)
  message(STATUS "CUDA: kernels by ${TRIREME_NVCC} (${version}) for sm_${TRIREME_CUDA_ARCHITECTURES}.")
elseif(TRIREME_CUDA)
  message(STATUS "CUDA: no nvcc of CUDA 12 or later; this build sums on the CPU only, and comm.transport = nccl is refused.")
else()
  message(STATUS "CUDA: switched off (TRIREME_CUDA).")
endif()
if(TRIREME_NCCL_INCLUDE AND TRIREME_CUDA_INCLUDE)
  message(STATUS "NCCL: declarations are checked against ${TRIREME_NCCL_INCLUDE}/nccl.h.")
elseif(TRIREME_CUDA)
  message(STATUS "NCCL: no nccl.h (NCCL_ROOT); libnccl.so.2 is opened at run time all the same.")
endif()

# trireme_cuda_image(result source): a fat binary of the kernels in `source`, built on demand and again after a change
# of the headers that nvcc read.
function(trireme_cuda_image result source)
  cmake_path(GET source STEM name)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  set(targets "")
  foreach(architecture ${TRIREME_CUDA_ARCHITECTURES})
    list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET TRIREME_CUDA_ARCHITECTURES -1 last)
  list(APPEND targets -gencode arch=compute_${last},code=compute_${last})
  add_custom_command(OUTPUT ${image} DEPENDS ${source} DEPFILE ${image}.d
    COMMAND ${TRIREME_NVCC} -std=c++20 --expt-relaxed-constexpr -O3 -fmad=false -ftz=false -prec-div=true
            -I ${PROJECT_SOURCE_DIR} ${targets} -fatbin -MD -MF ${image}.d -MT ${image}
            -o ${image} ${source}
    COMMENT "CUDA kernels ${name}" VERBATIM)
  set(${result} ${image} PARENT_SCOPE)
endfunction()
