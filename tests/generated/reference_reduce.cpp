// References of reductions, scans and sorting.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

using Group = std::vector<Exact>;

// The elements that each element of the result is made of, in row-major order, and the result's
// shape.
std::pair<std::vector<Group>, Shape> groups(const Array& x, const Attrs& attrs) {
  const std::vector<int> axes = axes_of(attrs, x.rank());
  Shape kept = x.shape, dropped;
  for (const int axis : axes) kept[axis] = 1;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!std::binary_search(axes.begin(), axes.end(), axis)) dropped.push_back(x.shape[axis]);
  std::vector<Group> result(static_cast<std::size_t>(num_elements(kept)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    Index index = unravel(i, x.shape);
    for (const int axis : axes) index[static_cast<std::size_t>(axis)] = 0;
    result[ravel(index, kept)].push_back(x.values[i]);
  }
  return {result, attrs.flag("keepdims", false) ? kept : dropped};
}

enum class Type { same, whole_sum, real, boolean, position };

DType result_type(Type type, DType dtype) {
  switch (type) {
    case Type::whole_sum:
      return is_floating(dtype) ? dtype : i64;
    case Type::real:
      return is_floating(dtype) ? dtype : f64;
    case Type::boolean:
      return tensor::boolean;
    case Type::position:
      return i64;
    default:
      return dtype;
  }
}

using Value = Exact (*)(const Group&, const Attrs&);
using Slack = Exact (*)(const Group&, Exact value,
                        Exact u);  // u: one rounding of the type it is computed in

Reference reduction(Type type, Value value, Slack slack = nullptr) {
  return [=](const Arrays& in, const Attrs& attrs) -> Results {
    const auto [elements, shape] = groups(in[0], attrs);
    Expected result(shape, result_type(type, in[0].dtype));
    const bool whole = std::all_of(in[0].values.begin(), in[0].values.end(),
                                   [](Exact x) { return x == std::trunc(x); });
    for (std::size_t i = 0; i < result.size(); ++i) {
      result.values[i] = value(elements[i], attrs);
      const Exact u = unit_roundoff(compute_type(result.dtype));
      // Sums of small whole numbers are exact in any order and are compared so.
      const bool exact = !slack || !is_floating(result.dtype) || (whole && type == Type::whole_sum);
      result.slack.push_back(exact ? 0
                                   : slack(elements[i], result.values[i], u) +
                                         ulp(result.dtype, result.values[i]));
    }
    return {result};
  };
}

Exact total(const Group& x, const Attrs&) { return std::accumulate(x.begin(), x.end(), Exact(0)); }
Exact mean(const Group& x, const Attrs& attrs) {
  return total(x, attrs) / static_cast<Exact>(x.size());
}

Exact variance(const Group& x, const Attrs& attrs) {
  const Exact centre = mean(x, {});
  Exact sum = 0;
  for (const Exact value : x) sum += (value - centre) * (value - centre);
  return sum / (static_cast<Exact>(x.size()) - static_cast<Exact>(attrs.number("ddof", 0)));
}
Exact deviation(const Group& x, const Attrs& attrs) { return std::sqrt(variance(x, attrs)); }

Exact product(const Group& x, const Attrs&) {
  return std::accumulate(x.begin(), x.end(), Exact(1), [](Exact a, Exact b) { return a * b; });
}

// n additions in any order err by at most n u times the sum of the magnitudes (Higham, 2002,
// section 4.2).
Exact sum_slack(const Group& x, Exact, Exact u) {
  Exact magnitudes = 0;
  for (const Exact value : x) magnitudes += std::fabs(value);
  return static_cast<Exact>(x.size()) * u * magnitudes;
}
Exact mean_slack(const Group& x, Exact value, Exact u) {
  return x.empty() ? 0 : sum_slack(x, value, u) / static_cast<Exact>(x.size());
}
Exact product_slack(const Group& x, Exact value, Exact u) {
  return static_cast<Exact>(x.size()) * u * std::fabs(value);
}

// The mean is off by d <= n u mean|x|, which adds d^2 to the variance; the differences, squares and
// n additions add (n + 4) u relatively.
Exact variance_slack(const Group& x, Exact value, Exact u) {
  const Exact off = mean_slack(x, value, u);
  return (static_cast<Exact>(x.size()) + 4) * u * value + off * off;
}
Exact deviation_slack(const Group& x, Exact value, Exact u) {
  return value > 0 ? variance_slack(x, value * value, u) / value : mean_slack(x, value, u);
}

Exact largest(const Group& x, const Attrs&) {
  for (const Exact value : x)
    if (std::isnan(value)) return value;
  return *std::max_element(x.begin(), x.end());
}
Exact least(const Group& x, const Attrs&) {
  for (const Exact value : x)
    if (std::isnan(value)) return value;
  return *std::min_element(x.begin(), x.end());
}
Exact position(const Group& x, Exact wanted) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] == wanted || (std::isnan(x[i]) && std::isnan(wanted))) return static_cast<Exact>(i);
  return -1;
}

// ---- Along one axis.

