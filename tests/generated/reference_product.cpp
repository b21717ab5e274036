// References of matrix products: all of them sums over labelled axes.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

// Sums the product of the operands over every label that `output` lacks. An axis of extent 1
// stretches.
Expected contract(const Arrays& in, const std::vector<std::string>& labels,
                  const std::string& output) {
  std::map<char, std::int64_t> extents;
  std::string summed;
  for (std::size_t k = 0; k < in.size(); ++k)
    for (std::size_t axis = 0; axis < labels[k].size(); ++axis) {
      std::int64_t& extent = extents.try_emplace(labels[k][axis], 1).first->second;
      if (in[k].shape[static_cast<int>(axis)] != 1) extent = in[k].shape[static_cast<int>(axis)];
    }
  Shape out_shape, sum_shape;
  for (const char label : output) out_shape.push_back(extents[label]);
  for (const auto& [label, extent] : extents)
    if (output.find(label) == std::string::npos) summed += label, sum_shape.push_back(extent);

  Expected result(out_shape, common_type(in));
  result.slack.assign(result.size(), 0);
  const auto terms = static_cast<std::size_t>(num_elements(sum_shape));
  const bool whole = std::all_of(in.begin(), in.end(), [](const Array& x) {
    return std::all_of(x.values.begin(), x.values.end(),
                       [](Exact v) { return v == std::trunc(v); });
  });
  const bool exact = whole || !is_floating(result.dtype);
  // Where each operand finds the index of each of its labels: in the output's index or in the
  // summed one.
  std::map<char, std::int64_t> at;
  std::vector<Index> indices(in.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index outer = unravel(i, out_shape);
    for (std::size_t axis = 0; axis < output.size(); ++axis) at[output[axis]] = outer[axis];
    Exact sum = 0, magnitudes = 0;
    for (std::size_t term = 0; term < terms; ++term) {
      const Index inner = unravel(term, sum_shape);
      for (std::size_t axis = 0; axis < summed.size(); ++axis) at[summed[axis]] = inner[axis];
      Exact product = 1;
      for (std::size_t k = 0; k < in.size(); ++k) {
        indices[k].clear();
        for (const char label : labels[k]) indices[k].push_back(at[label]);
        product *= in[k].at(indices[k]);
      }
      sum += product;
      magnitudes += std::fabs(product);
    }
    result.values[i] = sum;
    // K products and additions: K u times the sum of the magnitudes (Higham, 2002, section 3.1),
    // and one rounding.
    if (!exact)
      result.slack[i] =
          static_cast<Exact>(terms + 1) * unit_roundoff(compute_type(result.dtype)) * magnitudes +
          ulp(result.dtype, sum);
  }
  return result;
}

// Letters for the axes before the last `core` ones, the same for the last of them in every operand.
std::string batch_labels(int rank, int core) {
  std::string labels;
  for (int axis = rank - core; axis > 0; --axis) labels += static_cast<char>('A' + axis - 1);
  return labels;
}

Results matmul(const Arrays& in, const Attrs&) {
  const int a = in[0].rank(), b = in[1].rank();
  const std::string batch_a = batch_labels(a, 2), batch_b = batch_labels(b, 2);
  const std::string& batch = batch_a.size() > batch_b.size() ? batch_a : batch_b;
  return {contract(in, {a == 1 ? "k" : batch_a + "mk", b == 1 ? "k" : batch_b + "kn"},
                   batch + (a == 1 ? "" : "m") + (b == 1 ? "" : "n"))};
}

Results dot(const Arrays& in, const Attrs&) {
  std::string a, b;
  for (int axis = 0; axis < in[0].rank(); ++axis) a += static_cast<char>('a' + axis);
  for (int axis = 0; axis < in[1].rank(); ++axis) b += static_cast<char>('A' + axis);
  if (a.empty() || b.empty()) return {contract(in, {a, b}, a + b)};
  const std::size_t row = b.size() == 1 ? 0 : b.size() - 2;
  a.back() = b[row] = 'z';
  std::string output = a.substr(0, a.size() - 1) + b;
  output.erase(output.find('z'), 1);
  return {contract(in, {a, b}, output)};
}

Results einsum(const Arrays& in, const Attrs& attrs) {
  std::string equation = attrs.text("equation");
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  std::vector<std::string> labels;
  std::istringstream operands(equation.substr(0, arrow));
  for (std::string part; std::getline(operands, part, ',');) labels.push_back(part);
  std::string output;
  if (arrow != std::string::npos) {
    output = equation.substr(arrow + 2);
  } else {
    // The labels that appear once, in alphabetical order.
    for (const char label : equation)
      if (label != ',' && std::count(equation.begin(), equation.end(), label) == 1) output += label;
    std::sort(output.begin(), output.end());
  }
  Expected result = contract(in, labels, output);
  // Intermediate results are stored in the element type: at most two more roundings of terms up to
  // the magnitudes.
  const Exact more = 2 * unit_roundoff(result.dtype) / unit_roundoff(compute_type(result.dtype));
  for (Exact& slack : result.slack) slack *= 1 + more;
  return {result};
}

Results linear(const Arrays& in, const Attrs&) {
  const int rank = in[0].rank();
  const std::string batch = batch_labels(rank, 1);
  Expected result = contract({in[0], in[1]}, {batch + "k", "nk"}, batch + "n");
  if (in.size() < 3) return {result};
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Exact product = result.values[i];
    result.values[i] += in[2].at(unravel(i, result.shape));
    if (result.slack[i] > 0)
      result.slack[i] += ulp(result.dtype, result.values[i]) + ulp(result.dtype, product);
  }
  return {result};
}

}  // namespace

void add_product_references(References& table) {
  table["matmul"] = matmul;
  table["dot"] = dot;
  table["einsum"] = einsum;
  table["linear"] = linear;
}

}  // namespace tensor::generated
