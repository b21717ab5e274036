#!/usr/bin/env bash
# A test of the backend in Triton Inference Server, which scripts/triton gets from PyPI, once a build folder.
#   in_triton.sh BACKEND BUILD_DIR SOURCE_DIR SANITIZE TEST.py [ARGUMENT...]
# Skipped where the server cannot be had, unless TENSOR_TRITON=need.
set -euo pipefail
build=$2 source=$3 sanitize=$4 test=$5
export TENSOR_TRITON_DIR=${TENSOR_TRITON_DIR:-$build/triton} TENSOR_BACKENDS
TENSOR_BACKENDS=$(dirname "$(dirname "$1")")
skip() {
  echo "$1"
  [ "${TENSOR_TRITON:-}" = need ] && exit 1
  exit 77
}
[ -z "$sanitize" ] || skip "not with sanitizers: the server is built without"
why=$(bash "$source/scripts/triton" --fetch 2>&1) || skip "the server cannot be had: $why"
exec "$TENSOR_TRITON_DIR/python/bin/python" "$source/tests/triton/$test" "$source/scripts/triton" "$build/models" "$source" \
  "${@:6}"
