#!/usr/bin/env bash
# README's first program, built by an installed package alone.
#   first_program.sh PREFIX SOURCE_DIR CXX
set -euo pipefail
prefix=$1 source=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir consumer models
ln -s "$source/models/vit" models/vit
ln -s "$source/examples" examples
sed -n '/^```cpp run/,/^```$/p' "$source/README.md" | sed '1d;/^```$/,$d' >consumer/main.cpp
cat >consumer/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(tensor 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE tensor::tensor_models)
CMAKE
cmake -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" >configure.log || { cat configure.log; exit 1; }
cmake --build consumer/build >build.log || { cat build.log; exit 1; }
got=$(consumer/build/consumer)
[ "$got" = "This is the digit 8." ] || { echo "README's first program: got '$got'"; exit 1; }
