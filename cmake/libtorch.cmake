# Finds LibTorch; for this tree and, installed beside TriremeConfig.cmake, for its users. Not by LibTorch's own
# package: of a CUDA build, that asks for CUDA's whole toolkit, of which nothing is compiled or linked here.
#
# In: Torch_DIR (the folder of TorchConfig.cmake), else the environment's TORCH_DIR (LibTorch's own folder),
#   else CMAKE_PREFIX_PATH; TRIREME_BUILT_WITH: the version that an installed Trireme was built with.
# Out: Torch_FOUND, Torch_DIR, Torch_VERSION, TORCH_INSTALL_PREFIX, TORCH_LIBRARY, TORCH_INCLUDE_DIRS,
#   TORCH_LIBRARIES; TRIREME_LIBTORCH_FAULT: why the one that was named or found cannot be used, else empty.
macro(trireme_find_libtorch)
  string(REPLACE ":" ";" _trireme_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  set(_trireme_places "$ENV{TORCH_DIR}")
  if(_trireme_places STREQUAL "")
    set(_trireme_places "$ENV{Torch_DIR}" ${CMAKE_PREFIX_PATH} ${_trireme_prefixes} ${ARGN})
  endif()
  find_path(Torch_DIR TorchConfig.cmake PATH_SUFFIXES share/cmake/Torch Torch NO_DEFAULT_PATH
            PATHS ${_trireme_places} DOC "The folder of LibTorch's TorchConfig.cmake")
  get_filename_component(TORCH_INSTALL_PREFIX "${Torch_DIR}/../../.." ABSOLUTE)
  set(TORCH_LIBRARY "${TORCH_INSTALL_PREFIX}/lib/libtorch.so")
  set(Torch_FOUND FALSE)
  set(TRIREME_LIBTORCH_FAULT "")
  if(NOT Torch_DIR)
    if(NOT "$ENV{TORCH_DIR}" STREQUAL "")
      set(TRIREME_LIBTORCH_FAULT
          "TORCH_DIR=$ENV{TORCH_DIR} holds no LibTorch (no share/cmake/Torch/TorchConfig.cmake).")
    endif()
  elseif(NOT EXISTS "${TORCH_LIBRARY}" OR NOT EXISTS "${Torch_DIR}/TorchConfigVersion.cmake")
    set(TRIREME_LIBTORCH_FAULT "Torch_DIR=${Torch_DIR} is not the folder share/cmake/Torch of a LibTorch.")
  else()
    set(Torch_FOUND TRUE)
    include("${Torch_DIR}/TorchConfigVersion.cmake")
    set(Torch_VERSION ${PACKAGE_VERSION})
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" _trireme_minor "${Torch_VERSION}")
    if(Torch_VERSION VERSION_LESS 2.11)   # the first whose devices tell a stream's native handle
      set(TRIREME_LIBTORCH_FAULT
          "LibTorch ${Torch_VERSION} in ${Torch_DIR} is too old: Trireme needs 2.11 or later.")
    elseif(TRIREME_BUILT_WITH AND NOT "${TRIREME_BUILT_WITH}." MATCHES "^${_trireme_minor}\\.")
      # Its classes may have other members, of which neither the compiler nor the linker says anything.
      set(TRIREME_LIBTORCH_FAULT
          "LibTorch ${Torch_VERSION} in ${Torch_DIR} does not fit: this Trireme was built with LibTorch \
${TRIREME_BUILT_WITH}. Install that one, or build Trireme again with this one \
(make install TORCH_DIR=${TORCH_INSTALL_PREFIX}).")
    endif()
    set(TORCH_INCLUDE_DIRS "${TORCH_INSTALL_PREFIX}/include"
        "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include")
    # libtorch.so has no functions: it loads the devices' libraries, where there are any. Those find CUDA's
    # beside them when a program starts, so that the linker need not.
    set(TORCH_LIBRARIES "-Wl,--push-state,--no-as-needed,\"${TORCH_LIBRARY}\",--pop-state"
        "${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so" "${TORCH_INSTALL_PREFIX}/lib/libc10.so"
        "-Wl,--allow-shlib-undefined")
    foreach(_trireme_library torch_cuda c10_cuda)   # of a CUDA build: its graphs (tensor/devices/cuda_recording.cc)
      if(EXISTS "${TORCH_INSTALL_PREFIX}/lib/lib${_trireme_library}.so")
        list(INSERT TORCH_LIBRARIES 1 "${TORCH_INSTALL_PREFIX}/lib/lib${_trireme_library}.so")
      endif()
    endforeach()
  endif()
  if(TRIREME_LIBTORCH_FAULT)
    unset(Torch_DIR CACHE)   # the next configuration searches again
  endif()
endmacro()
