#!/usr/bin/env bash
# Every symbol that the shared library exports belongs to namespace tensor, and what the models need of it is exported.
#   symbols.sh LIBRARY [MODELS]
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
if [ -n "${2:-}" ]; then
  needed=$(nm --undefined-only --demangle "$2" | sed -nE 's/^ +U (((vtable|typeinfo) for )?tensor::.*)/\1/p' | sort -u)
  if missing=$(comm -23 <(echo "$needed") <(sort -u <<<"$exported") | grep .); then
    echo "needed by the models, but not exported (TENSOR_API is missing):"
    head -20 <<<"$missing"
    exit 1
  fi
fi
echo "$count exported symbols, all of namespace tensor"
