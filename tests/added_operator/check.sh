#!/usr/bin/env bash
# Adds elementwise operators to a copy of the sources, four lines in three files each, and runs added_operator_test.cpp
# on them: eagerly and fused, on the CPU and on an emulated GPU.
#   check.sh BUILD_DIR SOURCE_DIR CXX
set -euo pipefail
build=$1 source=$2 cxx=$3
work=$build/added_operator # always the same folder, so that a compiler cache knows the files
copy=$work/tensor
rm -rf "$copy"
mkdir -p "$copy"
cp -r "$source"/{CMakeLists.txt,cmake,include,src,tests} "$copy"

# add NAME ROW: its declaration, enumerator, row and function, each a line before that of a neighbour.
add() {
  before include/tensor/ops.h 'TENSOR_API Tensor floor(' "TENSOR_API Tensor $1(const Tensor& x);"
  before src/ops/opcode.h '  floor,' "  $1,"
  before src/ops/pointwise.cpp '    rounding<[](auto x) { return std::floor(x); }>' "    $2(Op::$1, \"$1\"),"
  before src/ops/pointwise.cpp 'Tensor floor(' "Tensor $1(const Tensor& x) { return elementwise(Op::$1, {x}); }"
}
before() {
  awk -v at="$2" -v line="$3" 'index($0, at) == 1 { print line } { print }' "$copy/$1" >"$work/edited"
  cp "$work/edited" "$copy/$1"
}
add atan 'floating<[](auto x) { return std::atan(x); }>'
add tanhexp 'composed<[](const Tensor& x) { return x * tanh(exp(x)); }>'

added=$(diff -r "$source/include" "$copy/include"; diff -r "$source/src" "$copy/src") || true
lines=$(grep -c '^>' <<<"$added") files=$(grep -c '^diff' <<<"$added")
[ "$lines $files" = "8 3" ] || { echo "got $lines lines in $files files, need 4 lines an operator in 3 files:"; echo "$added"; exit 1; }
if grep -q '^<' <<<"$added"; then echo "a line was changed:"; echo "$added"; exit 1; fi

launcher=$(command -v ccache || true)
cmake -S "$copy/tests/added_operator" -B "$work/build" -DCMAKE_CXX_COMPILER="$cxx" -DTENSOR_UNITY=ON \
  ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER="$launcher"} -DTENSOR_EMULATOR_CACHE="$build/emulated_kernels" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" --parallel "$(nproc)" >"$work/build.log" || { tail -50 "$work/build.log"; exit 1; }
"$work/build/added_operator_test"
