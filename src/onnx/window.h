// Window: where the kernels of convolutions and pools lie in an image of any number of axes.
#pragma once

#include "src/onnx/operators.h"

namespace tensor::onnx {

struct Window {
  // One number a spatial axis.
  Ints kernel, stride, dilation, begin, end, out;
  Ints beyond;  // how far the last position reaches over the end of the padded image (ceil_mode)

  std::size_t rank() const { return kernel.size(); }
  bool is_dilated() const;
  /// Padding that is the same on both sides and nothing beyond.
  bool is_even() const;
};

/// Of the attributes strides, dilations, pads, auto_pad and ceil_mode, over an image x [N, C, ...].
/// UserError where they do not fit.
Window window_of(const Call& call, const Shape& x, const Ints& kernel);

/// The attribute `name`, a list of `rank` numbers, or as many times `fallback`.
/// UserError on another count and on numbers that are not in [least, 2^31).
Ints spatial(const Call& call, std::string_view name, std::size_t rank, std::int64_t fallback,
             std::int64_t least);

/// x [N, C, ...] with these numbers of `value` before and after every spatial axis.
Tensor padded(const Tensor& x, const Ints& begin, const Ints& end, const Tensor& value = 0);

/// An image [N, C, L] as [N, C, 1, L].
inline Tensor as_image(const Tensor& x) { return x.expand_dims(2); }

/// The last two of a list; of an image of one axis, which is one row, `missing` and its only one.
inline Pair last_two(const Ints& list, std::int64_t missing) {
  return {list.size() == 1 ? missing : list[list.size() - 2], list.back()};
}

/// What Conv computes, of floating tensors; the attributes are the call's.
Tensor convolution(const Call& call, const Tensor& image, const Tensor& weight, const Tensor& bias);

std::string refuse_auto_pad(const Node& node);

}  // namespace tensor::onnx
