#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it from there, through CMake and through pkg-config.
#   check.sh BUILD_DIR SOURCE_DIR CXX SANITIZE
set -euo pipefail
build=$1 source=$2 cxx=$3 sanitize=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected=$'[[ 5. 14.]\n [14. 50.]]'

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"

flags=${sanitize:+-fsanitize=$sanitize}
cmake -S "$source/tests/package/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/cmake" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
got=$("$work/cmake/consumer")
[ "$got" = "$expected" ] || { echo "through CMake: got '$got', need '$expected'"; exit 1; }

# The .pc file says where things are from where it lies itself: a moved tree still works.
mv "$work/prefix" "$work/moved"
pkgconfig=$(find "$work/moved" -name tensor.pc -printf '%h')
arguments=$(PKG_CONFIG_PATH=$pkgconfig pkg-config --cflags --libs --static tensor)
# shellcheck disable=SC2086
"$cxx" -std=c++20 $flags "$source/tests/package/consumer/main.cpp" $arguments -o "$work/consumer"
got=$("$work/consumer")
[ "$got" = "$expected" ] || { echo "through pkg-config: got '$got', need '$expected'"; exit 1; }
echo "an installed tensor works through CMake and pkg-config"
