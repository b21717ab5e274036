// conv2d and conv_transpose2d with PyTorch's meaning, as products of matrices. Both relate an image
// to a grid of kernel positions: "columns" holds, for every position of a piece of the grid, the
// image's elements under the kernel. conv2d gathers columns from its input and multiplies them;
// conv_transpose2d multiplies first and adds its columns into the output.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/core/rounding.h"
#include "src/ops/gemm.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/pair.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// ---- Type rules. Attributes: stride, padding, dilation, [output_padding] (height and width),
// groups, and of float32 on a GPU: tf32.

struct Window {
  std::int64_t channels;  // of the image, in one group
  Pair image, grid, kernel, stride, padding, dilation;

  std::int64_t taps() const { return channels * kernel.h * kernel.w; }
  std::int64_t positions() const { return grid.h * grid.w; }
  // With these, the columns of an image are the image itself.
  bool is_pointwise() const {
    return kernel.h == 1 && kernel.w == 1 && stride.h == 1 && stride.w == 1 && padding.h == 0 &&
           padding.w == 0;
  }
};

// The common type; shapes are still to be checked against each other.
void check_operands(std::span<const TensorType> in, const Attrs& attrs,
                    std::string_view weight_axes, std::string_view where) {
  attrs.flag("tf32", false);
  for (const TensorType& x : in)
    if (x.dtype != in[0].dtype) fail(where, "got ", in[0], " and ", x, ", need equal types");
  if (!is_floating(in[0].dtype))
    fail(where, "got tensors of ", in[0].dtype,
         ", need a floating type: convert them with astype(f32)");
  check_images(in[0].shape, where);
  const Shape& weight = in[1].shape;
  if (weight.rank() != 4)
    fail(where, "got a weight of the shape ", weight, ", need (", weight_axes, ", height, width)");
  const auto [least, most] = std::minmax({weight[2], weight[3]});
  if (least < 1 || most > kLargestExtent)
    fail(where, "got a weight of the shape ", weight,
         ", need a kernel of at least 1 x 1 and less than 2^31");
}

std::int64_t groups_of(const Attrs& attrs, std::int64_t channels, std::int64_t outputs,
                       std::string_view where) {
  const std::int64_t groups = attrs.integer("groups");
  if (groups < 1 || channels % groups != 0 || outputs % groups != 0)
    fail(where, "got ", groups, " groups for ", channels, " input and ", outputs,
         " output channels, need a divisor of both");
  return groups;
}

void check_bias(std::span<const TensorType> in, std::int64_t outputs, std::string_view where) {
  if (in.size() == 3 && !(in[2].shape == Shape{outputs}))
    fail(where, "got a bias of the shape ", in[2].shape, ", need ", Shape{outputs});
}

// The window of a kernel of `weight` ([..., height, width]) but for image, grid and channels.
Window window_of(const Shape& weight, const Attrs& attrs, std::string_view where) {
  return {0,
          0,
          0,
          {weight[2], weight[3]},
          pair_of(attrs, "stride", 1, where),
          pair_of(attrs, "padding", 0, where),
          pair_of(attrs, "dilation", 1, where)};
}

// From the first to the last element under a kernel.
Pair span_of(const Window& window) {
  return {window.dilation.h * (window.kernel.h - 1) + 1,
          window.dilation.w * (window.kernel.w - 1) + 1};
}

Window conv2d_window(const Shape& x, const Shape& weight, const Attrs& attrs) {
  Window window = window_of(weight, attrs, "conv2d");
  const Pair span = span_of(window);
  const Pair padded{x[2] + 2 * window.padding.h, x[3] + 2 * window.padding.w};
  if (span.h > padded.h || span.w > padded.w)
    fail("conv2d", "the kernel covers ", span.h, " x ", span.w,
         " elements, but the padded input has ", padded.h, " x ", padded.w);
  window.channels = weight[1];
  window.image = {x[2], x[3]};
  window.grid = {(padded.h - span.h) / window.stride.h + 1,
                 (padded.w - span.w) / window.stride.w + 1};
  return window;
}

