# trireme_module(name DEPS a b ... [LIBRARIES targets...] [LIBTORCH])
#   A static library trireme_name of every .cc in the current folder and its sub-folders, without
#   *_test.cc and *_bench.cc, and without sub-folders that are modules of their own (a
#   CMakeLists.txt of theirs). DEPS name other modules; layers.txt says which are allowed. Its
#   *_test.cc become one program with trireme_tests(); a module's tests may use testing/.
# trireme_tests(files... [PROGRAM name] [SOURCES ...] [RANKS n] [TIMEOUT s] [LABELS ...]
#               [DEPS modules...] [LIBRARIES ...])
#   One program, test.FOLDER (or `name`), of all these *_test.cc, and one ctest entry per file, named
#   after the file's path without `trireme/`. The program is compiled several files at a time.
# trireme_test_entry(title file [RANKS n] [TIMEOUT s] [LABELS ...] [ENVIRONMENT ...])
#   One more ctest entry that runs the tests of `file`.

# trireme_not_tested(text...)
#   Says at configure time, and at the end of `make test`, what cannot be tested here and why.

function(trireme_not_tested)
  string(CONCAT text ${ARGN})
  message(STATUS "${text}")
  file(APPEND ${PROJECT_BINARY_DIR}/not-tested.txt "${text}\n")
endfunction()
file(WRITE ${PROJECT_BINARY_DIR}/not-tested.txt "")

set(TRIREME_WARNINGS -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-missing-field-initializers)

if(TRIREME_SANITIZE)
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  # With sanitizers, g++ 12 reports std::regex as uninitialised (GCC 105562), and vectors as not on the heap.
  list(APPEND TRIREME_WARNINGS -Wno-maybe-uninitialized -Wno-free-nonheap-object)
  if(TRIREME_LIBTORCH)   # c10/core/impl/PyObjectSlot.h has a fence, which TSan does not know
    list(APPEND TRIREME_WARNINGS -Wno-tsan)
  endif()
endif()

# Modules whose arithmetic decides bits. A product and a sum become one instruction (FMA) only if
# the code says fma, so that a full vector and a tail cannot differ
# (docs/design/006-no-contraction.md).
set(TRIREME_NUMERIC_MODULES kernel tensor optim models layers placement sync ps decentralised pipeline strategy)

# The sources of a module are compiled forty at a time, most modules as a whole: reading their headers (CLI11,
# gRPC, LibTorch) and instantiating their templates takes longer than compiling them. With LibTorch's
# precompiled header an empty source takes 5 processor seconds. `make soak` sets TRIREME_UNITY=OFF, one source at
# a time. Not kernel, whose files have flags of their own.
option(TRIREME_UNITY "Compile several sources of a module together" ON)
set(TRIREME_UNITY_BATCH 40 CACHE STRING "Sources compiled together; 0: all of a module")

# Modules that touch every element or byte, or simulate every event, are compiled with -O2. The others
# decide what these do; -O1 compiles them in two thirds of the time.
set(TRIREME_FAST_MODULES base format kernel plan net comm tensor input ps)

