// The neural operators: names, arguments and meaning of torch.nn.functional. tensor/ops.h, which
// has all others, brings this header, too, and what it says of operators holds for these.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/handle.h"

namespace tensor {

// ---- Neural. Floating types only (UserError otherwise: use astype(f32)), but for linear,
// max_pool2d and the interpolation `nearest`. The result has the common type of the tensors.
/// Of x's shape. A line of -inf alone, or with NaN or +inf, becomes NaN as in PyTorch.
TENSOR_API Tensor softmax(const Tensor& x, int axis = -1);
TENSOR_API Tensor log_softmax(const Tensor& x, int axis = -1);
/// Over the last axis of [..., features] with the biased variance; weight and bias [features] or
/// undefined.
TENSOR_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                             double eps = 1e-5);
/// Inference form over axis 1 of [N, C, ...]: (x - mean) / sqrt(variance + eps) * weight + bias.
/// All four [C]; weight and bias may be undefined.
TENSOR_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// [N, C, ...] in `num_groups` groups of channels; weight and bias [C] or undefined. UserError
/// unless num_groups divides C.
TENSOR_API Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last axis; weight [features] or undefined. Without
/// eps, it is the distance from 1 to the next number of x's type.
TENSOR_API Tensor rms_norm(const Tensor& x, const Tensor& weight = {},
                           const std::optional<double>& eps = {});
/// Every channel of [N, C, ...] by itself: group_norm with as many groups.
TENSOR_API Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5);
/// x, or weight * x below 0; the weight is one number, or one a channel (axis 1).
TENSOR_API Tensor prelu(const Tensor& x, const Tensor& weight);
/// 1 at the class, 0 at the others, i64: [...] gives [..., classes]. Of a class out of range, all
/// 0.
TENSOR_API Tensor one_hot(const Tensor& x, std::int64_t num_classes);
/// x · weightᵀ + bias: x [..., in] gives [..., out]; weight [out, in], bias [out] or undefined.
TENSOR_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// softmax(q · kᵀ / sqrt(d) + mask) · v: q [..., queries, d], k [..., keys, d] and v [..., keys, n]
/// give [..., queries, n]. The mask broadcasts to [..., queries, keys]: a boolean one keeps where
/// true (a query that keeps none gets NaN), a floating one is added; UserError on other types.
TENSOR_API Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& mask = {});

/// Height and width; one number means both.
struct Pair {
  std::int64_t h = 0, w = 0;
  Pair(std::int64_t both) : h(both), w(both) {}
  Pair(std::int64_t height, std::int64_t width) : h(height), w(width) {}
};
/// `groups` must divide the input and the output channels (UserError).
struct Conv2dOptions {
  Pair stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation of x [N, C, H, W] with weight [O, C / groups, kh, kw], zero padding; bias [O]
/// or undefined. Gives [N, O, H', W'], rounded down, where
/// H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1. UserError where the kernel is larger
/// than the padded image.
TENSOR_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         const Conv2dOptions& options = {});
struct Conv1dOptions {
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
/// The same of x [N, C, L] with weight [O, C / groups, k]: gives [N, O, L'].
TENSOR_API Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         const Conv1dOptions& options = {});
/// output_padding must be less than the stride or the dilation (UserError).
struct ConvTranspose2dOptions {
  Pair stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// The gradient of conv2d: x [N, C, H, W], weight [C, O / groups, kh, kw]; bias [O] or undefined.
/// Gives [N, O, H', W'] where
/// H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1.
TENSOR_API Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                   const ConvTranspose2dOptions& options = {});
/// Pools of x [N, C, H, W] give [N, C, H', W'] with H' = (H + 2 padding - kernel) / stride + 1,
/// rounded down, or up with `ceil_mode`, as long as no window begins behind the image; stride 0
/// means the kernel's size. UserError where the padding is more than half the kernel, or the
/// kernel larger than the padded image. Here padding counts as minus infinity.
TENSOR_API Tensor max_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0,
                             bool ceil_mode = false);
/// Padding counts as zeros that are averaged in, unless `count_include_pad` is false.
TENSOR_API Tensor avg_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0,
                             bool ceil_mode = false, bool count_include_pad = true);
/// [N, C, H, W] to [N, C, size.h, size.w]: window i of n begins at floor(i H / n) and ends at
/// ceil((i + 1) H / n). UserError on empty images and sizes.
TENSOR_API Tensor adaptive_avg_pool2d(const Tensor& x, Pair size);
TENSOR_API Tensor adaptive_max_pool2d(const Tensor& x, Pair size);

enum class Interpolation { nearest, bilinear, bicubic };
struct InterpolateOptions {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  ///< bilinear and bicubic (UserError otherwise)
  bool antialias = false;      ///< bilinear and bicubic without align_corners; Pillow's kernels
};
/// Resizes x [N, C, H, W] to [N, C, size.h, size.w] as torch.nn.functional.interpolate(size=...)
/// does. UserError on empty images and sizes.
TENSOR_API Tensor interpolate(const Tensor& x, Pair size, const InterpolateOptions& options = {});

/// Of grid_sample: what lies outside of the image; zeros, its border, or its mirror image.
enum class SamplePadding { zeros, border, reflection };
struct GridSampleOptions {
  Interpolation mode = Interpolation::bilinear;  ///< or nearest (UserError on bicubic)
  SamplePadding padding = SamplePadding::zeros;
  bool align_corners =
      false;  ///< -1 and 1 are the centres of the outermost pixels, not their edges
};
/// The pixels of x [N, C, H, W] at grid [N, H', W', 2] of (x, y) from -1 to 1: gives [N, C, H',
/// W']. NaN in the grid counts as -1.
TENSOR_API Tensor grid_sample(const Tensor& x, const Tensor& grid,
                              const GridSampleOptions& options = {});
/// Images x [N, C, H, W] between their pixels, at rows and columns [N, H', W'] counted from 0 and
/// of one floating type: [N, C, H', W'], each of the four pixels around its place, of those that
/// lie outside 0. grid_sample, and what else names places in pixels, are made of it.
TENSOR_API Tensor sample_pixels(const Tensor& x, const Tensor& row, const Tensor& column);
struct RoiAlignOptions {
  double spatial_scale = 1;  ///< from the boxes' numbers to pixels
  std::int64_t sampling_ratio =
      -1;                ///< samples of a cell along an axis; none: one a pixel at least
  bool aligned = false;  ///< whole numbers are the middles of pixels, and boxes have any extent
};
/// Boxes of images x [N, C, H, W], each divided into cells: [K, C, size.h, size.w], of each cell
/// the mean of samples between its pixels, as torchvision.ops.roi_align has it. boxes [K, 5] of
/// (image, x1, y1, x2, y2). Samples that lie more than a pixel outside count as 0; boxes that are
/// not finite have none. UserError on empty images and sizes.
TENSOR_API Tensor roi_align(const Tensor& x, const Tensor& boxes, Pair size,
                            const RoiAlignOptions& options = {});
/// [..., C r^2, H, W] to [..., C, H r, W r], and back. UserError where it does not divide.
TENSOR_API Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);
TENSOR_API Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);
/// The windows of x [N, C, H, W], each a column: [N, C kh kw, windows].
TENSOR_API Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation = 1, Pair padding = 0,
                         Pair stride = 1);
/// The positions of the boxes that stay, i64, by descending score: those that overlap no box of a
/// higher score by more than the threshold (intersection over union). boxes [n, 4] of (x1, y1, x2,
/// y2), scores [n]. UserError where they are traced: how many stay depends on them.
TENSOR_API Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold);

}  // namespace tensor
