#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks that an object file exports SYMBOL and nothing else, not even a weak symbol.
# Use: check_sealed.sh NM OBJECT SYMBOL
set -eu
shown=$("$1" --defined-only --extern-only "$2" | awk '{print $3}')
if [ "$shown" != "$3" ]; then
  echo "$2: expected to export $3 alone, but it exports:" >&2
  echo "$shown" >&2
  exit 1
fi
