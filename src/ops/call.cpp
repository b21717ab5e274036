// Operators by name: what each name does with a list of tensors and named attributes. Elementwise
// operators need no row here: those without attributes are found in the operator table.
#include <algorithm>
#include <string>

#include "src/core/closest.h"
#include "src/ops/op.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

struct Binding {
  std::string_view name;
  int min_inputs, max_inputs;
  std::vector<std::string_view> attrs;  // the names it takes
  Out (*invoke)(In, const Attrs&);
};

Tensor optional(In in, std::size_t i) { return i < in.size() ? in[i] : Tensor(); }

Axes axes_of(const Attrs& attrs) { return attrs.has("axis") ? Axes(attrs.dims("axis")) : Axes(); }

int checked_axis(std::string_view name, std::int64_t axis) {
  if (axis < -kMaxRank || axis >= kMaxRank)
    fail("attribute", name, " is ", axis, ", need one of the tensor's axes");
  return static_cast<int>(axis);
}

int axis_of(const Attrs& attrs, std::int64_t fallback) {
  return checked_axis("axis", attrs.integer("axis", fallback));
}

Pair pair_of(const Attrs& attrs, std::string_view name, Pair fallback) {
  const Ints values = attrs.ints(name, {fallback.h, fallback.w});
  if (values.empty() || values.size() > 2)
    fail("attribute", name, " has ", values.size(), " numbers, need one or two");
  return {values.front(), values.back()};
}

template <Tensor (*f)(const Tensor&, const Axes&, bool)>
Out reduction(In in, const Attrs& attrs) {
  return {f(in[0], axes_of(attrs), attrs.flag("keepdims", false))};
}
template <Tensor (*f)(const Tensor&, const Axes&, bool, double)>
Out deviation(In in, const Attrs& attrs) {
  return {f(in[0], axes_of(attrs), attrs.flag("keepdims", false), attrs.number("ddof", 0))};
}
template <Tensor (*f)(const Tensor&, int)>
Out along_axis(In in, const Attrs& attrs) {
  return {f(in[0], axis_of(attrs, -1))};
}
template <Tensor (*f)(const Tensor&, Pair, Pair, Pair)>
Out pooling(In in, const Attrs& attrs) {
  return {f(in[0], pair_of(attrs, "kernel_size", 0), pair_of(attrs, "stride", 0),
            pair_of(attrs, "padding", 0))};
}

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

// As numpy.cumsum, repeat and take: without an axis, of the flattened tensor.
Tensor flat_without_axis(const Tensor& x, const Attrs& attrs) {
  return attrs.has("axis") ? x : reshape(x, {-1});
}

Out call_cumsum(In in, const Attrs& attrs) {
  return {cumsum(flat_without_axis(in[0], attrs), axis_of(attrs, 0))};
}

Out call_repeat(In in, const Attrs& attrs) {
  return {repeat(flat_without_axis(in[0], attrs), attrs.integer("repeats"), axis_of(attrs, 0))};
}

Out call_take(In in, const Attrs& attrs) {
  return {take(flat_without_axis(in[0], attrs), in[1], axis_of(attrs, 0))};
}

Out call_topk(In in, const Attrs& attrs) {
  auto [values, indices] = topk(in[0], attrs.integer("k"), axis_of(attrs, -1));
  return {values, indices};
}

Out call_conv2d(In in, const Attrs& attrs) {
  const Conv2dOptions options{pair_of(attrs, "stride", 1), pair_of(attrs, "padding", 0),
                              pair_of(attrs, "dilation", 1), attrs.integer("groups", 1)};
  return {conv2d(in[0], in[1], optional(in, 2), options)};
}

Out call_conv_transpose2d(In in, const Attrs& attrs) {
  const ConvTranspose2dOptions options{pair_of(attrs, "stride", 1), pair_of(attrs, "padding", 0),
                                       pair_of(attrs, "output_padding", 0),
                                       pair_of(attrs, "dilation", 1), attrs.integer("groups", 1)};
  return {conv_transpose2d(in[0], in[1], optional(in, 2), options)};
}

Out call_interpolate(In in, const Attrs& attrs) {
  return {interpolate(in[0], pair_of(attrs, "size", 0),
                      {interpolation_of(attrs.text("mode", "nearest")),
                       attrs.flag("align_corners", false), attrs.flag("antialias", false)})};
}

Out call_split(In in, const Attrs& attrs) {
  if (attrs.has("sections")) return split(in[0], attrs.integer("sections"), axis_of(attrs, 0));
  return split(in[0], attrs.ints("indices"), axis_of(attrs, 0));
}

