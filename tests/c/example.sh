#!/usr/bin/env bash
# The example in C: it compiles as C11 without a warning, links against the library alone, and answers.
#   example.sh CC LIBRARY SOURCE_DIR SANITIZE
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror ${4:+-fsanitize=$4} -I"$3/include" "$3/examples/c/classify.c" \
  "$2" -Wl,-rpath,"$(dirname "$2")" -o "$work/example"
got=$("$work/example" "$3/models/vit/pretrained/digits" "$3/examples/images/digits/digit-8.png")
[ "$got" = "8: 91.9 %" ] || { echo "got '$got', need '8: 91.9 %'"; exit 1; }
if "$work/example" /no/where "$3/README.md" 2>"$work/error"; then echo "no failure without a checkpoint"; exit 1; fi
grep -q '^TC_BAD_ARGUMENT: /no/where' "$work/error" || { cat "$work/error"; exit 1; }
echo "$got"
