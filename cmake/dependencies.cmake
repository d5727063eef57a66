# Third-party parts. All are installed by tools/setup.py (Debian packages, the torch wheel); none is
# in the tree. LibTorch: TORCH_DIR, else Torch_DIR / CMAKE_PREFIX_PATH, else the virtual environment
# that tools/setup.py made (tools/build.py passes Torch_DIR).
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Protobuf REQUIRED)
include(cmake/grpc.cmake)
trireme_find_grpc()
if(NOT TARGET gRPC::grpc++)
  message(FATAL_ERROR "gRPC for C++ was not found: neither its CMake package nor grpc++ by pkg-config.")
endif()
find_program(TRIREME_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(CURL 7.86 REQUIRED)   # signs requests for S3
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
if(TRIREME_TESTS)
  find_package(GTest REQUIRED)
  include(cmake/python.cmake)
endif()

if(TRIREME_LIBTORCH)
  include(cmake/libtorch.cmake)
  trireme_find_libtorch()
  if(TRIREME_LIBTORCH_FAULT)
    message(FATAL_ERROR "${TRIREME_LIBTORCH_FAULT} Name another with TORCH_DIR, or unset it to let the set-up "
                        "bring one.")
  elseif(NOT Torch_FOUND)
    message(STATUS "LibTorch was not found: only the floors without it are built "
                   "(set TORCH_DIR, or run `make build`, which installs one).")
    set(TRIREME_LIBTORCH OFF)
  endif()
endif()