TensorType infer_conv2d(std::span<const TensorType> in, const Attrs& attrs) {
  check_operands(in, attrs, "outputs, channels / groups", "conv2d");
  const Shape &x = in[0].shape, &weight = in[1].shape;
  const std::int64_t groups = groups_of(attrs, x[1], weight[0], "conv2d");
  if (weight[1] != x[1] / groups)
    fail("conv2d", "got a weight of the shape ", weight, " for the input ", x, " in ", groups,
         " groups, need ", x[1] / groups, " channels");
  check_bias(in, weight[0], "conv2d");
  const Window window = conv2d_window(x, weight, attrs);
  return {{x[0], weight[0], window.grid.h, window.grid.w}, in[0].dtype};
}

Window conv_transpose2d_window(const Shape& x, const Shape& weight, const Attrs& attrs) {
  constexpr std::string_view kWhere = "conv_transpose2d";
  Window window = window_of(weight, attrs, kWhere);
  const Pair extra = pair_of(attrs, "output_padding", 0, kWhere), span = span_of(window);
  if (extra.h >= std::max(window.stride.h, window.dilation.h) ||
      extra.w >= std::max(window.stride.w, window.dilation.w))
    fail(kWhere, "got the output_padding ", extra.h, " x ", extra.w,
         ", need less than the stride or the dilation");
  if (x[2] == 0 || x[3] == 0)
    fail(kWhere, "got an input of the shape ", x, ", need at least 1 x 1");
  window.channels = weight[1];
  window.grid = {x[2], x[3]};
  window.image = {(x[2] - 1) * window.stride.h - 2 * window.padding.h + span.h + extra.h,
                  (x[3] - 1) * window.stride.w - 2 * window.padding.w + span.w + extra.w};
  if (window.image.h < 1 || window.image.w < 1)
    fail(kWhere, "the result would have ", window.image.h, " x ", window.image.w,
         " elements, need at least 1 x 1: use less padding");
  return window;
}

TensorType infer_conv_transpose2d(std::span<const TensorType> in, const Attrs& attrs) {
  constexpr std::string_view kWhere = "conv_transpose2d";
  check_operands(in, attrs, "channels, outputs / groups", kWhere);
  const Shape &x = in[0].shape, &weight = in[1].shape;
  if (weight[0] != x[1])
    fail(kWhere, "got a weight of the shape ", weight, " for the input ", x, ", need ", x[1],
         " channels");
  const std::int64_t groups = attrs.integer("groups");
  std::int64_t outputs = 0;
  if (__builtin_mul_overflow(weight[1], groups, &outputs))
    fail(kWhere, "got ", groups, " groups, which is too many");
  groups_of(attrs, x[1], outputs, kWhere);
  check_bias(in, outputs, kWhere);
  const Window window = conv_transpose2d_window(x, weight, attrs);
  return {{x[0], outputs, window.image.h, window.image.w}, in[0].dtype};
}

// ---- Columns.

// Positions [begin, begin + count) of the grid, in row-major order.
struct Piece {
  std::int64_t begin, count;
};

// Calls body(column, image, run) for all runs of positions along a row of the grid whose element
// under one tap of the kernel lies inside the image: `column` is the offset of the first in columns
// ([taps, count]), `image` in the image; from there the image advances by the stride.
template <class Body>
void for_each_run(const Window& window, const Piece& piece, const Body& body) {
  const auto [rows, columns] = window.image;
  std::int64_t tap = 0;
  for (std::int64_t channel = 0; channel < window.channels; ++channel)
    for (std::int64_t ky = 0; ky < window.kernel.h; ++ky)
      for (std::int64_t kx = 0; kx < window.kernel.w; ++kx, ++tap) {
        const std::int64_t shift = kx * window.dilation.w - window.padding.w;
        const std::int64_t first = shift < 0 ? ceil_div(-shift, window.stride.w) : 0;
        const std::int64_t last = shift < columns ? ceil_div(columns - shift, window.stride.w) : 0;
        for (std::int64_t at = piece.begin; at < piece.begin + piece.count;) {
          const std::int64_t gy = at / window.grid.w, row_begin = gy * window.grid.w;
          const std::int64_t row_end =
              std::min(row_begin + window.grid.w, piece.begin + piece.count);
          const std::int64_t y = gy * window.stride.h + ky * window.dilation.h - window.padding.h;
          const std::int64_t from = std::max(at - row_begin, first);
          const std::int64_t to = std::min(row_end - row_begin, last);
          if (y >= 0 && y < rows && from < to)
            body(tap * piece.count + row_begin + from - piece.begin,
                 (channel * rows + y) * columns + from * window.stride.w + shift, to - from);
          at = row_end;
        }
      }
}

