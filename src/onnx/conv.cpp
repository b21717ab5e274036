// Convolutions of one to three spatial axes, by those of two.
#include <algorithm>

#include "src/onnx/window.h"

namespace tensor::onnx {
namespace {

Ints kernel_of(const Call& c, const Tensor& weight) {
  if (weight.rank() < 3 || weight.rank() > 5 || weight.rank() != c[0].rank())
    fail("conv", "got an input of the shape ", c[0].shape(), " and a weight of the shape ",
         weight.shape(), ", need 3 to 5 axes each");
  Ints kernel(weight.shape().begin() + 2, weight.shape().end());
  if (const Ints named = c.ints("kernel_shape", kernel); named != kernel)
    fail("conv", "got a weight of the shape ", weight.shape(),
         ", but kernel_shape=", AttrValue(named));
  return kernel;
}

Conv2dOptions options_of(const Call& c, const Window& w) {
  return {.stride = last_two(w.stride, 1),
          .padding = last_two(w.begin, 0),
          .dilation = last_two(w.dilation, 1),
          .groups = c.integer("group", 1)};
}

// Every plane of a kernel over the planes of the image that it meets, which are images of a batch.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& w,
              const Conv2dOptions& options) {
  const Shape& s = x.shape();
  Tensor total;
  for (std::int64_t i = 0; i < w.kernel[0]; ++i) {
    const Tensor planes = sliced(x, 2, i * w.dilation[0], w.out[0], w.stride[0]).swapaxes(1, 2);
    const Tensor part =
        conv2d(reshape(planes, {s[0] * w.out[0], s[1], s[3], s[4]}),
               squeeze(sliced(weight, 2, i, 1), 2), i == 0 ? bias : Tensor(), options);
    total = i == 0 ? part : total + part;
  }
  const Shape& t = total.shape();
  return reshape(total, {s[0], w.out[0], t[1], t[2], t[3]}).swapaxes(1, 2);
}

}  // namespace

Tensor convolution(const Call& c, const Tensor& image, const Tensor& weight, const Tensor& bias) {
  Window w = window_of(c, image.shape(), kernel_of(c, weight));
  Tensor x = image;
  if (!w.is_even() || (w.rank() == 3 && w.begin[0] != 0)) {
    x = padded(x, w.begin, w.end);
    std::ranges::fill(w.begin, 0);
  }
  const Conv2dOptions options = options_of(c, w);
  if (w.rank() == 3) return conv3d(x, weight, bias, w, options);
  if (w.rank() == 2) return conv2d(x, weight, bias, options);
  return squeeze(conv2d(as_image(x), as_image(weight), bias, options), 2);
}

namespace {

Results conv(const Call& c) { return {convolution(c, c[0], c[1], c.optional(2))}; }

// What is cut off the whole result: all that the kernels reach.
struct Cut {
  Ints begin, end, extra;  // extra: output_padding
};

Cut cut_of(const Call& c, const Shape& x, const Ints& kernel, const Ints& stride,
           const Ints& dilation) {
  const std::size_t rank = kernel.size();
  const std::string how = c.text("auto_pad", "NOTSET");
  const Ints pads = spatial(c, "pads", 2 * rank, 0, 0);
  Cut cut{Ints(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank)),
          Ints(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end()),
          spatial(c, "output_padding", rank, 0, 0)};
  const bool has_shape = c.has("output_shape");
  const Ints wanted = has_shape ? spatial(c, "output_shape", rank, 0, 0) : Ints(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t extent = x[static_cast<int>(i) + 2];
    if (how == "VALID") cut.begin[i] = cut.end[i] = 0;
    if (!has_shape && !how.starts_with("SAME")) continue;
    const std::int64_t out = has_shape ? wanted[i] : extent * stride[i];
    const std::int64_t whole = (extent - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1;
    const std::int64_t total = whole + cut.extra[i] - out;
    // What is missing comes at the end, as more output padding.
    if (total < 0) cut.extra[i] -= total;
    const std::int64_t all = std::max<std::int64_t>(total, 0);
    cut.begin[i] = how == "SAME_UPPER" ? all / 2 : all - all / 2;
    cut.end[i] = all - cut.begin[i];
  }
  return cut;
}

// Every plane of a kernel over all planes of the image; results whose places along the first axis
// are the same modulo the stride come from the same planes of the kernel, and lie between those of
// the others.
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        std::int64_t stride, std::int64_t dilation, std::int64_t extra,
                        const ConvTranspose2dOptions& options) {
  const Shape &s = x.shape(), &w = weight.shape();
  const std::int64_t planes = s[2], taps = w[2], features = w[1] * options.groups;
  const Tensor images = reshape(x.swapaxes(1, 2), {s[0] * planes, s[1], s[3], s[4]});
  const Tensor all =
      conv_transpose2d(images, reshape(weight, {w[0], w[1] * taps, w[3], w[4]}), {}, options);
  const Shape& t = all.shape();
  const Tensor parts = reshape(all, {s[0], planes, features, taps, t[2], t[3]});
  const std::int64_t reach = dilation * (taps - 1);
  const std::int64_t out = (planes - 1) * stride + reach + 1 + extra;
  const std::int64_t places = (out + stride - 1) / stride;
  std::vector<Tensor> phases;
  for (std::int64_t phase = 0; phase < stride; ++phase) {
    Tensor total;
    for (std::int64_t i = 0; i < taps; ++i) {
      if (i * dilation % stride != phase) continue;
      const std::int64_t before = i * dilation / stride;
      const Tensor part = pad(squeeze(sliced(parts, 3, i, 1), 3),
                              {{0, 0}, {before, places - planes - before}, {0, 0}, {0, 0}, {0, 0}});
      total = total.defined() ? total + part : part;
    }
    phases.push_back(
        total.defined()
            ? total
            : zeros({s[0], places, features, t[2], t[3]}, all.dtype()).to(all.device()));
  }
  Tensor y = reshape(stack(phases, 2), {s[0], places * stride, features, t[2], t[3]});
  y = sliced(y, 1, 0, out).swapaxes(1, 2);
  return bias.defined() ? y + reshape(bias, {features, 1, 1, 1}) : y;
}