Out call_pad(In in, const Attrs& attrs) {
  const Ints flat = attrs.ints("pad_width");
  if (flat.size() % 2 != 0)
    fail("pad", "pad_width has ", flat.size(), " numbers, need before and after for every axis");
  std::vector<std::pair<std::int64_t, std::int64_t>> width;
  for (std::size_t i = 0; i < flat.size(); i += 2) width.emplace_back(flat[i], flat[i + 1]);
  return {pad(in[0], width, attrs.number("constant_values", 0))};
}

// Attributes in the order of numpy's and torch.nn.functional's signatures.
const std::vector<Binding>& bindings() {
  static const std::vector<Binding> table = {
      {"gelu", 1, 1, {"approximate"}, call_gelu},
      {"astype",
       1,
       1,
       {"dtype"},
       [](In in, const Attrs& a) -> Out { return {astype(in[0], a.dtype("dtype"))}; }},
      {"where", 3, 3, {}, [](In in, const Attrs&) -> Out { return {where(in[0], in[1], in[2])}; }},
      {"clip", 3, 3, {}, [](In in, const Attrs&) -> Out { return {clip(in[0], in[1], in[2])}; }},
      {"isclose",
       2,
       2,
       {"rtol", "atol", "equal_nan"},
       [](In in, const Attrs& a) -> Out {
         return {isclose(in[0], in[1], a.number("rtol", 1e-5), a.number("atol", 1e-8),
                         a.flag("equal_nan", false))};
       }},
      {"sum", 1, 1, {"axis", "keepdims"}, reduction<sum>},
      {"mean", 1, 1, {"axis", "keepdims"}, reduction<mean>},
      {"prod", 1, 1, {"axis", "keepdims"}, reduction<prod>},
      {"max", 1, 1, {"axis", "keepdims"}, reduction<max>},
      {"min", 1, 1, {"axis", "keepdims"}, reduction<min>},
      {"any", 1, 1, {"axis", "keepdims"}, reduction<any>},
      {"all", 1, 1, {"axis", "keepdims"}, reduction<all>},
      {"argmax", 1, 1, {"axis", "keepdims"}, reduction<argmax>},
      {"argmin", 1, 1, {"axis", "keepdims"}, reduction<argmin>},
      {"var", 1, 1, {"axis", "keepdims", "ddof"}, deviation<var>},
      {"std", 1, 1, {"axis", "keepdims", "ddof"}, deviation<std>},
      {"cumsum", 1, 1, {"axis"}, call_cumsum},
      {"sort", 1, 1, {"axis"}, along_axis<sort>},
      {"argsort", 1, 1, {"axis"}, along_axis<argsort>},
      {"topk", 1, 1, {"k", "axis"}, call_topk},
      {"matmul", 2, 2, {}, [](In in, const Attrs&) -> Out { return {matmul(in[0], in[1])}; }},
      {"dot", 2, 2, {}, [](In in, const Attrs&) -> Out { return {dot(in[0], in[1])}; }},
      {"einsum",
       1,
       kAnyNumber,
       {"equation"},
       [](In in, const Attrs& a) -> Out { return {einsum(a.text("equation"), in)}; }},
      {"softmax", 1, 1, {"axis"}, along_axis<softmax>},
      {"log_softmax", 1, 1, {"axis"}, along_axis<log_softmax>},
      {"layer_norm",
       1,
       3,
       {"eps"},
       [](In in, const Attrs& a) -> Out {
         return {layer_norm(in[0], optional(in, 1), optional(in, 2), a.number("eps", 1e-5))};
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
         return {group_norm(in[0], a.integer("num_groups"), optional(in, 1), optional(in, 2),
                            a.number("eps", 1e-5))};
       }},
      {"linear",
       2,
       3,
       {},
       [](In in, const Attrs&) -> Out { return {linear(in[0], in[1], optional(in, 2))}; }},
      {"scaled_dot_product_attention",
       3,
       4,
       {},
       [](In in, const Attrs&) -> Out {
         return {scaled_dot_product_attention(in[0], in[1], in[2], optional(in, 3))};
       }},
      {"conv2d", 2, 3, {"stride", "padding", "dilation", "groups"}, call_conv2d},
      {"conv_transpose2d",
       2,
       3,
       {"stride", "padding", "output_padding", "dilation", "groups"},
       call_conv_transpose2d},
      {"max_pool2d", 1, 1, {"kernel_size", "stride", "padding"}, pooling<max_pool2d>},
      {"avg_pool2d", 1, 1, {"kernel_size", "stride", "padding"}, pooling<avg_pool2d>},
      {"interpolate", 1, 1, {"size", "mode", "align_corners", "antialias"}, call_interpolate},
      {"slice",
       1,
       1,
       {"index"},
       [](In in, const Attrs& a) -> Out {
         return {get_index(in[0], parse_index(a.text("index")))};
       }},
      {"reshape",
       1,
       1,
       {"shape"},
       [](In in, const Attrs& a) -> Out { return {reshape(in[0], a.dims("shape"))}; }},
      {"transpose",
       1,
       1,
       {"axes"},
       [](In in, const Attrs& a) -> Out {
         return {a.has("axes") ? transpose(in[0], a.dims("axes")) : transpose(in[0])};
       }},
      {"swapaxes",
       1,
       1,
       {"axis1", "axis2"},
       [](In in, const Attrs& a) -> Out {
         return {swapaxes(in[0], checked_axis("axis1", a.integer("axis1")),
                          checked_axis("axis2", a.integer("axis2")))};
       }},
      {"expand_dims",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {expand_dims(in[0], axis_of(a, 0))}; }},
      {"squeeze",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {squeeze(in[0], axes_of(a))}; }},
      {"broadcast_to",
       1,
       1,
       {"shape"},
       [](In in, const Attrs& a) -> Out { return {broadcast_to(in[0], a.dims("shape"))}; }},
      {"flip",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {flip(in[0], axes_of(a))}; }},
      {"concatenate",
       1,
       kAnyNumber,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {concatenate(in, axis_of(a, 0))}; }},
      {"stack",
       1,
       kAnyNumber,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {stack(in, axis_of(a, 0))}; }},
      {"split", 1, 1, {"indices", "sections", "axis"}, call_split},
      {"pad", 1, 1, {"pad_width", "constant_values"}, call_pad},
      {"tile",
       1,
       1,
       {"reps"},
       [](In in, const Attrs& a) -> Out { return {tile(in[0], a.dims("reps"))}; }},
      {"repeat", 1, 1, {"repeats", "axis"}, call_repeat},
      {"tril",
       1,
       1,
       {"k"},
       [](In in, const Attrs& a) -> Out { return {tril(in[0], a.integer("k", 0))}; }},
      {"triu",
       1,
       1,
       {"k"},
       [](In in, const Attrs& a) -> Out { return {triu(in[0], a.integer("k", 0))}; }},
      {"take", 2, 2, {"axis"}, call_take},
      {"take_along_axis",
       2,
       2,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {take_along_axis(in[0], in[1], axis_of(a, 0))}; }},
  };
  return table;
}

