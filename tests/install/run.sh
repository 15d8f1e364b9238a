#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs scanrec to a clean prefix and moves it. Then builds consumers with CMake and pkg-config, and one
# with FetchContent.
# Use: run.sh CMAKE BUILD_DIRECTORY COMPILER GENERATOR
set -euo pipefail

cmake=$1 build=$2 compiler=$3 generator=$4
source=$(cd "$(dirname "$0")" && pwd)
work=$build/install_test
prefix=$work/moved

rm -rf "$work"
mkdir -p "$work"
# The package must be relocatable, so it is moved before it is used.
"$cmake" --install "$build" --prefix "$work/installed" >"$work/install.log"
mv "$work/installed" "$prefix"

echo "find_package"
"$cmake" -S "$source" -B "$work/consumer" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$prefix" -DSCANREC_COMPILED_TYPES="float;complex_double" >"$work/configure.log"
grep "^scanrec_DIR:PATH=$prefix/" "$work/consumer/CMakeCache.txt"
"$cmake" --build "$work/consumer"
"$work/consumer/consumer"
"$work/consumer/compiled_consumer"
# The consumer's object must not contain the library's checks and kernels.
object=$(find "$work/consumer" -path '*compiled_consumer*' -name 'compiled.cpp.o')
if nm -C "$object" | grep -E ' [TtWV] .*(run_packs|check_array)'; then
  echo "the consumer of scanrec::compiled has compiled kernels itself"
  exit 1
fi

echo "FetchContent"
"$cmake" -S "$source/fetched" -B "$work/fetched" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DFETCHCONTENT_SOURCE_DIR_SCANREC="$source/../.." >"$work/fetched.log"
"$cmake" --build "$work/fetched"
"$work/fetched/consumer"

if ! command -v pkg-config >/dev/null; then
  echo "skipped the pkg-config part: pkg-config not found"
  exit 0
fi
echo "pkg-config"
export PKG_CONFIG_PATH=$prefix/share/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
flags=$(pkg-config --cflags --libs scanrec)
echo "$flags"
# shellcheck disable=SC2086
"$compiler" -std=c++20 "$source/main.cpp" $flags -o "$work/by_pkg_config"
"$work/by_pkg_config"
