# Sourced by the other scripts: goes to the project's folder and sees to the packages that building needs.
# On Debian and its relatives they are installed with apt-get; elsewhere what is missing is printed.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(g++ cmake ninja-build pkg-config libeigen3-dev nlohmann-json3-dev libcli11-dev libstb-dev libturbojpeg0-dev
          libwebp-dev zlib1g-dev libdlpack-dev libgtest-dev libbenchmark-dev libxgboost-dev
          libcpp-httplib-dev libonnx-testdata valgrind ccache locales)
packages+=(${more_packages[@]+"${more_packages[@]}"})  # of the script that sources this
[ "${TENSOR_BROWSER:-}" != need ] || packages+=(chromium)  # 122 MB, for the test of demo-server's page

missing=()
if command -v dpkg-query >/dev/null; then
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
else
  for tool in g++ cmake ninja pkg-config; do command -v "$tool" >/dev/null || missing+=("$tool"); done
fi
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "Missing: ${missing[*]}" >&2
    echo "Install these, and what the Debian packages ${packages[*]} hold, with your package manager." >&2
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  echo "Installing ${missing[*]}"
  [[ ${missing[*]} != *:arm64* ]] || "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" apt-get update -q >/dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}" >/dev/null
fi

# build PRESET [TARGET...]: configures and builds (all targets) quietly; the output is shown when it fails.
build() {
  local preset=$1 log; shift
  log=$(mktemp)
  echo "Building ($preset)"
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" ${@:+--target "$@"}; } >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "The $preset build failed; the whole output is in $log" >&2
    exit 1
  fi
  rm -f "$log"
}
