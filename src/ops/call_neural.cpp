// Bindings of the neural operators' names.
#include "src/ops/binding.h"

namespace tensor {
namespace {

Interpolation interpolation_of(const std::string& mode) {
  if (mode == "nearest") return Interpolation::nearest;
  if (mode == "bilinear") return Interpolation::bilinear;
  if (mode == "bicubic") return Interpolation::bicubic;
  fail("interpolate", "got the mode \"", mode, "\", need nearest, bilinear or bicubic");
}

Out call_gelu(In in, const Attrs& attrs) {
  const std::string kind = attrs.text("approximate", "none");
  if (kind != "none" && kind != "tanh")
    fail("gelu", "got approximate=\"", kind, "\", need none or tanh");
  return {kind == "tanh" ? gelu_tanh(in[0]) : gelu(in[0])};
}

Out call_conv2d(In in, const Attrs& attrs) {
  const Conv2dOptions options{pair_attribute(attrs, "stride", 1),
                              pair_attribute(attrs, "padding", 0),
                              pair_attribute(attrs, "dilation", 1), attrs.integer("groups", 1)};
  return {conv2d(in[0], in[1], optional_input(in, 2), options)};
}

Out call_conv_transpose2d(In in, const Attrs& attrs) {
  const ConvTranspose2dOptions options{
      pair_attribute(attrs, "stride", 1), pair_attribute(attrs, "padding", 0),
      pair_attribute(attrs, "output_padding", 0), pair_attribute(attrs, "dilation", 1),
      attrs.integer("groups", 1)};
  return {conv_transpose2d(in[0], in[1], optional_input(in, 2), options)};
}

Out call_interpolate(In in, const Attrs& attrs) {
  return {interpolate(in[0], pair_attribute(attrs, "size", 0),
                      {interpolation_of(attrs.text("mode", "nearest")),
                       attrs.flag("align_corners", false), attrs.flag("antialias", false)})};
}

Out call_max_pool2d(In in, const Attrs& attrs) {
  return {max_pool2d(in[0], pair_attribute(attrs, "kernel_size", 0),
                     pair_attribute(attrs, "stride", 0), pair_attribute(attrs, "padding", 0),
                     attrs.flag("ceil_mode", false))};
}
Out call_avg_pool2d(In in, const Attrs& attrs) {
  return {avg_pool2d(in[0], pair_attribute(attrs, "kernel_size", 0),
                     pair_attribute(attrs, "stride", 0), pair_attribute(attrs, "padding", 0),
                     attrs.flag("ceil_mode", false), attrs.flag("count_include_pad", true))};
}
template <Tensor (*f)(const Tensor&, Pair)>
Out call_adaptive_pool(In in, const Attrs& attrs) {
  return {f(in[0], pair_attribute(attrs, "output_size", 1))};
}

Out call_conv1d(In in, const Attrs& attrs) {
  return {conv1d(in[0], in[1], optional_input(in, 2),
                 {attrs.integer("stride", 1), attrs.integer("padding", 0),
                  attrs.integer("dilation", 1), attrs.integer("groups", 1)})};
}

SamplePadding sample_padding_of(const std::string& mode) {
  if (mode == "zeros") return SamplePadding::zeros;
  if (mode == "border") return SamplePadding::border;
  if (mode == "reflection") return SamplePadding::reflection;
  fail("grid_sample", "got the padding_mode \"", mode, "\", need zeros, border or reflection");
}

Out call_grid_sample(In in, const Attrs& attrs) {
  return {grid_sample(in[0], in[1],
                      {interpolation_of(attrs.text("mode", "bilinear")),
                       sample_padding_of(attrs.text("padding_mode", "zeros")),
                       attrs.flag("align_corners", false)})};
}

Out call_sample_pixels(In in, const Attrs&) { return {sample_pixels(in[0], in[1], in[2])}; }

Out call_roi_align(In in, const Attrs& attrs) {
  return {roi_align(in[0], in[1], pair_attribute(attrs, "output_size", 0),
                    {attrs.number("spatial_scale", 1), attrs.integer("sampling_ratio", -1),
                     attrs.flag("aligned", false)})};
}

Out call_unfold(In in, const Attrs& attrs) {
  return {unfold(in[0], pair_attribute(attrs, "kernel_size", 1),
                 pair_attribute(attrs, "dilation", 1), pair_attribute(attrs, "padding", 0),
                 pair_attribute(attrs, "stride", 1))};
}

Out call_leaky_relu(In in, const Attrs& attrs) {
  return {leaky_relu(in[0], attrs.number("negative_slope", 0.01))};
}
Out call_elu(In in, const Attrs& attrs) { return {elu(in[0], attrs.number("alpha", 1))}; }
Out call_prelu(In in, const Attrs&) { return {prelu(in[0], in[1])}; }

Out call_rms_norm(In in, const Attrs& attrs) {
  const auto eps = attrs.has("eps") ? std::optional(attrs.number("eps")) : std::nullopt;
  return {rms_norm(in[0], optional_input(in, 1), eps)};
}
Out call_instance_norm(In in, const Attrs& attrs) {
  return {instance_norm(in[0], optional_input(in, 1), optional_input(in, 2),
                        attrs.number("eps", 1e-5))};
}

Out call_one_hot(In in, const Attrs& attrs) {
  return {one_hot(in[0], attrs.integer("num_classes"))};
}
Out call_pixel_shuffle(In in, const Attrs& attrs) {
  return {pixel_shuffle(in[0], attrs.integer("upscale_factor"))};
}
Out call_pixel_unshuffle(In in, const Attrs& attrs) {
  return {pixel_unshuffle(in[0], attrs.integer("downscale_factor"))};
}
Out call_nms(In in, const Attrs& attrs) {
  return {nms(in[0], in[1], attrs.number("iou_threshold"))};
}

}  // namespace

// Attributes in the order of torch.nn.functional's signatures.
std::vector<Binding> neural_bindings() {
  return {
      {"gelu", 1, 1, {"approximate"}, call_gelu},
      {"softmax", 1, 1, {"axis"}, call_along_axis<softmax>},
      {"log_softmax", 1, 1, {"axis"}, call_along_axis<log_softmax>},
      {"layer_norm",
       1,
       3,
       {"eps"},
       [](In in, const Attrs& a) -> Out {
         return {layer_norm(in[0], optional_input(in, 1), optional_input(in, 2),
                            a.number("eps", 1e-5))};
       }},
      // x, weight, bias, mean, variance: the order of the ONNX operator, which test files use.
      {"batch_norm",
       5,
       5,
       {"eps"},
       [](In in, const Attrs& a) -> Out {
         return {batch_norm(in[0], in[3], in[4], in[1], in[2], a.number("eps", 1e-5))};
       }},
      {"group_norm",
       1,
       3,
       {"num_groups", "eps"},
       [](In in, const Attrs& a) -> Out {
         return {group_norm(in[0], a.integer("num_groups"), optional_input(in, 1),
                            optional_input(in, 2), a.number("eps", 1e-5))};
       }},
      {"linear",
       2,
       3,
       {},
       [](In in, const Attrs&) -> Out { return {linear(in[0], in[1], optional_input(in, 2))}; }},
      {"scaled_dot_product_attention",
       3,
       4,
       {},
       [](In in, const Attrs&) -> Out {
         return {scaled_dot_product_attention(in[0], in[1], in[2], optional_input(in, 3))};
       }},
      {"conv2d", 2, 3, {"stride", "padding", "dilation", "groups"}, call_conv2d},
      {"conv_transpose2d",
       2,
       3,
       {"stride", "padding", "output_padding", "dilation", "groups"},
       call_conv_transpose2d},
      {"interpolate", 1, 1, {"size", "mode", "align_corners", "antialias"}, call_interpolate},
      {"leaky_relu", 1, 1, {"negative_slope"}, call_leaky_relu},
      {"elu", 1, 1, {"alpha"}, call_elu},
      {"prelu", 2, 2, {}, call_prelu},
      {"rms_norm", 1, 2, {"eps"}, call_rms_norm},
      {"instance_norm", 1, 3, {"eps"}, call_instance_norm},
      {"one_hot", 1, 1, {"num_classes"}, call_one_hot},
      {"conv1d", 2, 3, {"stride", "padding", "dilation", "groups"}, call_conv1d},
      {"max_pool2d", 1, 1, {"kernel_size", "stride", "padding", "ceil_mode"}, call_max_pool2d},
      {"avg_pool2d",
       1,
       1,
       {"kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"},
       call_avg_pool2d},
      {"adaptive_avg_pool2d", 1, 1, {"output_size"}, call_adaptive_pool<adaptive_avg_pool2d>},
      {"adaptive_max_pool2d", 1, 1, {"output_size"}, call_adaptive_pool<adaptive_max_pool2d>},
      {"grid_sample", 2, 2, {"mode", "padding_mode", "align_corners"}, call_grid_sample},
      {"sample_pixels", 3, 3, {}, call_sample_pixels},
      {"pixel_shuffle", 1, 1, {"upscale_factor"}, call_pixel_shuffle},
      {"pixel_unshuffle", 1, 1, {"downscale_factor"}, call_pixel_unshuffle},
      {"roi_align",
       2,
       2,
       {"output_size", "spatial_scale", "sampling_ratio", "aligned"},
       call_roi_align},
      {"unfold", 1, 1, {"kernel_size", "dilation", "padding", "stride"}, call_unfold},
      {"nms", 2, 2, {"iou_threshold"}, call_nms},
  };
}

}  // namespace tensor
