#!/usr/bin/env bash
# What libtensor_c exports is exactly what the list says: what is taken away breaks programs, what is added counts TC_ABI up.
#   symbols.sh LIBRARY LIST
set -euo pipefail
diff <(nm --dynamic --defined-only "$1" | awk '$2 == "T" {print $3}' | sort) "$2" ||
  { echo "the exported functions (left) are not those of $2 (right)"; exit 1; }
echo "$(wc -l <"$2") functions, as listed"
