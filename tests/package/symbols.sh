#!/usr/bin/env bash
# Every symbol that the shared library exports belongs to namespace tensor.
#   symbols.sh LIBRARY
set -euo pipefail
# Weak symbols of the standard library are templates that any program instantiates for itself.
exported=$(nm --dynamic --defined-only --demangle "$1" | grep -vE '^[0-9a-f]+ [WVu] .*(std::|__gnu_cxx::)' | cut -d' ' -f3-)
count=$(grep -c . <<<"$exported")
[ "$count" -gt 100 ] || { echo "only $count exported symbols: TENSOR_API is not at work"; exit 1; }
if foreign=$(grep -vE 'tensor::' <<<"$exported"); then
  echo "exported, but not of namespace tensor:"
  head -20 <<<"$foreign"
  exit 1
fi
echo "$count exported symbols, all of namespace tensor"
