// OpenCV: cv::Mat in and out without a copy. Header only: where OpenCV's headers are, there is
// something in it; the library itself knows nothing of it.
#pragma once

#if __has_include(<opencv2/core/mat.hpp>)

#include <memory>
#include <opencv2/core/mat.hpp>
#include <utility>
#include <vector>

#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/index.h"

namespace tensor {

namespace detail {

inline constexpr std::pair<int, DType> kMatDepths[] = {{CV_8U, u8},   {CV_8S, i8},   {CV_16S, i16},
                                                       {CV_32S, i32}, {CV_16F, f16}, {CV_32F, f32},
                                                       {CV_64F, f64}};

}  // namespace detail

/// The elements of a matrix where they lie: (rows, columns), with more than one channel
/// (rows, columns, channels), in OpenCV's order (BGR). It keeps the matrix's memory. UserError on
/// an empty one and on 16-bit unsigned elements, which this library does not have.
inline Tensor from_mat(const cv::Mat& mat) {
  if (mat.empty()) fail("from_mat", "got an empty cv::Mat: was the picture read?");
  for (const auto& [depth, dtype] : detail::kMatDepths) {
    if (depth != mat.depth()) continue;
    Shape shape;
    Strides strides;
    for (int axis = 0; axis < mat.dims; ++axis) {
      shape.push_back(mat.size[axis]);
      strides.push_back(static_cast<std::int64_t>(mat.step[axis] / mat.elemSize1()));
    }
    if (mat.channels() > 1) {
      shape.push_back(mat.channels());
      strides.push_back(1);
    }
    auto owner = std::make_shared<const cv::Mat>(mat);
    return from_memory(static_cast<void*>(mat.data), shape, dtype, std::move(owner), strides);
  }
  fail("from_mat", "got a cv::Mat of depth CV_16U, need 8 bits, signed integers or floating ",
       "numbers: convertTo() one of these");
}

/// A picture as models take it, u8 (rows, columns, 3) in RGB: a view of a BGR matrix, without a
/// copy. UserError on another matrix.
inline Tensor image_from_mat(const cv::Mat& mat) {
  const Tensor bgr = from_mat(mat);
  if (bgr.dtype() != u8 || bgr.rank() != 3 || bgr.shape(2) != 3)
    fail("image_from_mat", "got ", bgr.type(), ", need u8(rows, columns, 3): cvtColor() it to BGR");
  return bgr(ellipsis, slice(none, none, -1));
}

/// A matrix over the elements of a tensor (rows, columns) or (rows, columns, channels), which must
/// stay as long as it is used: no copy, and writes reach the tensor. UserError where elements are
/// apart (an RGB view, say: copy() it first), and on types that OpenCV does not have.
inline cv::Mat to_mat(Tensor& x) {
  const bool has_channels = x.rank() == 3;
  if (x.rank() != 2 && !has_channels)
    fail("to_mat", "got ", x.type(), ", need (rows, columns) or (rows, columns, channels)");
  const std::int64_t channels = has_channels ? x.shape(2) : 1;
  if (channels < 1 || channels > CV_CN_MAX)
    fail("to_mat", "got ", channels, " channels, need 1 to ", CV_CN_MAX);
  if (!x.is_contiguous())
    fail("to_mat", "got elements that do not lie in a row: copy() the tensor first");
  const auto mat = [&](int depth, void* data) {
    return cv::Mat(static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)),
                   CV_MAKETYPE(depth, static_cast<int>(channels)), data);
  };
  switch (x.dtype()) {
    case u8:
      return mat(CV_8U, x.mutable_data<std::uint8_t>());
    case i8:
      return mat(CV_8S, x.mutable_data<std::int8_t>());
    case i16:
      return mat(CV_16S, x.mutable_data<std::int16_t>());
    case i32:
      return mat(CV_32S, x.mutable_data<std::int32_t>());
    case f16:
      return mat(CV_16F, x.mutable_data<Float16>());
    case f32:
      return mat(CV_32F, x.mutable_data<float>());
    case f64:
      return mat(CV_64F, x.mutable_data<double>());
    default:
      fail("to_mat", "got ", x.dtype(), ", which OpenCV does not have: astype() another");
  }
}

}  // namespace tensor

#endif