template <class T>
void gather_columns(const T* image, const Window& window, const Piece& piece,
                    std::vector<T>& columns) {
  if (window.padding.h > 0 || window.padding.w > 0) std::fill(columns.begin(), columns.end(), T(0));
  const std::int64_t step = window.stride.w;
  for_each_run(window, piece, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    T* out = columns.data() + to;
    const T* in = image + from;
    if (step == 1)
      std::copy_n(in, count, out);
    else
      for (std::int64_t i = 0; i < count; ++i) out[i] = in[i * step];
  });
}

template <class T>
void scatter_columns(const std::vector<T>& columns, const Window& window, const Piece& piece,
                     T* image) {
  const std::int64_t step = window.stride.w;
  for_each_run(window, piece, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    const T* in = columns.data() + from;
    T* out = image + to;
    for (std::int64_t i = 0; i < count; ++i) out[i * step] += in[i];
  });
}

// Calls body(piece, columns) for pieces of the grid whose columns take 8 MiB at most (or are those
// of one position), so that large images need little memory beside their own.
template <class T, class Body>
void for_each_piece(const Window& window, const Body& body) {
  constexpr std::int64_t kBytes = std::int64_t{8} << 20;
  const std::int64_t row = std::max<std::int64_t>(window.taps(), 1) * std::int64_t{sizeof(T)};
  const std::int64_t most = std::clamp<std::int64_t>(kBytes / row, 1, window.positions());
  std::vector<T> columns;
  for (std::int64_t begin = 0; begin < window.positions(); begin += most) {
    const Piece piece{begin, std::min(most, window.positions() - begin)};
    columns.resize(static_cast<std::size_t>(window.taps() * piece.count));
    body(piece, columns);
  }
}

// ---- Kernels, on contiguous operands of one type.

template <class T>
ConstView matrix(const T* data, const Shape& shape, const Strides& strides) {
  return {reinterpret_cast<const std::byte*>(data), dtype_of<T>(), shape, strides};
}
template <class T>
View matrix(T* data, const Shape& shape, const Strides& strides) {
  return {reinterpret_cast<std::byte*>(data), dtype_of<T>(), shape, strides};
}

template <class T>
struct Operands {
  const T *x, *weight, *bias;  // bias may be absent
  T* out;
  std::int64_t batch, groups, inputs, outputs;  // channels of one group
};

template <class T>
void conv2d_group(const T* x, const T* weight, std::int64_t outputs, const Window& window, T* out) {
  const std::int64_t taps = window.taps(), positions = window.positions();
  const ConstView filters = matrix(weight, {outputs, taps}, {taps, 1});
  if (window.is_pointwise())
    return gemm(filters, matrix(x, {taps, positions}, {positions, 1}),
                matrix(out, {outputs, positions}, {positions, 1}));
  for_each_piece<T>(window, [&](const Piece& piece, std::vector<T>& columns) {
    gather_columns(x, window, piece, columns);
    gemm(filters, matrix<T>(std::as_const(columns).data(), {taps, piece.count}, {piece.count, 1}),
         matrix(out + piece.begin, {outputs, piece.count}, {positions, 1}));
  });
}

template <class T>
void conv2d_loop(const Operands<T>& operands, const Window& window) {
  const auto& [x, weight, bias, out, batch, groups, inputs, outputs] = operands;
  const std::int64_t size = window.positions();
  for (std::int64_t at = 0; at < batch * groups; ++at) {
    const std::int64_t group = at % groups;
    T* result = out + at * outputs * size;
    conv2d_group(x + at * inputs * window.image.h * window.image.w,
                 weight + group * outputs * window.taps(), outputs, window, result);
    for (std::int64_t o = 0; bias && o < outputs; ++o)
      for (std::int64_t i = 0; i < size; ++i) result[o * size + i] += bias[group * outputs + o];
  }
}

