#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the Conan package in a separate cache, then builds and runs its consumer. It uses the CMake and
# libraries of this system and downloads nothing.
# Use: conan.sh BUILD_DIRECTORY COMPILER CMAKE_VERSION XSIMD_VERSION [EIGEN_VERSION]
set -euo pipefail

if ! command -v conan >/dev/null; then
  echo "skipped: conan not found"
  exit 77
fi
repository=$(cd "$(dirname "$0")/.." && pwd)
work=$1/conan_test
export CXX=$2 CONAN_HOME=$work/home
rm -rf "$work"
mkdir -p "$work"
conan profile detect --name default >"$work/profile.log" 2>&1
cat >>"$CONAN_HOME/profiles/default" <<END
[platform_requires]
xsimd/$4
${5:+eigen/$5}
[platform_tool_requires]
cmake/$3
END
sed -i.before -e 's/^compiler.cppstd=.*/compiler.cppstd=20/' "$CONAN_HOME/profiles/default"
if ! conan create "$repository/packaging/conan" --no-remote --test-folder= \
  ${5:+-o "scanrec/*:with_eigen=True"} >"$work/create.log" 2>&1; then
  cat "$work/create.log"
  exit 1
fi
# Conan writes into the consumer's folder, so the test uses a copy.
cp -r "$repository/packaging/conan/test_package" "$work/test_package"
reference=$(conan list 'scanrec/*' --format=json | sed -n 's/.*"\(scanrec\/[0-9.]*\)".*/\1/p' | head -n 1)
conan test "$work/test_package" "$reference" --no-remote \
  ${5:+-o "scanrec/*:with_eigen=True"} >"$work/test.log" 2>&1 || {
  cat "$work/test.log"
  exit 1
}
said=$(grep -E '^(with Eigen|scanrec [0-9]+: )' "$work/test.log")
echo "$said"
[[ $said == *": right" && ( -z ${5:-} || $said == "with Eigen"* ) ]]
