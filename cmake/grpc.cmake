# trireme_find_grpc(): the target gRPC::grpc++; for this tree and, installed beside TriremeConfig.cmake, for its
# users. By gRPC's own package where there is one (Debian 12's has): each of the twenty questions that
# pkg_check_modules() asks about grpc++ takes pkg-config more than a second.
function(trireme_find_grpc)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)   # gRPC's package reports each of its own dependencies
  find_package(gRPC CONFIG QUIET)
  if(NOT TARGET gRPC::grpc++)
    pkg_check_modules(GRPC QUIET IMPORTED_TARGET grpc++)
    if(GRPC_FOUND)
      add_library(gRPC::grpc++ INTERFACE IMPORTED)
      target_link_libraries(gRPC::grpc++ INTERFACE PkgConfig::GRPC)
    endif()
  endif()
  # Their options from pkg-config, -pthread and a macro for Windows: a precompiled header would not fit with them.
  foreach(target re2::re2 PkgConfig::GRPC)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES INTERFACE_COMPILE_OPTIONS "")
    endif()
  endforeach()
endfunction()