template <class T>
void conv_transpose2d_loop(const Operands<T>& operands, const Window& window) {
  const auto& [x, weight, bias, out, batch, groups, inputs, outputs] = operands;
  const std::int64_t taps = window.taps(), positions = window.positions();
  const std::int64_t size = window.image.h * window.image.w;
  for (std::int64_t at = 0; at < batch * groups; ++at) {
    const std::int64_t group = at % groups;
    T* result = out + at * outputs * size;
    for (std::int64_t o = 0; o < outputs; ++o)
      std::fill_n(result + o * size, size, bias ? bias[group * outputs + o] : T(0));
    // [inputs, taps] read as [taps, inputs]
    const ConstView filters = matrix(weight + group * inputs * taps, {taps, inputs}, {1, taps});
    // clang before 16 cannot capture structured bindings without an initialiser.
    for_each_piece<T>(window, [&, x = x, inputs = inputs](const Piece& piece,
                                                          std::vector<T>& columns) {
      gemm(filters,
           matrix(x + at * inputs * positions + piece.begin, {inputs, piece.count}, {positions, 1}),
           matrix(columns.data(), {taps, piece.count}, {piece.count, 1}));
      scatter_columns(columns, window, piece, result);
    });
  }
}

// Contiguous elements of `dtype`: x itself or a copy of it.
class Contiguous {
 public:
  Contiguous(const ConstView& x, DType dtype) : view_(x) {
    if (x.dtype == dtype && x.is_contiguous()) return;
    copy_ = packed(x, dtype);
    view_ = const_view(copy_);
  }
  template <class T>
  const T* as() const {
    return view_.as<T>();
  }

 private:
  Tensor copy_;
  ConstView view_;
};

template <class T>
void run(std::span<const ConstView> in, const Attrs& attrs, const Window& window, const View& out,
         void (*loop)(const Operands<T>&, const Window&)) {
  constexpr DType kType = dtype_of<T>();
  const Contiguous x(in[0], kType), weight(in[1], kType);
  std::optional<Contiguous> bias;
  if (in.size() == 3) bias.emplace(in[2], kType);
  const bool in_place = out.dtype == kType && out.is_contiguous();
  const Tensor result = in_place ? Tensor() : empty(out.shape, kType);
  const std::int64_t groups = attrs.integer("groups");
  loop({x.as<T>(), weight.as<T>(), bias ? bias->as<T>() : nullptr,
        in_place ? out.as<T>() : mutable_view(result).as<T>(), in[0].shape[0], groups,
        in[0].shape[1] / groups, out.shape[1] / groups},
       window);
  if (!in_place) convert_elements(const_view(result), out);
}

void eval_conv2d(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  if (num_elements(out.shape) == 0) return;
  const Window window = conv2d_window(in[0].shape, in[1].shape, attrs);
  if (out.dtype == f64)
    run<double>(in, attrs, window, out, conv2d_loop<double>);
  else
    run<float>(in, attrs, window, out, conv2d_loop<float>);
}

void eval_conv_transpose2d(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  if (num_elements(out.shape) == 0) return;
  const Window window = conv_transpose2d_window(in[0].shape, in[1].shape, attrs);
  if (out.dtype == f64)
    run<double>(in, attrs, window, out, conv_transpose2d_loop<double>);
  else
    run<float>(in, attrs, window, out, conv_transpose2d_loop<float>);
}

constexpr OpInfo kConv2dRows[] = {
    {Op::conv2d, "conv2d", 2, 3, Pattern::complex_out_fusable, infer_conv2d, eval_conv2d},
    {Op::conv_transpose2d, "conv_transpose2d", 2, 3, Pattern::complex_out_fusable,
     infer_conv_transpose2d, eval_conv_transpose2d},
};

// The inputs in their common type, without the bias where it is undefined.
std::vector<Tensor> operands_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                std::string_view where) {
  std::vector<Tensor> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  const DType dtype = result_type(inputs, where);
  for (Tensor& input : inputs) input = cast(input, dtype);
  return inputs;
}

}  // namespace

std::span<const OpInfo> conv2d_ops() { return kConv2dRows; }

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  return apply_op(Op::conv2d, operands_of(x, weight, bias, "conv2d"),
                  {{"stride", pair_value(options.stride)},
                   {"padding", pair_value(options.padding)},
                   {"dilation", pair_value(options.dilation)},
                   {"groups", options.groups}});
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  return apply_op(Op::conv_transpose2d, operands_of(x, weight, bias, "conv_transpose2d"),
                  {{"stride", pair_value(options.stride)},
                   {"padding", pair_value(options.padding)},
                   {"output_padding", pair_value(options.output_padding)},
                   {"dilation", pair_value(options.dilation)},
                   {"groups", options.groups}});
}

}  // namespace tensor
