# trireme_find_grpc(): the target gRPC::grpc++; for this tree and, installed beside TriremeConfig.cmake, for its
# users. By gRPC's own package where there is one (Debian 12's has): each of the twenty questions that
# pkg_check_modules() asks about grpc++ takes pkg-config more than a second.
function(trireme_find_grpc)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)   # gRPC's package reports each of its own dependencies
  find_package(gRPC CONFIG QUIET)
  if(TARGET gRPC::grpc++)
    return()
  endif()
  pkg_check_modules(GRPC QUIET IMPORTED_TARGET grpc++)
  if(GRPC_FOUND)
    # -DNOMINMAX is for Windows. LibTorch 2.11's headers ask for it, so a precompiled header would not fit with it.
    get_target_property(options PkgConfig::GRPC INTERFACE_COMPILE_OPTIONS)
    if(options)
      list(REMOVE_ITEM options -DNOMINMAX)
      set_target_properties(PkgConfig::GRPC PROPERTIES INTERFACE_COMPILE_OPTIONS "${options}")
    endif()
    add_library(gRPC::grpc++ INTERFACE IMPORTED)
    target_link_libraries(gRPC::grpc++ INTERFACE PkgConfig::GRPC)
  endif()
endfunction()
