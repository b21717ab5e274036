// Bindings of NumPy's names.
#include <algorithm>

#include "src/ops/binding.h"
#include "src/ops/op.h"

namespace tensor {
namespace {

template <Tensor (*f)(const Tensor&, const Axes&, bool)>
Out reduction(In in, const Attrs& attrs) {
  return {f(in[0], reduced_axes(attrs), attrs.flag("keepdims", false))};
}
template <Tensor (*f)(const Tensor&, const Axes&, bool, double)>
Out deviation(In in, const Attrs& attrs) {
  return {f(in[0], reduced_axes(attrs), attrs.flag("keepdims", false), attrs.number("ddof", 0))};
}
// As numpy.cumsum, repeat and take: without an axis, of the flattened tensor.
Tensor flat_without_axis(const Tensor& x, const Attrs& attrs) {
  return attrs.has("axis") ? x : reshape(x, {-1});
}

Out call_repeat(In in, const Attrs& attrs) {
  return {repeat(flat_without_axis(in[0], attrs), attrs.integer("repeats"), one_axis(attrs, 0))};
}

Out call_take(In in, const Attrs& attrs) {
  return {take(flat_without_axis(in[0], attrs), in[1], one_axis(attrs, 0))};
}

Out call_topk(In in, const Attrs& attrs) {
  auto [values, indices] =
      topk(in[0], attrs.integer("k"), one_axis(attrs, -1), attrs.flag("largest", true));
  return {values, indices};
}

Out call_split(In in, const Attrs& attrs) {
  if (attrs.has("sections")) return split(in[0], attrs.integer("sections"), one_axis(attrs, 0));
  return split(in[0], attrs.ints("indices"), one_axis(attrs, 0));
}

PadMode pad_mode_of(const std::string& mode) {
  if (mode == "edge") return PadMode::edge;
  if (mode == "reflect") return PadMode::reflect;
  if (mode == "symmetric") return PadMode::symmetric;
  if (mode == "wrap") return PadMode::wrap;
  fail("pad", "got the mode \"", mode, "\", need constant, edge, reflect, symmetric or wrap");
}

Out call_pad(In in, const Attrs& attrs) {
  const Ints flat = attrs.ints("pad_width");
  if (flat.size() % 2 != 0)
    fail("pad", "pad_width has ", flat.size(), " numbers, need before and after for every axis");
  std::vector<std::pair<std::int64_t, std::int64_t>> width;
  for (std::size_t i = 0; i < flat.size(); i += 2) width.emplace_back(flat[i], flat[i + 1]);
  const std::string mode = attrs.text("mode", "constant");
  if (mode != "constant") return {pad(in[0], width, pad_mode_of(mode))};
  return {pad(in[0], width, attrs.number("constant_values", 0))};
}

template <Tensor (*f)(const Tensor&, int)>
Out call_scan(In in, const Attrs& attrs) {
  return {f(flat_without_axis(in[0], attrs), one_axis(attrs, 0))};
}

template <Tensor (*f)(const Tensor&, std::int64_t, int, int)>
Out call_diagonal(In in, const Attrs& attrs) {
  return {f(in[0], attrs.integer("offset", 0), named_axis(attrs, "axis1", 0),
            named_axis(attrs, "axis2", 1))};
}

template <Tensor (*f)(const Tensor&, const Tensor&, int)>
Out call_pair_along_axis(In in, const Attrs& attrs) {
  return {f(in[0], in[1], one_axis(attrs, -1))};
}

Out call_nan_to_num(In in, const Attrs& attrs) {
  const auto number = [&](std::string_view name) {
    return attrs.has(name) ? std::optional(attrs.number(name)) : std::nullopt;
  };
  return {nan_to_num(in[0], attrs.number("nan", 0), number("posinf"), number("neginf"))};
}

Out call_vector_norm(In in, const Attrs& attrs) {
  return {vector_norm(in[0], attrs.number("ord", 2), reduced_axes(attrs),
                      attrs.flag("keepdims", false))};
}

Out call_quantile(In in, const Attrs& attrs) {
  return {quantile(in[0], in[1], reduced_axes(attrs), attrs.flag("keepdims", false))};
}

Out call_diff(In in, const Attrs& attrs) {
  return {diff(in[0], attrs.integer("n", 1), one_axis(attrs, -1))};
}

Out call_searchsorted(In in, const Attrs& attrs) {
  const std::string side = attrs.text("side", "left");
  if (side != "left" && side != "right")
    fail("searchsorted", "got the side \"", side, "\", need left or right");
  return {searchsorted(in[0], in[1], side == "right")};
}

Out call_histogram(In in, const Attrs& attrs) {
  std::optional<std::pair<double, double>> range;
  if (in.size() != 1 && in.size() != 3)
    fail("histogram", "got ", in.size(), " tensors, need 1, or 3 with the ends of the range");
  if (in.size() == 3) range = {in[1].item(), in[2].item()};
  auto [counts, edges] = histogram(in[0], attrs.integer("bins", 10), range);
  return {counts, edges};
}

Out call_unique(In in, const Attrs&) { return {unique(in[0])}; }

Out call_tensordot(In in, const Attrs& attrs) {
  if (attrs.has("axes_a"))
    return {tensordot(in[0], in[1], attrs.dims("axes_a"), attrs.dims("axes_b"))};
  const std::int64_t axes = attrs.integer("axes", 2);
  return {
      tensordot(in[0], in[1], static_cast<int>(std::clamp<std::int64_t>(axes, -1, kMaxRank + 1)))};
}

Out call_moveaxis(In in, const Attrs& attrs) {
  return {moveaxis(in[0], attrs.dims("source"), attrs.dims("destination"))};
}

Out call_roll(In in, const Attrs& attrs) {
  if (!attrs.has("axis")) return {roll(in[0], attrs.integer("shift"))};
  return {roll(in[0], attrs.dims("shift"), attrs.dims("axis"))};
}

Out call_diag(In in, const Attrs& attrs) { return {diag(in[0], attrs.integer("k", 0))}; }

Out call_meshgrid(In in, const Attrs& attrs) { return meshgrid(in, attrs.text("indexing", "xy")); }

Out call_put_along_axis(In in, const Attrs& attrs) {
  return {put_along_axis(in[0], in[1], in[2], one_axis(attrs, 0))};
}

Out call_gather_nd(In in, const Attrs& attrs) {
  const std::int64_t batch = attrs.integer("batch_dims", 0);
  return {
      gather_nd(in[0], in[1], static_cast<int>(std::clamp<std::int64_t>(batch, -1, kMaxRank + 1)))};
}

Out call_scatter_nd(In in, const Attrs&) { return {scatter_nd(in[0], in[1], in[2])}; }

}  // namespace

// Attributes in the order of NumPy's signatures.
std::vector<Binding> array_bindings() {
  return {
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
      {"sort", 1, 1, {"axis"}, call_along_axis<sort>},
      {"argsort", 1, 1, {"axis"}, call_along_axis<argsort>},
      {"topk", 1, 1, {"k", "axis", "largest"}, call_topk},
      {"matmul", 2, 2, {}, [](In in, const Attrs&) -> Out { return {matmul(in[0], in[1])}; }},
      {"dot", 2, 2, {}, [](In in, const Attrs&) -> Out { return {dot(in[0], in[1])}; }},
      {"einsum",
       1,
       kAnyNumber,
       {"equation"},
       [](In in, const Attrs& a) -> Out { return {einsum(a.text("equation"), in)}; }},
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
         return {swapaxes(in[0], named_axis(a, "axis1"), named_axis(a, "axis2"))};
       }},
      {"expand_dims",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {expand_dims(in[0], one_axis(a, 0))}; }},
      {"squeeze",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {squeeze(in[0], reduced_axes(a))}; }},
      {"broadcast_to",
       1,
       1,
       {"shape"},
       [](In in, const Attrs& a) -> Out { return {broadcast_to(in[0], a.dims("shape"))}; }},
      {"flip",
       1,
       1,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {flip(in[0], reduced_axes(a))}; }},
      {"concatenate",
       1,
       kAnyNumber,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {concatenate(in, one_axis(a, 0))}; }},
      {"stack",
       1,
       kAnyNumber,
       {"axis"},
       [](In in, const Attrs& a) -> Out { return {stack(in, one_axis(a, 0))}; }},
      {"split", 1, 1, {"indices", "sections", "axis"}, call_split},
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
       [](In in, const Attrs& a) -> Out {
         return {take_along_axis(in[0], in[1], one_axis(a, 0))};
       }},
      {"cumsum", 1, 1, {"axis"}, call_scan<cumsum>},
      {"cumprod", 1, 1, {"axis"}, call_scan<cumprod>},
      {"diff", 1, 1, {"n", "axis"}, call_diff},
      {"nan_to_num", 1, 1, {"nan", "posinf", "neginf"}, call_nan_to_num},
      {"count_nonzero", 1, 1, {"axis", "keepdims"}, reduction<count_nonzero>},
      {"logsumexp", 1, 1, {"axis", "keepdims"}, reduction<logsumexp>},
      {"vector_norm", 1, 1, {"ord", "axis", "keepdims"}, call_vector_norm},
      {"median", 1, 1, {"axis", "keepdims"}, reduction<median>},
      {"quantile", 2, 2, {"axis", "keepdims"}, call_quantile},
      {"searchsorted", 2, 2, {"side"}, call_searchsorted},
      {"histogram", 1, 3, {"bins"}, call_histogram},
      {"nonzero", 1, 1, {}, [](In in, const Attrs&) -> Out { return nonzero(in[0]); }},
      {"unique", 1, 1, {}, call_unique},
      {"outer", 2, 2, {}, [](In in, const Attrs&) -> Out { return {outer(in[0], in[1])}; }},
      {"tensordot", 2, 2, {"axes", "axes_a", "axes_b"}, call_tensordot},
      {"cross", 2, 2, {"axis"}, call_pair_along_axis<cross>},
      {"pad", 1, 1, {"pad_width", "mode", "constant_values"}, call_pad},
      {"moveaxis", 1, 1, {"source", "destination"}, call_moveaxis},
      {"ravel", 1, 1, {}, [](In in, const Attrs&) -> Out { return {ravel(in[0])}; }},
      {"roll", 1, 1, {"shift", "axis"}, call_roll},
      {"meshgrid", 1, kAnyNumber, {"indexing"}, call_meshgrid},
      {"diagonal", 1, 1, {"offset", "axis1", "axis2"}, call_diagonal<diagonal>},
      {"trace", 1, 1, {"offset", "axis1", "axis2"}, call_diagonal<trace>},
      {"diag", 1, 1, {"k"}, call_diag},
      {"put_along_axis", 3, 3, {"axis"}, call_put_along_axis},
      {"gather_nd", 2, 2, {"batch_dims"}, call_gather_nd},
      {"scatter_nd", 3, 3, {}, call_scatter_nd},
  };
}

}  // namespace tensor