// Calls body(line, places): the elements along the axis through each other index, and their flat
// positions.
template <class Body>
void for_each_line(const Array& x, int axis, Body body) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    Index index = unravel(i, x.shape);
    if (index[static_cast<std::size_t>(axis)] != 0) continue;
    Group line;
    for (std::int64_t k = 0; k < x.shape[axis]; ++k) {
      index[static_cast<std::size_t>(axis)] = k;
      line.push_back(x.at(index));
    }
    body(line, index);
  }
}

Results cumsum(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), -1);
  Expected result(in[0].shape, result_type(Type::whole_sum, in[0].dtype));
  const Exact u = unit_roundoff(compute_type(result.dtype));
  result.slack.assign(result.size(), 0);
  for_each_line(in[0], axis, [&](const Group& line, Index index) {
    Exact sum = 0, magnitudes = 0;
    const bool whole =
        std::all_of(line.begin(), line.end(), [](Exact x) { return x == std::trunc(x); });
    for (std::size_t k = 0; k < line.size(); ++k) {
      sum += line[k];
      magnitudes += std::fabs(line[k]);
      index[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(k);
      const std::size_t at = ravel(index, result.shape);
      result.values[at] = sum;
      if (!whole)
        result.slack[at] = static_cast<Exact>(k) * u * magnitudes + ulp(result.dtype, sum);
    }
  });
  return {result};
}

Results cumprod(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), -1);
  Expected result(in[0].shape, result_type(Type::whole_sum, in[0].dtype));
  const Exact u = unit_roundoff(compute_type(result.dtype));
  result.slack.assign(result.size(), 0);
  for_each_line(in[0], axis, [&](const Group& line, Index index) {
    Exact product = 1;
    std::uint64_t whole = 1;  // modulo 2^64
    for (std::size_t k = 0; k < line.size(); ++k) {
      product *= line[k];
      if (!is_floating(result.dtype)) {
        whole *= static_cast<std::uint64_t>(static_cast<std::int64_t>(line[k]));
        product = static_cast<Exact>(static_cast<std::int64_t>(whole));
      }
      index[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(k);
      const std::size_t at = ravel(index, result.shape);
      result.values[at] = product;
      if (is_floating(result.dtype))
        result.slack[at] =
            static_cast<Exact>(k) * u * std::fabs(product) + ulp(result.dtype, product);
    }
  });
  return {result};
}

// The order of the elements: ascending with NaN last, or descending with NaN first; equal ones as
// they came.
std::vector<std::size_t> order(const Group& line, bool descending) {
  std::vector<std::size_t> places(line.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto before = [&](Exact a, Exact b) { return !std::isnan(a) && (std::isnan(b) || a < b); };
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return descending ? before(line[b], line[a]) : before(line[a], line[b]);
  });
  return places;
}

// {values, positions} of the first `count` along the axis.
Results sorted(const Array& x, int axis, std::int64_t count, bool descending) {
  Shape shape = x.shape;
  shape[axis] = count;
  Expected values(shape, x.dtype), positions(shape, i64);
  for_each_line(x, axis, [&](const Group& line, Index index) {
    const auto places = order(line, descending);
    for (std::int64_t k = 0; k < count; ++k) {
      index[static_cast<std::size_t>(axis)] = k;
      const std::size_t place = places[static_cast<std::size_t>(k)];
      values.values[ravel(index, shape)] = line[place];
      positions.values[ravel(index, shape)] = static_cast<Exact>(place);
    }
  });
  return {values, positions};
}

Results sorted_part(const Arrays& in, const Attrs& attrs, std::size_t part) {
  const int axis = axis_of(attrs, in[0].rank(), -1);
  return {sorted(in[0], axis, in[0].shape[axis], false)[part]};
}

}  // namespace

void add_reduce_references(References& table) {
  table["sum"] = reduction(Type::whole_sum, total, sum_slack);
  table["mean"] = reduction(Type::real, mean, mean_slack);
  table["prod"] = reduction(Type::whole_sum, product, product_slack);
  table["var"] = reduction(Type::real, variance, variance_slack);
  table["std"] = reduction(Type::real, deviation, deviation_slack);
  table["max"] = reduction(Type::same, largest);
  table["min"] = reduction(Type::same, least);
  table["any"] = reduction(Type::boolean, [](const Group& x, const Attrs&) {
    return Exact(std::any_of(x.begin(), x.end(), [](Exact v) { return v != 0; }));
  });
  table["all"] = reduction(Type::boolean, [](const Group& x, const Attrs&) {
    return Exact(std::all_of(x.begin(), x.end(), [](Exact v) { return v != 0; }));
  });
  table["argmax"] = reduction(
      Type::position, [](const Group& x, const Attrs& a) { return position(x, largest(x, a)); });
  table["argmin"] = reduction(
      Type::position, [](const Group& x, const Attrs& a) { return position(x, least(x, a)); });
  table["cumsum"] = cumsum;
  table["cumprod"] = cumprod;
  table["sort"] = [](const Arrays& in, const Attrs& attrs) { return sorted_part(in, attrs, 0); };
  table["argsort"] = [](const Arrays& in, const Attrs& attrs) { return sorted_part(in, attrs, 1); };
  table["topk"] = [](const Arrays& in, const Attrs& attrs) {
    return sorted(in[0], axis_of(attrs, in[0].rank(), -1), attrs.integer("k"),
                  attrs.flag("largest", true));
  };
}

}  // namespace tensor::generated
