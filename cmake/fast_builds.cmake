# Options that only make building faster.
#
# ccache, if installed: a second clean build, or a second build folder, compiles nothing again.
# Precompiled headers need the sloppiness below; a base folder lets build/ and build-core/ share
# their objects.
find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${TRIREME_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

# gold, if binutils has it (Debian's does): LibTorch's libraries have a hundred thousand symbols,
# and linking a program against them takes 0.1 s instead of 1.5.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold TRIREME_GOLD)
if(TRIREME_GOLD)
  add_link_options(-fuse-ld=gold)
endif()
