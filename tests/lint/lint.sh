#!/usr/bin/env bash
# House rules that a compiler does not check: who may include whom, the length of files and lines, nothing unfinished.
#   lint.sh SOURCE_DIR
set -uo pipefail
export LC_ALL=C.UTF-8  # columns, not bytes
cd "$1" || exit 1
failed=0
complain() { echo "$1"; [ -z "${2:-}" ] || echo "$2" | head -20; failed=1; }

# may_include ROOM PATTERN...: files of ROOM include, of our own headers, only those that match, and those beside them.
may_include() {
  local room=$1; shift
  local allowed; allowed=$(IFS='|'; echo "$*")
  local bad
  bad=$(grep -rnE '#include "' "$room" --include=*.h --include=*.cpp | grep -vE "#include \"(($allowed)|[a-z_]+\.h\")")
  [ -z "$bad" ] || complain "$room includes what it may not:" "$bad"
}
may_include include/tensor 'tensor/'
may_include src/core 'tensor/' 'src/core/'
may_include src/ops 'tensor/' 'src/core/' 'src/ops/'
may_include src/nn 'tensor/' 'src/core/' 'src/ops/'
may_include src/io 'tensor/' 'src/core/' 'src/io/'
may_include src/onnx 'tensor/' 'src/core/' 'src/io/' 'src/onnx/'
may_include src/trace 'tensor/' 'src/core/' 'src/ops/' 'src/trace/'
may_include src/kernels 'tensor/' 'src/core/' 'src/io/' 'src/ops/' 'src/trace/' 'src/kernels/'
may_include src/runtime 'tensor/' 'src/core/' 'src/io/' 'src/ops/' 'src/trace/' 'src/kernels/' 'src/runtime/'
may_include src/tune 'tensor/' 'src/core/' 'src/io/' 'src/ops/' 'src/trace/' 'src/kernels/' 'src/runtime/' 'src/tune/'
may_include models 'tensor/' 'models/'
may_include examples 'tensor/'
may_include python 'tensor/' 'models/'
may_include bench 'tensor/' 'models/' 'bench/' 'src/kernels/' 'src/trace/' 'src/tune/' 'src/compile.h' 'src/runtime/program.h'

# may_not_include ROOM PATTERN: nor these, though the pattern above would let them pass.
may_not_include() {
  local bad
  bad=$(grep -rnE "#include \"($2)\"" "$1" --include=*.h --include=*.cpp)
  [ -z "$bad" ] || complain "$1 includes what is built on it:" "$bad"
}
may_not_include src/core 'tensor/(ops|index|io|nn|function|executable|plan|compile|tune)\.h'
may_not_include src/ops 'tensor/(io|nn|function|executable|plan|compile|tune)\.h'
may_not_include src/onnx 'tensor/(nn|executable|plan|compile|tune)\.h'
may_not_include src/trace 'tensor/(nn|executable|plan|compile|tune)\.h'
may_not_include src/kernels 'tensor/(nn|executable|plan|compile|tune)\.h'
may_not_include src/runtime 'tensor/(nn|compile|tune)\.h'

arrows=$(find include src -name '*.h' -o -name '*.cpp' | grep -v '^src/kernels/cuda/templates/' |
         xargs awk -f tests/lint/arrows.awk) || complain "includes run up:" "$arrows"
echo "${arrows##*$'\n'}"

foreign=$(grep -rnE '#include <(Eigen|nlohmann|CLI|stb|turbojpeg|webp|dnnl|dlpack|httplib)' include)
[ -z "$foreign" ] || complain "public headers include other libraries:" "$foreign"
served=$(grep -rlF '#include <httplib.h>' --include=*.h --include=*.cpp src models examples bench tests | grep -vE '^(models|tests)/server/')
[ -z "$served" ] || complain "only the server may include httplib:" "$served"

# Streams, printf and <cctype> follow std::locale::global and setlocale; tensor/text.h has what does not.
classic='std::(basic_)?[io]?(string|f)stream\b|\b(v?f?s?n?printf|strto(f|d|ld)|atof|sto(f|d|ld))\(|std::(to(lower|upper)|is(alpha|alnum|digit|space|upper|lower|punct|print)|put_time|put_money)\b'
local=$(grep -rnE "$classic" include src models examples bench python --include=*.h --include=*.cpp --include=*.in |
        grep -vE 'Classic<std::[io]?(string|f)stream>')
[ -z "$local" ] || complain "depends on the program's locale (use tensor/text.h):" "$local"

sources=$(find include src models examples bench python tests -name '*.h' -o -name '*.cpp')
long=$(xargs wc -l <<<"$sources" | awk '$2 != "total" && $1 > 600 {print $2 ": " $1 " lines, at most 600"}')
[ -z "$long" ] || complain "too long:" "$long"
wide=$(xargs grep -nE '^.{101,}' <<<"$sources" | grep -vE 'https?://|R"')
[ -z "$wide" ] || complain "too wide (clang-format -i mends most):" "$wide"
unfinished=$(xargs grep -nwE 'TODO|FIXME|XXX' <<<"$sources")
[ -z "$unfinished" ] || complain "unfinished:" "$unfinished"

# CI draws a part of these. OpenCV's is built only where OpenCV is.
programs=$({ sed -nE 's/^foreach\(area (core .*)\)$/\1/p' tests/CMakeLists.txt | tr ' ' '\n' | sed 's/$/_tests/'
             grep -rhoE '(tensor_test|add_executable)\([a-z]+_tests' tests --include=CMakeLists.txt | sed 's/.*(//'; } |
           grep -v opencv_tests | sort -u)
undrawn=$(for program in $programs; do grep -qw "$program" scripts/test || echo "$program"; done)
[ -z "$undrawn" ] || complain "in no quarter of scripts/test:" "$undrawn"

# Not the templates: a space more or less would make them other kernels in the eyes of the logs that ship.
if command -v clang-format-14 >/dev/null; then
  unformatted=$(grep -v '^src/kernels/cuda/templates/' <<<"$sources" | xargs clang-format-14 --dry-run -Werror 2>&1 |
                grep -oE '^[^: ]+:[0-9]+' | sort -u)
  [ -z "$unformatted" ] || complain "not as clang-format -i has it:" "$unformatted"
else
  echo "SKIPPED: the format of the sources, for want of clang-format-14"
fi

[ $failed = 0 ] && echo "the house rules hold in $(wc -l <<<"$sources") files"
exit $failed
