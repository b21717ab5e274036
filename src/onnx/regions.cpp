// Operators that read an image at places which other tensors say.
#include <algorithm>

#include "src/onnx/window.h"
#include "tensor/creation.h"
#include "tensor/neural.h"

namespace tensor::onnx {
namespace {

/// The numbers 0, 1, 2 ... where `like` lies.
Tensor steps(std::int64_t count, const Tensor& like) {
  return arange(static_cast<double>(count)).to(like.device()).to(like.dtype());
}

Results roi_align(const Call& c) {
  const Tensor& x = c[0];
  if (x.rank() != 4 || c[1].rank() != 2 || c[1].shape(1) != 4 || c[2].rank() != 1 ||
      c[2].shape(0) != c[1].shape(0))
    fail("roi_align", "got an input of the shape ", x.shape(), ", boxes of the shape ",
         c[1].shape(), " and their images of the shape ", c[2].shape(),
         ", need (N, C, H, W), (R, 4) and (R)");
  const bool is_half =
      c.opset() >= 16 && c.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  const Tensor boxes = concatenate({c[2].to(dtype).expand_dims(1), c[1].to(dtype)}, 1);
  return {roi_align(x, boxes, {c.integer("output_height", 1), c.integer("output_width", 1)},
                    {c.number("spatial_scale", 1), c.integer("sampling_ratio", 0), is_half})};
}

std::string refuse_roi_align(const Node& n) {
  const std::string why = refuse_unless(n, "mode", {"avg"});
  return why.empty() ? refuse_unless(n, "coordinate_transformation_mode",
                                     {"half_pixel", "output_half_pixel"})
                     : why;
}

// ---- DeformConv: a convolution whose taps lie where its offsets say.

Results deform_conv(const Call& c) {
  const Tensor &x = c[0], &weight = c[1], &offset = c[2];
  if (x.rank() != 4 || weight.rank() != 4 || offset.rank() != 4)
    fail("deform_conv", "got the shapes ", x.shape(), ", ", weight.shape(), " and ", offset.shape(),
         ", need images of two spatial axes");
  const Ints kernel{weight.shape(2), weight.shape(3)};
  const Window w = window_of(c, x.shape(), kernel);
  const std::int64_t parts = c.integer("offset_group", 1), taps = kernel[0] * kernel[1];
  const std::int64_t images = x.shape(0), height = w.out[0], width = w.out[1];
  if (parts < 1 || x.shape(1) % parts != 0)
    fail("deform_conv", "got offset_group=", parts, " for ", x.shape(1), " channels");
  const auto check = [&](const Tensor& given, std::string_view what, std::int64_t numbers) {
    const Shape need{images, parts * taps * numbers, height, width};
    if (given.shape() != need)
      fail("deform_conv", "got ", what, " of the shape ", given.shape(), ", need ", need);
  };
  check(offset, "offsets", 2);
  const Tensor moved = reshape(offset, {images * parts, taps, 2, height, width});
  // Along an axis of the image: from the window's place by the tap's to the offset's.
  const auto places = [&](int axis) {
    const auto i = static_cast<std::size_t>(axis);
    Shape across{1, 1, 1, 1}, tap{1, 1, 1, 1, 1};
    across[axis + 2] = w.out[i], tap[axis + 1] = kernel[i];
    const Tensor window =
        steps(w.out[i], offset).reshape(across) * static_cast<double>(w.stride[i]) -
        static_cast<double>(w.begin[i]);
    const Tensor taps_at = reshape(
        broadcast_to(steps(kernel[i], offset).reshape(tap), {1, kernel[0], kernel[1], 1, 1}),
        {1, taps, 1, 1});
    const Tensor at = squeeze(sliced(moved, 2, axis, 1), 2) + window +
                      taps_at * static_cast<double>(w.dilation[i]);
    return reshape(at, {images * parts, taps * height, width});
  };
  const Shape groups{images * parts, x.shape(1) / parts, x.shape(2), x.shape(3)};
  Tensor found = sample_pixels(reshape(x, groups), places(0), places(1));
  if (c.has(4)) {
    check(c[4], "a mask", 1);
    found = found * reshape(c[4], {images * parts, 1, taps * height, width});
  }
  const Tensor flat = reshape(weight, {weight.shape(0), weight.shape(1) * taps, 1, 1});
  return {conv2d(reshape(found, {images, x.shape(1) * taps, height, width}).to(x.dtype()), flat,
                 c.optional(3), {.groups = c.integer("group", 1)})};
}

// ---- AffineGrid: where the pixels of a result lie in an image that was turned and moved.

Results affine_grid(const Call& c) {
  const Tensor& theta = c[0];
  const Ints size = c.ints(1);
  const int axes = static_cast<int>(size.size()) - 2;
  if ((axes != 2 && axes != 3) || theta.shape() != Shape{size[0], axes, axes + 1} ||
      *std::ranges::min_element(size) < 1)
    fail("affine_grid", "got theta of the shape ", theta.shape(), " for the size ", AttrValue(size),
         ", need (N, 2, 3) for (N, C, H, W) or (N, 3, 4) for (N, C, D, H, W)");
  const bool is_aligned = c.integer("align_corners", 0) != 0;
  Shape whole(Ints(size.begin() + 2, size.end()));
  std::vector<Tensor> points;  // x first, which is the last axis
  for (int axis = axes - 1; axis >= 0; --axis) {
    const std::int64_t extent = whole[axis];
    const double count = static_cast<double>(extent);
    const Tensor i = steps(extent, theta);
    const Tensor at =
        is_aligned ? (extent == 1 ? i : i * (2 / (count - 1)) - 1) : (2 * i + 1) / count - 1;
    Shape along = Shape::filled(axes, 1);
    along[axis] = extent;
    points.push_back(broadcast_to(at.reshape(along), whole).reshape({num_elements(whole)}));
  }
  points.push_back(ones_like(points[0]));
  const Tensor grid = matmul(stack(points, 1), theta.swapaxes(1, 2));
  Ints shape{size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(axes);
  return {reshape(grid, Shape(shape))};
}

constexpr Operator kRegionRows[] = {
    {"RoiAlign", 10, 3, 3, 1,
     "coordinate_transformation_mode:s mode:s output_height:i output_width:i sampling_ratio:i "
     "spatial_scale:f",
     roi_align, refuse_roi_align},
    {"DeformConv", 19, 3, 5, 1,
     "dilations:I group:i kernel_shape:I offset_group:i pads:I strides:I", deform_conv},
    {"AffineGrid", 20, 2, 2, 1, "align_corners:i", affine_grid},
};

}  // namespace

std::span<const Operator> region_operators() { return kRegionRows; }

}  // namespace tensor::onnx
