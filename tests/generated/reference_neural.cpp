// References of softmax, normalisation and attention. The bounds follow the formulas: u is one
// rounding of the type that the library computes in (float for the 16-bit types), v one rounding of
// the type it stores.
#include <algorithm>
#include <cmath>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

using Line = std::vector<Exact>;

Line line_of(const Array& x, Index index, int axis) {
  Line line;
  for (std::int64_t k = 0; k < x.shape[axis]; ++k) {
    index[static_cast<std::size_t>(axis)] = k;
    line.push_back(x.at(index));
  }
  return line;
}

Exact greatest(const Line& line) {
  Exact result = line[0];
  for (const Exact value : line)
    if (std::isnan(value) || value > result) result = value;
  return result;
}

Results softmax_by(const Arrays& in, const Attrs& attrs, bool logarithm) {
  const Array& x = in[0];
  const int axis = axis_of(attrs, x.rank(), -1);
  const Exact u = unit_roundoff(compute_type(x.dtype));
  Expected result(x.shape, x.dtype);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Line line = line_of(x, unravel(i, x.shape), axis);
    const Exact top = greatest(line), n = static_cast<Exact>(line.size());
    Exact sum = 0;
    for (const Exact value : line) sum += std::exp(value - top);
    const Exact off = x.values[i] - top;
    result.values[i] = logarithm ? off - std::log(sum) : std::exp(off) / sum;
    // The difference errs by u |off|, which exp makes relative; exp by 2 u, the sum by n u, the
    // quotient by u. The logarithm of the sum errs by (n + 2) u and 2 u of itself, the last
    // difference by u of the result.
    Exact slack =
        logarithm ? u * (std::fabs(off) + n + 2 + 2 * std::log(sum) + std::fabs(result.values[i]))
                  : u * (std::fabs(off) + n + 5) * result.values[i];
    if (!std::isfinite(slack)) slack = 0;
    result.slack.push_back(slack + ulp(x.dtype, result.values[i]));
    // Where exp underflows in float, the result is 0 or subnormal.
    if (!logarithm) result.slack.back() += 2 * ulp(compute_type(x.dtype), 0);
  }
  return {result};
}

struct Moments {
  Exact mean = 0, deviation = 0;  // of the normalisation: sqrt(variance + eps)
  Exact mean_error = 0;           // of n additions: n u mean|x|
};

Moments moments(const Line& line, Exact eps, Exact u) {
  Moments result;
  const auto n = static_cast<Exact>(line.size());
  Exact magnitudes = 0, variance = 0;
  for (const Exact value : line) result.mean += value / n, magnitudes += std::fabs(value) / n;
  for (const Exact value : line) variance += (value - result.mean) * (value - result.mean) / n;
  result.deviation = std::sqrt(variance + eps);
  result.mean_error = n * u * magnitudes;
  return result;
}

// One normalised element, scaled and shifted, into the next place of `result`.
void push_normalised(Expected& result, std::size_t i, Exact x, const Moments& m, Exact n,
                     Exact weight, Exact bias, Exact v) {
  const Exact u = unit_roundoff(compute_type(result.dtype));
  const Exact d = m.mean_error / m.deviation, z = (x - m.mean) / m.deviation;
  result.values[i] = z * weight + bias;
  // The centre is off by d deviations, the variance by d^2 + (n + 4) u relatively, its root by half
  // of that; then the difference, quotient, product and sum, stored up to four times.
  const Exact relative = (d * d + (n + 4) * u) / 2 + 3 * u;
  result.slack.push_back(
      std::fabs(weight) * (d + u * std::fabs(m.mean) / m.deviation + std::fabs(z) * relative) +
      4 * v * (std::fabs(z * weight) + std::fabs(bias)) + ulp(result.dtype, result.values[i]));
}

Results layer_norm(const Arrays& in, const Attrs& attrs) {
  const Array& x = in[0];
  const Exact u = unit_roundoff(compute_type(x.dtype));
  Expected result(x.shape, x.dtype);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Index index = unravel(i, x.shape);
    const Line line = line_of(x, index, x.rank() - 1);
    const Index feature{index.back()};
    push_normalised(result, i, x.values[i],
                    moments(line, static_cast<Exact>(attrs.number("eps")), u),
                    static_cast<Exact>(line.size()), in.size() > 1 ? in[1].at(feature) : 1,
                    in.size() > 2 ? in[2].at(feature) : 0, u);
  }
  return {result};
}

