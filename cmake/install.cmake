# The targets that a user's CMake or pkg-config finds after `cmake --install`:
#   Trireme::comm      floors 0-4 without tensor: Job, collectives (trireme/job.h); no LibTorch
#   Trireme::trireme   everything under trireme/trireme.h; brings LibTorch
# The package does not record where LibTorch was: the user decides (libtorch.cmake), with this build's LibTorch
# as the last resort.
include(CMakePackageConfigHelpers)

set(TRIREME_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
get_property(modules GLOBAL PROPERTY TRIREME_MODULES)
get_property(torch_modules GLOBAL PROPERTY TRIREME_TORCH_MODULES)
foreach(list modules torch_modules)   # those for tests stay here
  list(FILTER ${list} EXCLUDE REGEX "^testing")
endforeach()
set(comm_modules ${modules})
list(REMOVE_ITEM comm_modules ${torch_modules})

# trireme_bundle(name set modules...): an interface target of all modules, exported with them.
function(trireme_bundle name set)
  add_library(trireme_bundle_${name} INTERFACE)
  add_library(Trireme::${name} ALIAS trireme_bundle_${name})
  list(TRANSFORM ARGN PREPEND trireme_ OUTPUT_VARIABLE targets)
  target_link_libraries(trireme_bundle_${name} INTERFACE ${targets})
  set_target_properties(trireme_bundle_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(trireme_bundle_${name} INTERFACE cxx_std_20)
  install(TARGETS trireme_bundle_${name} ${targets} EXPORT ${set}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${set} NAMESPACE Trireme:: DESTINATION ${TRIREME_CMAKE_FOLDER})
endfunction()

trireme_bundle(comm TriremeCommTargets ${comm_modules})
if(TRIREME_LIBTORCH)
  trireme_bundle(trireme TriremeTargets ${torch_modules})
  target_link_libraries(trireme_bundle_trireme INTERFACE trireme_bundle_comm)
endif()

# libtrireme_mpi_NAME.so is opened at run time, by name, through the run path of the program.
target_link_options(trireme_bundle_comm INTERFACE
  $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/trireme>)

# Only headers for users are installed: the two public ones, and what they include.
function(trireme_install_headers)
  set(found ${ARGN})
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open header)
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"trireme/")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" included ${line})
      if(NOT included IN_LIST found)
        list(APPEND found ${included})
        list(APPEND open ${included})
      endif()
    endforeach()
  endwhile()
  foreach(header ${found})
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
  endforeach()
endfunction()
set(public_headers trireme/job.h)
if(TRIREME_LIBTORCH)
  list(APPEND public_headers trireme/trireme.h)
endif()
trireme_install_headers(${public_headers})
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme/examples
        PATTERN tests.cmake EXCLUDE)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The programs (apps/) find what they open from any folder. LibTorch's folder is absolute; if it is inside the
# prefix, it is relative to the program, so that the prefix can be moved as a whole. The build's run path
# has one more entry, which leaves room for the longer text.
list(TRANSFORM modules PREPEND trireme_ OUTPUT_VARIABLE targets)
add_custom_target(product DEPENDS trireme ${targets})   # all that is installed, without tests
set_target_properties(trireme PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/trireme"
  BUILD_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/trireme;$ORIGIN/../lib")
if(TRIREME_LIBTORCH)
  cmake_path(GET TORCH_LIBRARY PARENT_PATH torch_folder)
  set(whole_folder ${CMAKE_INSTALL_LIBDIR}/trireme)
  set_target_properties(trireme_whole PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_folder}"
    BUILD_RPATH "$ORIGIN;$ORIGIN/..;${CMAKE_BINARY_DIR}/lib")
  install(CODE "
    cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX \"${torch_folder}\" NORMALIZE inside)
    if(inside)
      set(own \"\${CMAKE_INSTALL_PREFIX}/${whole_folder}\")
      file(RELATIVE_PATH folder \"\${own}\" \"${torch_folder}\")
      file(RPATH_CHANGE FILE \"\$ENV{DESTDIR}\${own}/trireme\" OLD_RPATH \"${torch_folder}\"
           NEW_RPATH \"\\$ORIGIN/\${folder}\")
    endif()" COMPONENT command)
endif()

configure_package_config_file(cmake/templates/TriremeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/TriremeConfig.cmake INSTALL_DESTINATION ${TRIREME_CMAKE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/TriremeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/cmake/TriremeConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/grpc.cmake ${PROJECT_SOURCE_DIR}/cmake/libtorch.cmake
        DESTINATION ${TRIREME_CMAKE_FOLDER})

# pkg-config: the highest floor first, so that each archive comes before those it calls.
function(trireme_pkg_config name)
  list(TRANSFORM ARGN PREPEND "-ltrireme_" OUTPUT_VARIABLE libraries)
  list(REVERSE libraries)
  list(JOIN libraries " " TRIREME_ARCHIVES)
  file(RELATIVE_PATH TRIREME_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(cmake/templates/${name}.pc.in ${PROJECT_BINARY_DIR}/cmake/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

trireme_pkg_config(trireme-comm ${comm_modules})
if(TRIREME_LIBTORCH)
  set(libraries ${TORCH_LIBRARIES})   # with those of CUDA, where there are any
  list(FILTER libraries INCLUDE REGEX "^/")
  list(TRANSFORM libraries REPLACE "^.*/lib([^/]+)\\.so$" "-l\\1")
  list(JOIN libraries " " TRIREME_TORCH_FLAGS)
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" TRIREME_BUILT_WITH "${Torch_VERSION}")   # trireme/trireme.h compares
  set(TRIREME_LIBTORCH_MAJOR ${CMAKE_MATCH_1})
  set(TRIREME_LIBTORCH_MINOR ${CMAKE_MATCH_2})
  trireme_pkg_config(trireme ${torch_modules})
endif()
