# ccache, where it is installed: a second clean build, or a second build folder beside the first,
# compiles nothing anew. Precompiled headers need the sloppiness below; a base folder lets build/ and
# build-core/ share what they compile.
find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${TRIREME_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