const Binding* find_binding(std::string_view name) {
  const auto& table = bindings();
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Binding& b) { return b.name == name; });
  return row == table.end() ? nullptr : &*row;
}

// The elementwise operators that need no binding, nullptr for any other name.
const OpInfo* find_elementwise(std::string_view name) {
  for (const OpInfo& row : op_table())
    if (row.promotion != Promotion::none && row.name == name) return &row;
  return nullptr;
}

void check_count(std::string_view name, std::size_t count, int least, int most) {
  if (count >= static_cast<std::size_t>(least) && count <= static_cast<std::size_t>(most)) return;
  if (least == most) fail(name, "got ", count, " tensors, need ", least);
  fail(name, "got ", count, " tensors, need ", least,
       most == kAnyNumber ? " or more" : " to " + std::to_string(most));
}

}  // namespace

std::vector<Tensor> call(std::string_view name, const std::vector<Tensor>& inputs,
                         const Attrs& attrs) {
  const Binding* binding = find_binding(name);
  const OpInfo* row = binding ? nullptr : find_elementwise(name);
  if (!binding && !row)
    fail("call", "there is no operator \"", name, '"', did_you_mean(name, operator_names()));

  const std::vector<std::string_view> known =
      binding ? binding->attrs : std::vector<std::string_view>{};
  for (const auto& [attr, value] : attrs.entries())
    if (std::find(known.begin(), known.end(), attr) == known.end())
      fail(name, "does not take the attribute \"", attr, '"', did_you_mean(attr, known));
  for (const Tensor& x : inputs)
    if (!x.defined())
      fail(name, "got an undefined tensor (default constructed): give it a value first");

  if (binding) {
    check_count(name, inputs.size(), binding->min_inputs, binding->max_inputs);
    return binding->invoke(inputs, attrs);
  }
  check_count(name, inputs.size(), row->min_inputs, row->max_inputs);
  return {elementwise(row->op, inputs)};
}

std::vector<std::string_view> operator_names() {
  std::vector<std::string_view> names;
  for (const Binding& binding : bindings()) names.push_back(binding.name);
  for (const OpInfo& row : op_table())
    if (row.promotion != Promotion::none && !find_binding(row.name)) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tensor
