# The examples as a user builds them: installs Trireme to build/stage and builds the installed examples
# there. tools/check_console.py runs the console blocks of an example's README.md and compares their
# output; an example's tests.cmake, if there is one, registers more tests.
set(examples ${PROJECT_SOURCE_DIR}/examples)

# The folders, in two lists: a project that asks for COMPONENTS comm is built without LibTorch.
file(GLOB folders CONFIGURE_DEPENDS RELATIVE ${examples} ${examples}/*/CMakeLists.txt)
list(TRANSFORM folders REPLACE "/CMakeLists.txt" "")
foreach(folder ${folders})
  file(STRINGS ${examples}/${folder}/CMakeLists.txt comm REGEX "COMPONENTS comm")
  if(comm)
    list(APPEND without_libtorch ${folder})
  elseif(TRIREME_LIBTORCH)
    list(APPEND with_libtorch ${folder})
  endif()
endforeach()

if(TRIREME_SANITIZE)
  return()   # the installed package is for ordinary builds
endif()

set(stage ${PROJECT_BINARY_DIR}/stage)
set(installed ${stage}/${CMAKE_INSTALL_DATADIR}/trireme/examples)
string(REPLACE ";" "$<SEMICOLON>" launcher "${CMAKE_CXX_COMPILER_LAUNCHER}")
set(common --fresh -G Ninja -DCMAKE_PREFIX_PATH=${stage} --log-level=WARNING --no-warn-unused-cli
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1   # they spend no time in their own code
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}")
if(TRIREME_GOLD)
  list(APPEND common -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold)   # as in fast_builds.cmake
endif()
set(commands)
foreach(folder ${without_libtorch})
  list(APPEND commands
    COMMAND ${CMAKE_COMMAND} -S ${installed}/${folder}
            -B ${PROJECT_BINARY_DIR}/examples/${folder} ${common} -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
    COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}/examples/${folder} -- --quiet)
endforeach()
if(with_libtorch)
  list(APPEND commands
    COMMAND ${CMAKE_COMMAND} -S ${installed} -B ${PROJECT_BINARY_DIR}/examples ${common}
            -DTorch_DIR=${Torch_DIR}
    COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}/examples -- --quiet)
endif()
get_property(modules GLOBAL PROPERTY TRIREME_MODULES)
list(FILTER modules EXCLUDE REGEX "^testing")
list(TRANSFORM modules PREPEND trireme_)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trireme/*.h)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${examples}/*)   # also the files that they read
list(FILTER sources EXCLUDE REGEX "(README\\.md|tests\\.cmake)$")
file(GLOB installed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/* ${PROJECT_SOURCE_DIR}/cmake/*.cmake
     ${PROJECT_SOURCE_DIR}/cmake/templates/*)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/examples.stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${stage}
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${stage}
          > ${PROJECT_BINARY_DIR}/stage.log
  ${commands}
  COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/examples.stamp
  DEPENDS ${modules} ${headers} ${sources} ${installed} $<TARGET_NAME_IF_EXISTS:trireme>
  COMMENT "Installing to build/stage and building the examples out of it" VERBATIM)
add_custom_target(examples ALL DEPENDS ${PROJECT_BINARY_DIR}/examples.stamp)

foreach(folder ${without_libtorch} ${with_libtorch})
  if(EXISTS ${examples}/${folder}/README.md)
    add_test(NAME examples/${folder} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
             COMMAND tools/check_console.py examples/${folder}/README.md)
    set_tests_properties(examples/${folder} PROPERTIES LABELS examples RESOURCE_LOCK examples
      ENVIRONMENT "TRIREME_BUILD=${PROJECT_BINARY_DIR}")
  endif()
  include(${examples}/${folder}/tests.cmake OPTIONAL)
endforeach()