# One precompiled header for everything with LibTorch (`make soak` builds without it): 5 s per batch
# instead of 12 to 17. file(CONFIGURE) leaves a file with the same text as it is, so that nothing is built again.
if(TRIREME_PCH AND TRIREME_LIBTORCH)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/trireme_pch.cc CONTENT "")
  add_library(trireme_pch OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/trireme_pch.cc)
  target_compile_options(trireme_pch PRIVATE ${TRIREME_WARNINGS})
  target_precompile_headers(trireme_pch PRIVATE <algorithm> <chrono> <cstdint> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <vector> <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>
    <torch/csrc/autograd/function.h> <torch/nn/module.h> <torch/optim/optimizer.h>)
  target_include_directories(trireme_pch SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
  target_link_libraries(trireme_pch PUBLIC ${TORCH_LIBRARIES})
endif()

# A file with its own flags (-mavx2) cannot use a header that was compiled without them.
function(trireme_skip_pch_where_flags_differ target)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_source_file_property(flags ${source} COMPILE_OPTIONS)
    if(flags)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

function(trireme_options target libtorch)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
  target_compile_options(${target} PRIVATE ${TRIREME_WARNINGS})
  # Programs too, so that all share one precompiled header (-fPIE would be another one).
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  if(libtorch)
    target_include_directories(${target} SYSTEM PUBLIC "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
    target_link_libraries(${target} PUBLIC "$<BUILD_INTERFACE:${TORCH_LIBRARIES}>")
  endif()
  if(TRIREME_PCH AND libtorch)
    target_precompile_headers(${target} REUSE_FROM trireme_pch)
    # At the folder's end, when its files have their flags; EVAL because DEFER evaluates names late.
    cmake_language(EVAL CODE
      "cmake_language(DEFER CALL trireme_skip_pch_where_flags_differ [[${target}]])")
  endif()
endfunction()

# Compiles several sources of `target` together.
function(trireme_unity target)
  if(TRIREME_UNITY)
    # A field of an unnamed namespace's type is a problem only in headers; in a batch the compiler
    # takes every source for a header.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TRIREME_UNITY_BATCH})
  endif()
endfunction()

function(trireme_module name)
  cmake_parse_arguments(ARG "LIBTORCH" "" "DEPS;LIBRARIES;SOURCES" ${ARGN})
  if(ARG_LIBTORCH AND NOT TRIREME_LIBTORCH)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
  file(GLOB_RECURSE nested RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */CMakeLists.txt)
  list(REMOVE_ITEM nested CMakeLists.txt)
  foreach(list ${nested})
    cmake_path(GET list PARENT_PATH folder)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(APPEND sources ${ARG_SOURCES})
  add_library(trireme_${name} STATIC ${sources})
  set_target_properties(trireme_${name} PROPERTIES EXPORT_NAME module_${name})
  if(name IN_LIST TRIREME_NUMERIC_MODULES)
    target_compile_options(trireme_${name} PRIVATE -ffp-contract=off)
  endif()
  trireme_options(trireme_${name} ${ARG_LIBTORCH})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(trireme_${name} PUBLIC trireme_${dep})
  endforeach()
  target_link_libraries(trireme_${name} PUBLIC ${ARG_LIBRARIES})
  if(NOT name STREQUAL kernel)
    trireme_unity(trireme_${name})
  endif()
  if(NOT name IN_LIST TRIREME_FAST_MODULES)
    target_compile_options(trireme_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  set_property(GLOBAL APPEND PROPERTY TRIREME_MODULES ${name})
  if(ARG_LIBTORCH)
    set_property(GLOBAL APPEND PROPERTY TRIREME_TORCH_MODULES ${name})
  endif()
  if(TRIREME_TESTS AND tests)
    set(labels unit)
    if(NOT ARG_LIBTORCH)
      list(APPEND labels core)
    endif()
    trireme_tests(${tests} DEPS ${name} LABELS ${labels})
  endif()
endfunction()

function(trireme_tests)
  cmake_parse_arguments(ARG "" "PROGRAM;RANKS;TIMEOUT" "SOURCES;LABELS;DEPS;LIBRARIES" ${ARGN})
  set(target test.${ARG_PROGRAM})
  if(NOT ARG_PROGRAM)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    string(REGEX REPLACE "^trireme/" "" folder ${folder})
    string(REPLACE "/" "." target test.${folder})
  endif()
  add_executable(${target} ${ARG_UNPARSED_ARGUMENTS} ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  get_property(torch_modules GLOBAL PROPERTY TRIREME_TORCH_MODULES)
  set(libtorch FALSE)
  foreach(dep ${ARG_DEPS})
    if(dep IN_LIST torch_modules)
      set(libtorch TRUE)
    endif()
    target_link_libraries(${target} PRIVATE trireme_${dep})
  endforeach()
  trireme_options(${target} ${libtorch})
  trireme_unity(${target})
  # A test's own code runs for moments: -O1 compiles it in three quarters of the time of -O2, and -O0 in three
  # quarters of that. -O0 is for the tests of the floors without LibTorch, but not where they compute much (kernel)
  # nor for sanitizers, whose suppressions match -O1. LibTorch's precompiled header fits optimised code only.
  set(level -O1)
  if(core IN_LIST ARG_LABELS AND NOT kernel IN_LIST ARG_DEPS AND NOT libtorch AND NOT TRIREME_SANITIZE)
    set(level -O0)
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  target_link_libraries(${target} PRIVATE trireme_testing ${ARG_LIBRARIES} GTest::gmock GTest::gtest)
  foreach(file ${ARG_UNPARSED_ARGUMENTS})
    cmake_path(ABSOLUTE_PATH file NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE title)
    string(REGEX REPLACE "^trireme/|_test\\.cc$" "" title ${title})
    set_property(SOURCE ${path} PROPERTY TRIREME_TEST_PROGRAM ${target})
    trireme_test_entry(${title} ${file} RANKS "${ARG_RANKS}" TIMEOUT "${ARG_TIMEOUT}" LABELS ${ARG_LABELS})
  endforeach()
endfunction()

# The program selects the tests by the file that defines them (trireme/testing/main.cc). It fails if
# there is none, and if one of its tests is in a file without an entry: no test is lost.
function(trireme_test_entry title file)
  cmake_parse_arguments(ARG "" "RANKS;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  cmake_path(ABSOLUTE_PATH file NORMALIZE OUTPUT_VARIABLE path)
  cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE relative)
  get_property(program SOURCE ${path} PROPERTY TRIREME_TEST_PROGRAM)
  add_test(NAME ${title} COMMAND ${program} --file=${relative} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  if(ARG_TIMEOUT)
    set_tests_properties(${title} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  endif()
  if(NOT ARG_RANKS)
    set(ARG_RANKS 1)
  endif()
  set_tests_properties(${title} PROPERTIES PROCESSORS ${ARG_RANKS} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ARG_RANKS GREATER 1)   # needs two free places at once: first, else ctest starts it when nothing else is left
    set_tests_properties(${title} PROPERTIES COST 1000)
  endif()
endfunction()

# trireme_mpirun_test(title mpi ranks command...): a ctest entry under `mpirun.MPI -n RANKS`.
function(trireme_mpirun_test title mpi ranks)
  set(options "")
  if(mpi STREQUAL openmpi)
    set(options --oversubscribe)
  endif()
  add_test(NAME ${title} COMMAND ${TRIREME_MPIRUN_${mpi}} -n ${ranks} ${options} ${ARGN}
           WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  set_tests_properties(${title} PROPERTIES PROCESSORS 2 COST 1000 LABELS conformance ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_btl_vader_single_copy_mechanism=none")
  if(TRIREME_SANITIZE)   # Open MPI leaks, also in components that are unloaded: no name to suppress
    set_property(TEST ${title} APPEND PROPERTY ENVIRONMENT
                 "ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1")
  endif()
endfunction()
