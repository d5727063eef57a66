#!/bin/sh
# Builds the fuzzers with clang and runs each for SECONDS (default 60):  tests/fuzz/run.sh [SECONDS]
set -eu
cd "$(dirname "$0")/../.."
cmake -S tests/fuzz -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ >/dev/null
cmake --build build-fuzz
for fuzzer in build-fuzz/fuzz.*; do
  corpus=build-fuzz/corpus/${fuzzer##*.}
  mkdir -p "$corpus"
  case $fuzzer in   # a whole file to start from
    *.safetensors) cp tests/compat/golden/v1/*/*.safetensors "$corpus" ;;
    *.manifest) cp tests/compat/golden/v1/*/manifest.json "$corpus" ;;
  esac
  echo "$fuzzer"
  "$fuzzer" -max_total_time="${1:-60}" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix=build-fuzz/ "$corpus"
done
