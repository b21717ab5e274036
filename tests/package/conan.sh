#!/usr/bin/env bash
# The Conan package: what `conan create` would make of a build of its own, made of this one, and a consumer of it.
#   conan.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
source "$source/tests/package/environment.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment "$work/venv" conan

export CONAN_HOME=$work/home PATH=$work/venv/bin:$PATH
conan profile detect >"$work/profile.log" 2>&1 || { cat "$work/profile.log"; exit 1; }
mkdir -p "$work/out" "$work/tests/package"
ln -s "$build" "$work/out/build"
cp -r "$source/tests/package/consumer" "$work/tests/package" # where its build folder is in this test's own
conan export-pkg "$source" -of "$work/out" --test-folder "$work/tests/package/consumer" --no-remote >"$work/conan.log" 2>&1 ||
  { tail -n 60 "$work/conan.log"; exit 1; }
grep -qF ' [14. 50.]]' "$work/conan.log" || { tail -n 60 "$work/conan.log"; echo "the consumer did not run"; exit 1; }
echo "a package for Conan, and a program that is built with it"
