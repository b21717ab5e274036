# Sourced by tests that need packages from PyPI; the test is skipped, with the reason, where they cannot be had.
skip() { echo "SKIPPED: $1"; exit 77; }

# environment FOLDER PACKAGE...: a Python environment with these packages.
environment() {
  local folder=$1 log; shift
  log=$(mktemp)
  command -v python3 >/dev/null || skip "needs python3"
  python3 -m venv "$folder" >"$log" 2>&1 || skip "no environment can be made (Debian: python3-venv): $(tail -n 1 "$log")"
  "$folder/bin/python" -m pip --disable-pip-version-check --retries 1 --timeout 10 install -q "$@" >"$log" 2>&1 ||
    skip "from PyPI cannot be had $*: $(tail -n 1 "$log")"
  rm -f "$log"
}