Results batch_norm(const Arrays& in, const Attrs& attrs) {
  const Array& x = in[0];
  const Exact v = unit_roundoff(x.dtype);
  Expected result(x.shape, x.dtype);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Index channel{unravel(i, x.shape)[1]};
    const Exact weight = in[1].at(channel), bias = in[2].at(channel), mean = in[3].at(channel);
    const Exact scale =
        weight / std::sqrt(in[4].at(channel) + static_cast<Exact>(attrs.number("eps")));
    result.values[i] = (x.values[i] - mean) * scale + bias;
    // Scale (four roundings), difference, product and sum may each be stored, in whichever order
    // they are taken.
    result.slack.push_back(
        7 * v * ((std::fabs(x.values[i]) + std::fabs(mean)) * std::fabs(scale) + std::fabs(bias)) +
        ulp(x.dtype, result.values[i]));
  }
  return {result};
}

Results group_norm(const Arrays& in, const Attrs& attrs) {
  const Array& x = in[0];
  const Exact u = unit_roundoff(compute_type(x.dtype));
  Expected result(x.shape, x.dtype);
  // The elements of a group are neighbours: whole channels of one image.
  const std::size_t n =
      x.size() / static_cast<std::size_t>(x.shape[0] * attrs.integer("num_groups"));
  for (std::size_t begin = 0; begin < x.size(); begin += n) {
    const auto first = x.values.begin() + static_cast<std::ptrdiff_t>(begin);
    const Moments m = moments(Line(first, first + static_cast<std::ptrdiff_t>(n)),
                              static_cast<Exact>(attrs.number("eps")), u);
    for (std::size_t i = begin; i < begin + n; ++i) {
      const Index channel{unravel(i, x.shape)[1]};
      push_normalised(result, i, x.values[i], m, static_cast<Exact>(n),
                      in.size() > 1 ? in[1].at(channel) : 1, in.size() > 2 ? in[2].at(channel) : 0,
                      unit_roundoff(x.dtype));
    }
  }
  return {result};
}

Exact mask_at(const Array& mask, const Index& where) {
  if (mask.dtype != boolean) return mask.at(where);
  return mask.at(where) != 0 ? 0 : -HUGE_VALL;
}

Results attention(const Arrays& in, const Attrs&) {
  const Array &q = in[0], &k = in[1], &values = in[2];
  const int tokens = q.rank() - 2;
  const auto t = static_cast<std::size_t>(tokens);
  const std::int64_t depth = q.shape[tokens + 1], keys = k.shape[tokens];
  const Exact u = unit_roundoff(compute_type(q.dtype)), v = unit_roundoff(q.dtype);
  Shape shape = q.shape;
  shape[tokens + 1] = values.shape[tokens + 1];
  Expected result(shape, q.dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index out = unravel(i, shape);
    Line scores;
    Exact score_error = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      Index at_q = out, at_k = out, at_mask = out;
      Exact score = 0, magnitudes = 0;
      at_k[t] = at_mask[t + 1] = j;
      for (std::int64_t d = 0; d < depth; ++d) {
        at_q[t + 1] = at_k[t + 1] = d;
        score += q.at(at_q) * k.at(at_k);
        magnitudes += std::fabs(q.at(at_q) * k.at(at_k));
      }
      score /= std::sqrt(static_cast<Exact>(depth)),
          magnitudes /= std::sqrt(static_cast<Exact>(depth));
      const Exact mask = in.size() > 3 ? mask_at(in[3], at_mask) : 0;
      // A product of `depth` terms, scaled and masked, each result stored.
      if (std::isfinite(mask))
        score_error = std::max(score_error, static_cast<Exact>(depth) * u * magnitudes +
                                                4 * v * (magnitudes + std::fabs(mask)));
      scores.push_back(score + mask);
    }
    const Exact top = greatest(scores);
    Exact sum = 0, weighted = 0, magnitudes = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      Index at_v = out;
      at_v[t] = j;
      const Exact weight = std::exp(scores[static_cast<std::size_t>(j)] - top);
      sum += weight;
      weighted += weight * values.at(at_v);
      magnitudes += weight * std::fabs(values.at(at_v));
    }
    result.values[i] = weighted / sum;
    // The scores' error is relative in each weight and in their sum; softmax and the last product
    // add 2 keys u.
    const Exact relative = 2 * score_error + (2 * static_cast<Exact>(keys) + 10) * u + 3 * v;
    const Exact slack = relative * magnitudes / sum + 2 * ulp(q.dtype, 0);
    result.slack.push_back((std::isfinite(slack) ? slack : 0) + ulp(q.dtype, result.values[i]));
  }
  return {result};
}

}  // namespace

void add_neural_references(References& table) {
  table["softmax"] = [](const Arrays& in, const Attrs& attrs) {
    return softmax_by(in, attrs, false);
  };
  table["log_softmax"] = [](const Arrays& in, const Attrs& attrs) {
    return softmax_by(in, attrs, true);
  };
  table["layer_norm"] = layer_norm;
  table["batch_norm"] = batch_norm;
  table["group_norm"] = group_norm;
  table["scaled_dot_product_attention"] = attention;
}

}  // namespace tensor::generated
