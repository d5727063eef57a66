# What a user's CMake or pkg-config finds after `cmake --install`:
#   Trireme::comm      floors 0-4 without tensor: Job, collectives (trireme/job.h); no LibTorch
#   Trireme::trireme   everything under trireme/trireme.h; brings LibTorch
# The package does not remember where LibTorch lay: the user's find_package(Torch) decides, with the
# one of this build as the last resort.
include(CMakePackageConfigHelpers)

set(TRIREME_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
get_property(modules GLOBAL PROPERTY TRIREME_MODULES)
get_property(torch_modules GLOBAL PROPERTY TRIREME_TORCH_MODULES)
list(REMOVE_ITEM modules testing)
set(comm_modules ${modules})
list(REMOVE_ITEM comm_modules ${torch_modules})

# trireme_bundle(name set modules…): an interface target of all of them, exported with them.
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

install(DIRECTORY trireme/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trireme FILES_MATCHING
        PATTERN "*.h" PATTERN testing EXCLUDE)

configure_package_config_file(cmake/templates/TriremeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/TriremeConfig.cmake INSTALL_DESTINATION ${TRIREME_CMAKE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/TriremeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/cmake/TriremeConfigVersion.cmake
        DESTINATION ${TRIREME_CMAKE_FOLDER})

# pkg-config: the highest floor first, so that each archive stands before those it calls.
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
  list(JOIN TORCH_INCLUDE_DIRS " -isystem " TRIREME_TORCH_INCLUDES)
  trireme_pkg_config(trireme ${torch_modules})
endif()
