#include "src/core/loop.h"

#include <vector>

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

}  // namespace

void run_strided(const View& out, std::span<const ConstView> in, InnerLoop inner) {
  if (num_elements(out.shape) == 0) return;
  const std::size_t count = in.size() + 1;
  if (count > kMaxOperands) internal_error("run_strided", "got ", in.size(), " inputs");
  std::array<std::byte*, kMaxOperands> data{out.data};
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
  const LoopAxis run = axes.back();
  axes.pop_back();
  std::vector<std::int64_t> index(axes.size(), 0);
  while (true) {
    inner(data.data(), run.strides.data(), run.extent);
    std::size_t axis = axes.size();
    for (; axis > 0; --axis) {
      const LoopAxis& outer = axes[axis - 1];
      for (std::size_t k = 0; k < count; ++k) data[k] += outer.strides[k];
      if (++index[axis - 1] < outer.extent) break;
      for (std::size_t k = 0; k < count; ++k) data[k] -= outer.strides[k] * outer.extent;
      index[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

}  // namespace tensor
