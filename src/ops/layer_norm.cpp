// Normalisations: the operators layer_norm, with statistics in double, and layer_norm_by_sums,
// which takes them from row_sums; batch_norm and group_norm built on operators.
#include <algorithm>
#include <cmath>

#include "src/ops/lines.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Of a tensor [..., width]: [pieces of kSummed elements, ..., their sum and that of their squares].
TensorType row_sums_type(const TensorType& x) {
  check_floating(x.dtype, "row_sums");
  if (x.shape.rank() == 0 || x.shape.back() == 0 || x.shape.back() % kSummed != 0)
    fail("row_sums", "got ", x, ", need rows of a multiple of ", kSummed, " elements");
  Shape shape = x.shape;
  shape[shape.rank() - 1] = 2;
  shape.insert(0, x.shape.back() / kSummed);
  return {shape, x.dtype == f64 ? f64 : f32};
}

// x, or x and weight, or x, weight and bias.
TensorType normalised_type(std::span<const TensorType> in, const Attrs& attrs,
                           std::string_view where) {
  const Shape& shape = in[0].shape;
  check_floating(in[0].dtype, where);
  if (shape.rank() == 0) fail(where, "got a 0-d tensor, need at least 1 axis");
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (!(in[i].shape == Shape{shape.back()}))
      fail(where, "got a ", i == 1 ? "weight" : "bias", " of the shape ", in[i].shape,
           " for the shape ", shape, ", need ", Shape{shape.back()});
    if (in[i].dtype != in[0].dtype)
      fail(where, "got ", in[i], " for ", in[0], ", need equal types");
  }
  attrs.number("eps");
  return in[0];
}

TensorType infer_layer_norm(std::span<const TensorType> in, const Attrs& attrs) {
  return normalised_type(in, attrs, "layer_norm");
}

TensorType infer_layer_norm_by_sums(std::span<const TensorType> in, const Attrs& attrs) {
  const TensorType type = normalised_type(in.first(3), attrs, "layer_norm_by_sums");
  if (in[3] != row_sums_type(type))
    fail("layer_norm_by_sums", "got the sums ", in[3], " for ", type, ", need ",
         row_sums_type(type));
  return type;
}

TensorType infer_row_sums(std::span<const TensorType> in, const Attrs&) {
  return row_sums_type(in[0]);
}

void eval_row_sums(std::span<const ConstView> in, const Attrs&, const View& out) {
  const Tensor x = packed(in[0], f64);
  const double* from = x.data<double>();
  const std::int64_t width = x.shape().back(), rows = x.size() / width;
  Tensor result = empty(out.shape, f64);
  double* to = mutable_view(result).as<double>();
  for (std::int64_t piece = 0; piece < width / kSummed; ++piece)
    for (std::int64_t row = 0; row < rows; ++row, to += 2) {
      to[0] = to[1] = 0;
      for (std::int64_t i = 0; i < kSummed; ++i) {
        const double value = from[row * width + piece * kSummed + i];
        to[0] += value;
        to[1] += value * value;
      }
    }
  convert_elements(const_view(result), out);
}

// In two passes, so that a small variance far from zero is not lost.
void normalise(std::span<double> row, double eps) {
  const auto count = static_cast<double>(row.size());
  double sum = 0, squares = 0;
  for (const double x : row) sum += x;
  const double mean = sum / count;
  for (double& x : row) {
    x -= mean;
    squares += x * x;
  }
  const double scale = 1 / std::sqrt(squares / count + eps);
  for (double& x : row) x *= scale;
}

void eval_layer_norm(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const double eps = attrs.number("eps");
  const auto numbers = [&](std::size_t i) { return i < in.size() ? packed(in[i], f64) : Tensor(); };
  const Tensor weight = numbers(1), bias = numbers(2);
  const double* scale = weight.defined() ? weight.data<double>() : nullptr;
  const double* shift = bias.defined() ? bias.data<double>() : nullptr;
  const auto change = [&](std::span<double> row) {
    normalise(row, eps);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (scale) row[i] *= scale[i];
      if (shift) row[i] += shift[i];
    }
  };
  dispatch_floating(out.dtype, "layer_norm", [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    transform_lines<T, T>(in[0], out.rank() - 1, out, change);
  });
}

