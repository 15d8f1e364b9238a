# SPDX-License-Identifier: BSD-3-Clause
# Shared functions of the scripts: packages, progress lines, configuring and building. To be sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# The distribution's own python, regardless of PATH.
python=/usr/bin/python3
jobs=$(nproc 2>/dev/null || echo 2)

# say TEXT: a progress line with the seconds since the script started.
say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

# finds PATTERN: whether a line of the input matches. Reads all input: grep -q would close the pipe early.
# With pipefail, the writer's error would then make the pipeline fail.
finds() { grep -e "$1" >/dev/null; }

# need PACKAGES...: install missing Debian and Ubuntu packages if permitted; otherwise print the command.
need() {
  local package missing=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    need_elsewhere "$@"
    return
  fi
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | finds ' installed$' ||
      missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    return
  fi
  local sudo=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "Packages are missing. As root, run:" >&2
      echo "  apt-get update && apt-get install --yes ${missing[*]}" >&2
      exit 1
    fi
    sudo=(sudo -n)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Without apt: print the required packages, and continue only if their commands exist. CMake reports missing
# libraries.
need_elsewhere() {
  local package command absent=()
  echo "This system has no apt-get. Required packages (Debian names): $*"
  for package in "$@"; do
    case $package in
      g++) command=c++ ;;
      clang) command=clang++ ;;
      ninja-build) command=ninja ;;
      cmake | make | git | pkg-config | clang-format | clang-tidy) command=$package ;;
      *) continue ;;
    esac
    command -v "$command" >/dev/null || absent+=("$command")
  done
  if ((${#absent[@]})); then
    echo "not found in PATH: ${absent[*]}" >&2
    exit 1
  fi
  command -v "$python" >/dev/null || python=python3
}

# oldest PACKAGE: the oldest version of PACKAGE that the Python package scanrec supports.
oldest() { sed -n "s/.*\"$1>=\([0-9.]*\)\".*/\1/p" python/pyproject.toml; }

# pythons: the installed Pythons from 3.10 to 3.14, oldest first. Prints one line per minor version: the command
# in PATH or, if there is none, the interpreter of pyenv.
pythons() {
  local minor one
  for minor in 10 11 12 13 14; do
    for one in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
      if "$one" -c "" 2>/dev/null; then
        echo "$one"
        break
      fi
    done
  done
}

# unpack_arm64 FOLDER PACKAGES...: unpack Debian or Ubuntu packages for aarch64 into one folder. It uses separate
# package lists, installs nothing, and needs no root.
unpack_arm64() {
  local folder=$1 apt=$PWD/build/apt_arm64 options
  shift
  if ! command -v apt-get >/dev/null; then
    echo "Packages for aarch64 need apt-get, which was not found. Required packages: $*" >&2
    exit 1
  fi
  mkdir -p "$apt"/{lists/partial,archives/partial,sources.list.d} "$folder"
  : >"$apt/status"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=
    -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt")
  # Ubuntu keeps packages for aarch64 on another server.
  if grep -q '^ID=ubuntu' /etc/os-release; then
    sed -n 's/^VERSION_CODENAME=\(.*\)/deb http:\/\/ports.ubuntu.com\/ubuntu-ports \1 main universe/p' \
      /etc/os-release >"$apt/sources.list"
    options+=(-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts="$apt/sources.list.d")
  fi
  say "fetching $* for aarch64"
  apt-get "${options[@]}" update
  rm -f "$apt"/archives/*.deb
  (cd "$apt/archives" && apt-get "${options[@]}" download "$@")
  local package
  for package in "$apt"/archives/*.deb; do
    dpkg -x "$package" "$folder"
  done
}

# configure DIRECTORY CMAKE_ARGUMENTS...: configure the sources in the directory that the variable `source`
# names (default: the repository) into build/DIRECTORY. Prints the log only if this fails.
configure() {
  local build=build/$1
  shift
  mkdir -p "$build"
  if ! cmake -S "${source:-.}" -B "$build" -G Ninja "$@" >"$build/configure.log" 2>&1; then
    cat "$build/configure.log"
    return 1
  fi
}

# build DIRECTORY TARGETS...: build with ninja. On a terminal its progress overwrites one line, so that only
# warnings and errors stay visible.
build() {
  local directory=build/$1
  shift
  cmake --build "$directory" --parallel "$jobs" ${*:+--target "$@"}
}
