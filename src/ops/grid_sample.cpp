// grid_sample, composed: coordinates, the pixels at them, their sum.
#include "src/ops/gather.h"
#include "src/ops/pair.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Mirrored at `low` and `high` until it lies between them.
Tensor reflected(const Tensor& at, double low, double high) {
  if (high <= low) return zeros_like(at);
  const double span = high - low;
  const Tensor off = abs(at - low), rest = fmod(off, span);
  const Tensor is_even = fmod(floor(off / span), 2) == 0;
  return where(is_even, rest + low, span - rest + low);
}

// From -1 ... 1 to places along an axis of the image.
Tensor places_along(const Tensor& grid, std::int64_t coordinate, std::int64_t extent,
                    const GridSampleOptions& options) {
  const auto size = static_cast<double>(extent);
  const Tensor given = squeeze(slice_axis(grid, 3, coordinate, 1), 3);
  const Tensor from = where(isnan(given), full({}, -1, grid.dtype()).to(grid.device()), given);
  Tensor at = options.align_corners ? (from + 1) / 2 * (size - 1) : ((from + 1) * size - 1) / 2;
  if (options.padding == SamplePadding::reflection)
    at = options.align_corners ? reflected(at, 0, size - 1) : reflected(at, -0.5, size - 0.5);
  return options.padding == SamplePadding::zeros ? at : clip(at, 0, size - 1);
}

// The pixels at whole places of an image whose pixels are rows [N H W, C], 0 outside of it:
// [N, H' W', C].
Tensor pixels_at(const Tensor& rows, const Shape& image, const Tensor& row, const Tensor& column) {
  const std::int64_t height = image[2], width = image[3], count = row.shape(1) * row.shape(2);
  const auto place = [](const Tensor& at, std::int64_t extent) {
    return cast(clip(at, 0, static_cast<double>(extent - 1)), i64);
  };
  const auto is_inside = [](const Tensor& at, std::int64_t extent) {
    return (at >= 0) & (at <= static_cast<double>(extent - 1));
  };
  const Tensor begins = (arange(image[0]) * (height * width)).to(rows.device());
  const Tensor index = place(row, height) * width + place(column, width);
  const Tensor found =
      take_clipped(rows, reshape(index, {image[0], count}) + reshape(begins, {image[0], 1}), 0);
  const Tensor inside = is_inside(row, height) & is_inside(column, width);
  return where(reshape(inside, {image[0], count, 1}), found,
               zeros({}, rows.dtype()).to(rows.device()));
}

// The pixels of the images as rows: [N H W, C].
Tensor rows_of(const Tensor& x, DType dtype) {
  return reshape(transpose(cast(x, dtype), {0, 2, 3, 1}),
                 {x.shape(0) * x.shape(2) * x.shape(3), x.shape(1)});
}

// Pixels [N, H' W', C] as images [N, C, H', W'].
Tensor as_image(const Tensor& found, const Tensor& x, const Tensor& row) {
  const Shape result{x.shape(0), row.shape(1), row.shape(2), x.shape(1)};
  return transpose(reshape(found, result), {0, 3, 1, 2});
}

}  // namespace

Tensor sample_pixels(const Tensor& x, const Tensor& row, const Tensor& column) {
  check_images(x.shape(), "sample_pixels");
  if (x.shape(2) == 0 || x.shape(3) == 0)
    fail("sample_pixels", "got an input of the shape ", x.shape(), ", need at least 1 x 1");
  if (row.rank() != 3 || row.shape(0) != x.shape(0) || column.shape() != row.shape())
    fail("sample_pixels", "got rows of the shape ", row.shape(), " and columns of the shape ",
         column.shape(), " for the shape ", x.shape(), ", need (", x.shape(0),
         ", height, width) of both");
  if (!is_floating(row.dtype()) || column.dtype() != row.dtype())
    fail("sample_pixels", "got rows of ", row.dtype(), " and columns of ", column.dtype(),
         ", need one floating type");
  const Tensor rows = rows_of(x, row.dtype());
  const Tensor top = floor(row), left = floor(column);
  const Tensor down = reshape(row - top, {x.shape(0), row.shape(1) * row.shape(2), 1}),
               right = reshape(column - left, down.shape());
  const Tensor sum = pixels_at(rows, x.shape(), top, left) * ((1 - down) * (1 - right)) +
                     pixels_at(rows, x.shape(), top, left + 1) * ((1 - down) * right) +
                     pixels_at(rows, x.shape(), top + 1, left) * (down * (1 - right)) +
                     pixels_at(rows, x.shape(), top + 1, left + 1) * (down * right);
  return as_image(sum, x, row);
}

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  check_images(x.shape(), "grid_sample");
  const Tensor both[] = {x, grid};
  const DType dtype = floating_result_type(both, "grid_sample");
  if (grid.rank() != 4 || grid.shape(3) != 2 || grid.shape(0) != x.shape(0))
    fail("grid_sample", "got a grid of the shape ", grid.shape(), " for the shape ", x.shape(),
         ", need (", x.shape(0), ", height, width, 2)");
  if (x.shape(2) == 0 || x.shape(3) == 0)
    fail("grid_sample", "got an input of the shape ", x.shape(), ", need at least 1 x 1");
  if (options.mode == Interpolation::bicubic)
    fail("grid_sample", "got the mode bicubic, need bilinear or nearest");
  const Tensor points = cast(grid, wide_type(dtype));
  const Tensor column = places_along(points, 0, x.shape(3), options),
               row = places_along(points, 1, x.shape(2), options);
  if (options.mode == Interpolation::bilinear) return cast(sample_pixels(x, row, column), dtype);
  return cast(
      as_image(pixels_at(rows_of(x, row.dtype()), x.shape(), round(row), round(column)), x, row),
      dtype);
}

}  // namespace tensor
