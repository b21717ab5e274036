// Normalizations, with the statistics of training or of their own.
#include <algorithm>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// In training mode by the statistics of the batch, of which the running ones take a share: so
// exporters write weights that are standardized.
Results batch_normalization(const Call& c) {
  const double eps = c.number("epsilon", 1e-5F);
  if (c.integer("training_mode", 0) == 0) return {batch_norm(c[0], c[3], c[4], c[1], c[2], eps)};
  Dims others;
  for (int axis = 0; axis < c[0].rank(); ++axis)
    if (axis != 1) others.push_back(axis);
  const Tensor middle = mean(c[0], others), spread = var(c[0], others);
  Results results{batch_norm(c[0], middle, spread, c[1], c[2], eps), {}, {}};
  const double kept = c.number("momentum", 0.9F);
  const auto running = [&](int output, const Tensor& before, const Tensor& now) {
    if (c.gives(output))
      results[static_cast<std::size_t>(output)] = before * kept + now * (1 - kept);
  };
  running(1, c[3], middle);
  running(2, c[4], spread);
  return results;
}
std::string refuse_batch_norm(const Node& n) {
  if (n.opset < 14 && n.outputs.size() > 1) return "output 1, for training";
  if (std::string why = refuse_unless(n, "spatial", 1); !why.empty()) return why;
  return n.opset < 7 && !n.find("is_test") ? "is_test=0" : refuse_unless(n, "is_test", 1);
}

Results instance_normalization(const Call& c) {
  return {group_norm(c[0], c[0].shape(1), c[1], c[2], c.number("epsilon", 1e-5F))};
}

// Before opset 21 scale and bias are one a group.
Results group_normalization(const Call& c) {
  const std::int64_t groups = c.attribute("num_groups").integer;
  const Tensor& x = c[0];
  const auto spread = [&](const Tensor& v) {
    const bool is_by_group = c.opset() < 21 && groups > 0 && v.size() == groups;
    return is_by_group ? repeat(v, x.shape(1) / groups, 0) : v;
  };
  return {group_norm(x, groups, spread(c[1]), spread(c[2]), c.number("epsilon", 1e-5F))};
}

// Over all axes from `axis` on, which are one for layer_norm.
Results layer_normalization(const Call& c) {
  const Tensor& x = c[0];
  const int axis = normalize_axis(c.integer("axis", -1), x.rank(), "axis");
  const double eps = c.number("epsilon", 1e-5F);
  Shape flat, inner, kept = x.shape();
  std::int64_t rest = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < axis) {
      flat.push_back(x.shape(i));
      continue;
    }
    rest *= x.shape(i);
    inner.push_back(x.shape(i)), kept[i] = 1;
  }
  flat.push_back(rest);
  const auto factors = [&](int input) {
    if (!c.has(input)) return Tensor();
    return reshape(broadcast_to(c[input], inner), {rest});
  };
  const Tensor rows = reshape(x, flat);
  Results results{reshape(layer_norm(rows, factors(1), factors(2), eps), x.shape()), {}, {}};
  if (c.gives(1)) results[1] = reshape(mean(rows, -1), kept);
  if (c.gives(2)) results[2] = reshape(rsqrt(var(rows, -1) + eps), kept);
  return results;
}

Results rms_normalization(const Call& c) {
  const Tensor& x = c[0];
  Dims axes;
  for (int i = normalize_axis(c.integer("axis", -1), x.rank(), "axis"); i < x.rank(); ++i)
    axes.push_back(i);
  const Tensor squares = mean(square(x), axes, true);
  return {x * rsqrt(squares + c.number("epsilon", 1e-5F)) * c[1]};
}

Results lp_normalization(const Call& c) {
  const int axis = normalize_axis(c.integer("axis", -1), c[0].rank(), "axis");
  const Tensor& x = c[0];
  const Tensor length =
      c.integer("p", 2) == 1 ? sum(abs(x), axis, true) : sqrt(sum(square(x), axis, true));
  return {where(length == 0, x * 0, x / length)};
}
std::string refuse_lp(const Node& n) {
  const Attribute* p = n.find("p");
  return !p || p->integer == 1 ? "" : refuse_unless(n, "p", 2);
}

// Squares are summed over `size` neighbouring channels.
Results local_response(const Call& c) {
  const Tensor& x = c[0];
  const std::int64_t size = c.attribute("size").integer, channels = x.shape(1);
  if (size < 1 || size > 2 * channels + 1) fail("lrn", "got a size of ", size);
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(x.rank()));
  widths[1] = {(size - 1) / 2, size / 2};
  const Tensor squares = pad(square(x), widths);
  Tensor total = sliced(squares, 1, 0, channels);
  for (std::int64_t i = 1; i < size; ++i) total = total + sliced(squares, 1, i, channels);
  const double alpha = c.number("alpha", 1e-4F) / static_cast<double>(size);
  return {x / power(total * alpha + c.number("bias", 1), c.number("beta", 0.75))};
}

Results mean_variance(const Call& c) {
  const Axes axes(Dims(c.ints("axes", {0, 2, 3})));
  const Tensor& x = c[0];
  const Tensor rest = x - mean(x, axes, true);
  return {rest / (sqrt(mean(square(rest), axes, true)) + 1e-9)};
}

constexpr std::string_view kBatch =
    "epsilon:f momentum:f spatial:i is_test:i training_mode:i consumed_inputs:I";

constexpr Operator kNormRows[] = {
    {"BatchNormalization", 1, 5, 5, 3, kBatch, batch_normalization, refuse_batch_norm},
    {"InstanceNormalization", 1, 3, 3, 1, "epsilon:f consumed_inputs:I", instance_normalization},
    {"GroupNormalization", 18, 3, 3, 1, "epsilon:f num_groups:i stash_type:i", group_normalization},
    {"LayerNormalization", 17, 2, 3, 3, "axis:i epsilon:f stash_type:i", layer_normalization,
     [](const Node& n) { return refuse_unless(n, "stash_type", 1); }},
    {"RMSNormalization", 23, 2, 2, 1, "axis:i epsilon:f stash_type:i", rms_normalization,
     [](const Node& n) { return refuse_unless(n, "stash_type", 1); }},
    {"LpNormalization", 1, 1, 1, 1, "axis:i p:i", lp_normalization, refuse_lp},
    {"LRN", 1, 1, 1, 1, "alpha:f beta:f bias:f size:i", local_response},
    {"MeanVarianceNormalization", 9, 1, 1, 1, "axes:I", mean_variance},
};

}  // namespace

std::span<const Operator> norm_operators() { return kNormRows; }

}  // namespace tensor::onnx
