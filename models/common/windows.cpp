// Cutting images into windows and joining them.
#include "models/common/windows.h"

#include "tensor/ops.h"

namespace models {

using tensor::Tensor;

Tensor padded(const Tensor& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t below = (rows - x.shape(1) % rows) % rows;
  const std::int64_t right = (columns - x.shape(2) % columns) % columns;
  if (below == 0 && right == 0) return x;
  return tensor::pad(x, {{0, 0}, {0, below}, {0, right}, {0, 0}});
}

Tensor in_windows(const Tensor& x, std::int64_t side) {
  const std::int64_t rows = x.shape(1) / side, columns = x.shape(2) / side;
  return x.reshape({x.shape(0), rows, side, columns, side, x.shape(3)})
      .transpose({0, 1, 3, 2, 4, 5})
      .reshape({x.shape(0) * rows * columns, side, side, x.shape(3)});
}

Tensor from_windows(const Tensor& windows, Size image) {
  const std::int64_t side = windows.shape(1), width = windows.shape(3);
  const std::int64_t rows = image.height / side, columns = image.width / side;
  const std::int64_t batch = windows.shape(0) / (rows * columns);
  return windows.reshape({batch, rows, columns, side, side, width})
      .transpose({0, 1, 3, 2, 4, 5})
      .reshape({batch, image.height, image.width, width});
}

}  // namespace models
