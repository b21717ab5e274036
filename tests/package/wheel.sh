#!/usr/bin/env bash
# The wheel: built, installed into an environment of its own, and used from Python and from C++.
#   wheel.sh BUILD_DIR SOURCE_DIR CXX
# The library in it is that of the build, installed; with TENSOR_WHEEL=whole it is built as for users, in ten minutes.
set -euo pipefail
build=$1 source=$2 cxx=$3
source "$source/tests/package/environment.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment "$work/venv" scikit-build-core nanobind ninja numpy
python=$work/venv/bin/python
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$headers/Python.h" ] || skip "needs $headers/Python.h (Debian: python3-dev)"

settings=(-C build-dir="$work/build" -C cmake.define.CMAKE_CXX_COMPILER="$cxx")
if [ "${TENSOR_WHEEL:-}" != whole ]; then
  cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
  settings+=(-C cmake.define.TENSOR_PREFIX="$work/prefix")
fi
PATH=$work/venv/bin:$PATH "$python" -m pip wheel -q --no-build-isolation --no-deps -w "$work" "${settings[@]}" "$source" \
  >"$work/wheel.log" 2>&1 || { tail -n 60 "$work/wheel.log"; exit 1; }
"$python" -m pip install -q --no-deps --no-index "$work"/tensor_vision-*.whl
rm -rf "$work/build" "$work/prefix"  # nothing in it may refer to them

cd "$source"
"$python" tests/package/wheel_test.py "$work/venv/bin/tensor-vision"
bash tests/package/first_program.sh "$("$work/venv/bin/tensor-vision" --cmake-prefix)" "$source" "$cxx"
if [ "${TENSOR_WHEEL:-}" = whole ]; then
  package=$("$work/venv/bin/tensor-vision" --cmake-prefix)
  needed=$(readelf -d "$package"/*.so "$package"/lib/*.so "$package"/bin/* | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | sort -u)
  foreign=$(grep -vE '^(libtensor\.so|libturbojpeg\.so\.0|libz\.so\.1|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6|ld-linux-x86-64\.so\.2)$' <<<"$needed" || true)
  [ -z "$foreign" ] || { echo "needs libraries that other machines may lack: $foreign"; exit 1; }
fi
echo "a wheel of $((($(stat -c %s "$work"/tensor_vision-*.whl) + 500000) / 1000000)) MB, used from Python and C++"