Results conv_transpose(const Call& c) {
  const Tensor &x = c[0], &weight = c[1];
  const Ints kernel = kernel_of(c, weight);
  const std::size_t rank = kernel.size();
  const Ints stride = spatial(c, "strides", rank, 1, 1);
  const Ints dilation = spatial(c, "dilations", rank, 1, 1);
  const Cut cut = cut_of(c, x.shape(), kernel, stride, dilation);
  const bool is_even = cut.begin == cut.end && rank < 3;
  const ConvTranspose2dOptions options{.stride = last_two(stride, 1),
                                       .padding = is_even ? last_two(cut.begin, 0) : Pair(0),
                                       .output_padding = last_two(cut.extra, 0),
                                       .dilation = last_two(dilation, 1),
                                       .groups = c.integer("group", 1)};
  const bool is_row = rank == 1;
  Tensor y = rank == 3
                 ? conv_transpose3d(x, weight, c.optional(2), stride[0], dilation[0], cut.extra[0],
                                    options)
                 : conv_transpose2d(is_row ? as_image(x) : x, is_row ? as_image(weight) : weight,
                                    c.optional(2), options);
  if (is_row) y = squeeze(y, 2);
  for (std::size_t i = 0; i < rank && !is_even; ++i) {
    const int axis = static_cast<int>(i) + 2;
    const std::int64_t rest = y.shape(axis) - cut.begin[i] - cut.end[i];
    if (rest < 0) fail("conv_transpose", "pads cut off more than there is");
    y = sliced(y, axis, cut.begin[i], rest);
  }
  return {y};
}

// Blocks, each a column of the input, where they lie on the image; those that meet add up. That is
// a transposed convolution by filters that each have a single one.
Results blocks_to_image(const Call& c) {
  const Ints image = c.ints(1), block = c.ints(2);
  if (image.size() != 2 || block.size() != 2)
    fail("col2im", "got an image of ", image.size(), " axes and a block of ", block.size(),
         ", need two");
  const Ints stride = spatial(c, "strides", 2, 1, 1), dilation = spatial(c, "dilations", 2, 1, 1);
  const Ints pads = spatial(c, "pads", 4, 0, 0);
  Ints count(2), whole(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t reach = dilation[i] * (block[i] - 1) + 1;
    whole[i] = image[i] + pads[i] + pads[i + 2];
    if (image[i] < 1 || block[i] < 1 || whole[i] < reach)
      fail("col2im", "got image_shape=", AttrValue(image), ", block_shape=", AttrValue(block),
           " and pads=", AttrValue(pads), ", into which no block fits");
    count[i] = (whole[i] - reach) / stride[i] + 1;
  }
  const std::int64_t taps = block[0] * block[1];
  const Tensor& x = c[0];
  if (x.rank() != 3 || x.shape(1) % taps != 0 || x.shape(2) != count[0] * count[1])
    fail("col2im", "got an input of the shape ", x.shape(), ", need (N, C * ", taps, ", ",
         count[0] * count[1], ") for image_shape=", AttrValue(image),
         " and block_shape=", AttrValue(block));
  const std::int64_t images = x.shape(0) * (x.shape(1) / taps);
  const Tensor filters = reshape(eye(taps).astype(x.dtype()), {taps, 1, block[0], block[1]});
  Tensor y = conv_transpose2d(reshape(x, {images, taps, count[0], count[1]}), filters, {},
                              {.stride = last_two(stride, 1), .dilation = last_two(dilation, 1)});
  y = padded(y, {0, 0}, {whole[0] - y.shape(2), whole[1] - y.shape(3)});
  for (std::size_t i = 0; i < 2; ++i) y = sliced(y, static_cast<int>(i) + 2, pads[i], image[i]);
  return {reshape(y, {x.shape(0), x.shape(1) / taps, image[0], image[1]})};
}

constexpr std::string_view kConv = "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I";
constexpr std::string_view kTransposed =
    "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I output_padding:I "
    "output_shape:I";

constexpr Operator kConvRows[] = {
    {"Conv", 1, 2, 3, 1, kConv, conv, refuse_auto_pad},
    {"Col2Im", 18, 3, 3, 1, "dilations:I pads:I strides:I", blocks_to_image},
    {"ConvTranspose", 1, 2, 3, 1, kTransposed, conv_transpose, refuse_auto_pad},
};

}  // namespace

std::span<const Operator> conv_operators() { return kConvRows; }

}  // namespace tensor::onnx
