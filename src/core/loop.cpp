#include "src/core/loop.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/core/parallel.h"

namespace tensor {
namespace {

constexpr std::size_t kMaxOperands = 4;

struct LoopAxis {
  std::int64_t extent;
  std::array<std::int64_t, kMaxOperands> strides;  // in bytes
};

// Axes of extent > 1, neighbours merged wherever every operand can be walked through both as one.
std::vector<LoopAxis> merged_axes(const View& out, std::span<const Strides> strides,
                                  std::span<const std::int64_t> sizes) {
  std::vector<LoopAxis> axes;
  for (int axis = 0; axis < out.rank(); ++axis) {
    if (out.shape[axis] == 1) continue;
    LoopAxis next{out.shape[axis], {}};
    bool merge = !axes.empty();
    for (std::size_t k = 0; k < strides.size(); ++k) {
      next.strides[k] = strides[k][axis] * sizes[k];
      if (merge) merge = axes.back().strides[k] == next.strides[k] * next.extent;
    }
    if (merge) {
      next.extent *= axes.back().extent;
      axes.back() = next;
    } else {
      axes.push_back(next);
    }
  }
  return axes;
}

using Pointers = std::array<std::byte*, kMaxOperands>;

// The last axis is the inner loop's.
void walk(Pointers data, std::span<const LoopAxis> axes, std::size_t count, InnerLoop inner) {
  const LoopAxis& run = axes.back();
  const std::span outer = axes.first(axes.size() - 1);
  std::vector<std::int64_t> index(outer.size(), 0);
  while (true) {
    inner(data.data(), run.strides.data(), run.extent);
    std::size_t axis = outer.size();
    for (; axis > 0; --axis) {
      const LoopAxis& one = outer[axis - 1];
      for (std::size_t k = 0; k < count; ++k) data[k] += one.strides[k];
      if (++index[axis - 1] < one.extent) break;
      for (std::size_t k = 0; k < count; ++k) data[k] -= one.strides[k] * one.extent;
      index[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

}  // namespace

// Threads share the outermost axis along which the output moves: what is folded into one element
// is folded by one thread, in order.
void run_strided(const View& out, std::span<const ConstView> in, InnerLoop inner) {
  if (num_elements(out.shape) == 0) return;
  const std::size_t count = in.size() + 1;
  if (count > kMaxOperands) internal_error("run_strided", "got ", in.size(), " inputs");
  Pointers data{out.data};
  std::array<Strides, kMaxOperands> strides{out.strides};
  std::array<std::int64_t, kMaxOperands> sizes{item_size(out.dtype)};
  for (std::size_t k = 1; k < count; ++k) {
    const ConstView& input = in[k - 1];
    data[k] = const_cast<std::byte*>(input.data);  // inner loops read all but data[0]
    strides[k] = broadcast_strides(input.shape, input.strides, out.shape);
    sizes[k] = item_size(input.dtype);
  }

  std::vector<LoopAxis> axes =
      merged_axes(out, std::span(strides.data(), count), std::span(sizes.data(), count));
  if (axes.empty()) axes.push_back({1, {}});
  const auto shared = std::find_if(axes.begin(), axes.end(),
                                   [](const LoopAxis& axis) { return axis.strides[0] != 0; });
  constexpr std::int64_t kElements = 1 << 15;  // of a piece: some tens of microseconds
  const std::int64_t all = num_elements(out.shape);
  if (shared == axes.end() || all <= kElements) return walk(data, axes, count, inner);
  const std::int64_t piece = std::max<std::int64_t>(kElements * shared->extent / all, 1);
  cpu::for_pieces(shared->extent, piece, [&](std::int64_t begin, std::int64_t end) {
    std::vector<LoopAxis> part = axes;
    part[static_cast<std::size_t>(shared - axes.begin())].extent = end - begin;
    Pointers first = data;
    for (std::size_t k = 0; k < count; ++k) first[k] += begin * shared->strides[k];
    walk(first, part, count, inner);
  });
}

}  // namespace tensor
