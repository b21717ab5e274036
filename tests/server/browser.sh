#!/usr/bin/env bash
# The page in a headless Chromium: it runs every model on a sample by itself, and its document must hold the answer, with
# no line on the console. Skips without a browser, unless TENSOR_BROWSER=need.
#   browser.sh DEMO_SERVER [SCREENSHOT_FOLDER]
set -uo pipefail
program=$1 pictures=${2:-}
browser=chromium
if ! command -v "$browser" >/dev/null; then
  echo "SKIPPED: no Chromium here (Debian: apt-get install chromium)"
  [ "${TENSOR_BROWSER:-}" != need ] || exit 1
  exit 77
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; rm -rf "$folder"' EXIT
: >"$folder/server"
"$program" --port 0 >"$folder/server" 2>&1 &
server=$!
for _ in $(seq 300); do
  url=$(sed -n 's/^demo-server: \(http:[^ ]*\).*/\1/p' "$folder/server")
  [ -z "$url" ] || break
  sleep 0.1
done
[ -n "$url" ] || { cat "$folder/server"; echo "no address in 30 s"; exit 1; }

options=(--headless --no-first-run --disable-gpu --disable-dev-shm-usage --hide-scrollbars --enable-logging=stderr
         --virtual-time-budget=20000 --user-data-dir="$folder/profile")
[ "$(id -u)" != 0 ] || options+=(--no-sandbox)  # which Chromium does not have for root
failed=0

# shows QUERY PATTERN...: the page at /QUERY, each pattern in its document, nothing on the console.
shows() {
  local query=$1 pattern; shift
  for _ in 1 2 3 4 5; do
    timeout 120 "$browser" "${options[@]}" --dump-dom "$url$query" >"$folder/page" 2>"$folder/log"
    # Virtual time waits for the network, but may run out while the browser decodes a picture.
    grep -q 'aria-busy="false"' "$folder/page" && break
  done
  tr '\n' ' ' <"$folder/page" >"$folder/line"
  for pattern in "$@"; do
    grep -qE -- "$pattern" "$folder/line" && continue
    echo "/$query: the document does not hold $pattern"
    sed -n '/<section/,/<\/section>/p' "$folder/page"
    failed=1
  done
  if grep ':CONSOLE' "$folder/log"; then
    echo "/$query: the console is not empty"
    failed=1
  fi
}

label='<span class="label">'
for mode in compiled eager; do
  # The first of the list is the likeliest digit.
  shows "?sample=digit-8&model=vit&mode=$mode" "data-done=\"vit $mode\"" \
    "<ol id=\"findings\" class=\"findings\"><li><span [^>]*></span>${label}8</span>"
  shows "?sample=scene-3&model=detr&mode=$mode" "data-done=\"detr $mode\"" "${label}8</span>" "${label}0</span>" \
    "${label}3</span>" "${label}7</span>" "${label}1</span>" '\(13[0-9], 1[56][0-9]\) to \(22[0-9], 31[0-9]\)'
  shows "?sample=scene-3&model=setr&mode=$mode" "data-done=\"setr $mode\"" "${label}background</span>" \
    "${label}7</span>" '<th scope="row">postprocess</th>' '<canvas [^>]*width="480" height="480"'
done
shows "" 'id="status" role="status">Choose a picture' '<img [^>]*alt="digit-0"'
shows "?sample=nothing" 'id="error" role="alert">There is no sample "nothing"'

if [ -n "$pictures" ]; then
  mkdir -p "$pictures"
  shot() {  # shot NAME WIDTH HEIGHT QUERY OPTION...
    local name=$1 width=$2 height=$3 query=$4; shift 4
    timeout 120 "$browser" "${options[@]}" "$@" --window-size="$width,$height" \
      --screenshot="$pictures/$name.png" "$url$query" 2>/dev/null
  }
  for theme in light dark; do
    dark=(); [ $theme = light ] || dark=(--blink-settings=preferredColorScheme=0)
    shot "narrow-$theme" 360 1900 "?sample=scene-3&model=detr&mode=compiled" "${dark[@]}"
    shot "wide-$theme" 1120 840 "?sample=scene-3&model=detr&mode=compiled" "${dark[@]}"
    shot "setr-$theme" 1000 1000 "?sample=scene-3&model=setr&mode=compiled" "${dark[@]}"
    shot "vit-$theme" 800 1000 "?sample=digit-8&model=vit&mode=eager" "${dark[@]}"
    shot "error-$theme" 600 900 "?sample=nothing" "${dark[@]}"
  done
fi
[ $failed = 0 ] && echo "the page works in $("$browser" --version 2>/dev/null)"
exit $failed
