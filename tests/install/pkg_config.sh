#!/usr/bin/env bash
# Builds and runs the two programs in this folder with pkg-config's flags for an installed tree.
# usage: pkg_config.sh STAGE COMPILER WITH_LIBTORCH
set -euo pipefail
cd "$(dirname "$0")"
export PKG_CONFIG_PATH=$1/lib/pkgconfig:$1/lib/x86_64-linux-gnu/pkgconfig:$1/lib64/pkgconfig
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
check() {   # check PROGRAM COMPILER MODULE WORD. --as-needed: many systems' linkers do it by themselves
  # shellcheck disable=SC2046
  "$2" -Wl,--as-needed "$1.cc" -o "$out/$1" $(pkg-config --cflags --libs "$3")
  "$out/$1" | tee "$out/printed"
  grep -q "$4" "$out/printed"
}
check comm "$2" trireme-comm 'found by pkg-config'
if ldd "$out/comm" | grep -q torch; then echo 'trireme-comm brings LibTorch' >&2; exit 1; fi
if [[ $3 == ON ]]; then
  check torch "$2" trireme '3$'
  mkdir -p "$out/other/include/torch"
  printf '#define TORCH_VERSION_%s\n' 'MAJOR 2' 'MINOR 999' > "$out/other/include/torch/version.h"
  # shellcheck disable=SC2046
  "$2" $(pkg-config --cflags --define-variable=torch="$out/other" trireme) -fsyntax-only -include trireme/trireme.h \
    -x c++ /dev/null 2> "$out/error" || true   # it has no other headers
  grep 'Trireme was built with another minor version of LibTorch' "$out/error"
  # It loads the devices' libraries.
  # Not grep -q: it ends before readelf does, which fails then.
  readelf -d "$out/torch" | grep 'NEEDED.*libtorch\.so' > "$out/needed" || { echo 'libtorch.so is not loaded' >&2; exit 1; }
fi
