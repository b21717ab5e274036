#!/usr/bin/env bash
# demo-server as a program: it says where it is, stops on a signal, and tells in one line what is wrong.
#   program.sh DEMO_SERVER
set -uo pipefail
program=$1
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
failed=0
complain() { echo "$1"; failed=1; }

# Starts it on a free port and waits for its line: sets server and url.
start() {
  : >"$folder/out"
  "$program" --port 0 --threads 1 "$@" >"$folder/out" 2>"$folder/err" &
  server=$!
  for _ in $(seq 300); do
    url=$(sed -n 's/^demo-server: \(http:[^ ]*\).*/\1/p' "$folder/out")
    [ -z "$url" ] || return 0
    sleep 0.1
  done
  cat "$folder/out" "$folder/err"; echo "no address in 30 s"; exit 1
}

for signal in INT TERM; do
  start
  port=${url##*:}; port=${port%/}
  kill -"$signal" "$server"
  wait "$server" || complain "SIG$signal: exit code $?, need 0"
  server=
  grep -q '^demo-server: stopping$' "$folder/out" || complain "SIG$signal: it does not say that it stops"
  [ ! -s "$folder/err" ] || complain "SIG$signal: $(cat "$folder/err")"
done

# refused TEXT ARGUMENT...: exit code 1 and one line with this text.
refused() {
  local text=$1; shift
  "$program" "$@" >"$folder/out" 2>"$folder/err"
  local code=$?
  [ $code = 1 ] && [ ! -s "$folder/out" ] && [ "$(wc -l <"$folder/err")" = 1 ] && grep -qF -- "$text" "$folder/err" ||
    complain "$*: exit code $code, $(cat "$folder/out" "$folder/err"); need \"$text\""
}
start
port=${url##*:}; port=${port%/}
refused "port $port cannot be had" --port "$port"
refused "--port" --port 70000
refused "--threads" --threads 0
refused "--oops" --oops
for model in vit detr setr; do
  refused "/nowhere" --port 0 --checkpoint-$model /nowhere
done
refused "/nowhere/digits" --port 0 --samples /nowhere
refused "--host" --port 0 --host no.such.host.invalid
refused "no address of this machine" --port 0 --host 192.0.2.1
"$program" --help | grep -q -- '--checkpoint-setr' || complain "--help does not name the options"
[ $failed = 0 ] && echo "demo-server starts, stops and complains as it should"
exit $failed