// Mean and variance follow from the sums of a row's pieces: E(x^2) - E(x)^2, as a product's kernel
// has them that normalises behind itself. A kernel that has the rows may sum them again.
void eval_layer_norm_by_sums(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const double eps = attrs.number("eps");
  const Tensor x = packed(in[0], f64), weight = packed(in[1], f64), bias = packed(in[2], f64),
               pieces = packed(in[3], f64);
  const std::int64_t width = x.shape().back(), rows = x.size() / width;
  Tensor result = empty(out.shape, f64);
  const double *from = x.data<double>(), *scales = weight.data<double>(),
               *shifts = bias.data<double>(), *sums = pieces.data<double>();
  double* to = mutable_view(result).as<double>();
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (std::int64_t piece = 0; piece < width / kSummed; ++piece) {
      sum += sums[2 * (piece * rows + row)];
      squares += sums[2 * (piece * rows + row) + 1];
    }
    const auto count = static_cast<double>(width);
    const double mean = sum / count;
    const double scale = 1 / std::sqrt(std::max(squares / count - mean * mean, 0.0) + eps);
    for (std::int64_t i = 0; i < width; ++i)
      to[row * width + i] = (from[row * width + i] - mean) * scale * scales[i] + shifts[i];
  }
  convert_elements(const_view(result), out);
}

constexpr OpInfo kLayerNormRows[] = {
    {Op::layer_norm, "layer_norm", 1, 3, Pattern::reduction, infer_layer_norm, eval_layer_norm},
    {Op::row_sums, "row_sums", 1, 1, Pattern::reduction, infer_row_sums, eval_row_sums},
    {Op::layer_norm_by_sums, "layer_norm_by_sums", 4, 4, Pattern::reduction,
     infer_layer_norm_by_sums, eval_layer_norm_by_sums},
};

// A vector of one number a channel, as [1, C, 1, ...].
Tensor per_channel(const Tensor& vector, const Tensor& x, std::string_view where,
                   std::string_view what) {
  if (!(vector.shape() == Shape{x.shape(1)}))
    fail(where, "got a ", what, " of the shape ", vector.shape(), " for ", x.shape(1),
         " channels, need ", Shape{x.shape(1)});
  Shape shape = Dims::filled(x.rank(), 1);
  shape[1] = x.shape(1);
  return reshape(vector, shape);
}

// The common type of x and of the vectors that are defined.
DType common_type(const Tensor& x, std::initializer_list<Tensor> vectors, std::string_view where) {
  std::vector<Tensor> inputs{x};
  for (const Tensor& vector : vectors)
    if (vector.defined()) inputs.push_back(vector);
  if (x.rank() < 2) fail(where, "got the shape ", x.shape(), ", need (batch, channels, ...)");
  return floating_result_type(inputs, where);
}

}  // namespace

std::span<const OpInfo> layer_norm_ops() { return kLayerNormRows; }

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  std::vector<Tensor> inputs{x};
  if (weight.defined())
    inputs.push_back(weight);
  else if (bias.defined())
    inputs.push_back(ones_like(bias));
  if (bias.defined()) inputs.push_back(bias);
  const DType dtype = floating_result_type(inputs, "layer_norm");
  for (Tensor& input : inputs) input = cast(input, dtype);
  return apply_op(Op::layer_norm, inputs, {{"eps", eps}});
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, double eps) {
  const DType dtype = common_type(x, {running_mean, running_var, weight, bias}, "batch_norm");
  const auto channels = [&](const Tensor& vector, std::string_view what) {
    return cast(per_channel(vector, x, "batch_norm", what), wide_type(dtype));
  };
  Tensor scale = rsqrt(channels(running_var, "variance") + eps);
  if (weight.defined()) scale = scale * channels(weight, "weight");
  Tensor shift = -channels(running_mean, "mean") * scale;
  if (bias.defined()) shift = shift + channels(bias, "bias");
  return cast(cast(x, wide_type(dtype)) * scale + shift, dtype);
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps) {
  const DType dtype = common_type(x, {weight, bias}, "group_norm");
  if (num_groups <= 0 || x.shape(1) % num_groups != 0)
    fail("group_norm", "cannot put ", x.shape(1), " channels into ", num_groups, " equal groups");
  // A group keeps its axes, of which this is a view also where the channels come last in memory.
  Shape grouped{x.shape(0), num_groups, x.shape(1) / num_groups};
  Dims axes{2};
  for (int axis = 2; axis < x.rank(); ++axis) {
    grouped.push_back(x.shape(axis));
    axes.push_back(axis + 1);
  }
  const Tensor groups = reshape(cast(x, wide_type(dtype)), grouped);
  const Tensor scale = rsqrt(var(groups, axes, true) + eps);
  Tensor result = reshape((groups - mean(groups, axes, true)) * scale, x.shape());
  if (weight.defined())
    result = result * cast(per_channel(weight, x, "group_norm", "weight"), wide_type(dtype));
  if (bias.defined())
    result = result + cast(per_channel(bias, x, "group_norm", "bias"), wide_type(dtype));
  return cast(result, dtype);
}

}  // namespace tensor
