# The rooms of src in the order of their floors, and every include between two of them: none runs up.
#   awk -f arrows.awk FILE...
# Prints those that do, then how many pairs of rooms there are of which one includes the other. Exits with 1 if there is
# an include that runs up, or a room that has no floor.

function room(path) { sub(/\/[^\/]*$/, "", path); return path }

BEGIN {
  count = split("include/tensor src/core src/io src/ops src/nn src/onnx src/trace src/trace/fuse src/trace/passes src/kernels/host/simd " \
                "src/kernels src/kernels/match src/kernels/host src/kernels/cpu src/kernels/cpu/blocks " \
                "src/kernels/cpu/folds src/kernels/cpu/copy src/kernels/cpu/attention src/kernels/cpu/product " \
                "src/kernels/cpu/depthwise src/kernels/cpu/eight_bits src/kernels/cpu/onednn " \
                "src/kernels/cuda/templates src/kernels/cuda src/kernels/cuda/generated src/kernels/cuda/gemm " \
                "src/kernels/cuda/attention src/kernels/cuda/conv src/kernels/cuda/driver src/runtime src/tune src", rooms, " ")
  for (i = 1; i <= count; ++i) floor_of[rooms[i]] = i
}

/^#include "(src|tensor)\// {
  split($0, parts, "\"")
  from = room(FILENAME)
  to = room(parts[2])
  if (to == "tensor") to = "include/tensor"
  if (from == to) next
  if (!(from in floor_of) || !(to in floor_of)) {
    print FILENAME ": there is no floor for " (from in floor_of ? to : from)
    wrong = 1
  } else if (floor_of[to] > floor_of[from]) {
    print FILENAME ": includes " parts[2] ", which is on a floor above"
    wrong = 1
  }
  if (!((from, to) in arrows)) total += arrows[from, to] = 1
}

END {
  print total " arrows between " count " rooms"
  exit wrong
}
