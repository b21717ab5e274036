// einsum, composed of transpositions, sums, and pairwise products that are a matmul wherever a
// label is summed, in the order that takes the fewest multiplications.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using Labels = std::string;

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};

// A tensor with one label an axis.
struct Term {
  Tensor value;
  Labels labels;
};

// "..." while the ranks are not known, and then one label an axis, of the characters that are no
// letters but lie near them in ASCII.
constexpr char kDots = '.';
constexpr std::string_view kAxesOfDots = "[\\]^_`{|}~\x7f";

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }

Labels parse_labels(std::string_view text, std::string_view equation) {
  Labels labels;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (text.substr(i, 3) != "..." || has(labels, kDots))
        fail("einsum", "got '.' in \"", equation, "\", need one \"...\" of an operand's axes");
      i += 2;
    } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
      fail("einsum", "got '", c, "' in \"", equation, "\", need letters, commas and one \"->\"");
    }
    labels.push_back(c);
  }
  return labels;
}

// Without "->": the axes of "...", then the labels that occur once, in alphabetical order.
Labels implicit_output(const std::vector<Labels>& inputs) {
  Labels all;
  for (const Labels& labels : inputs) all += labels;
  Labels output;
  for (const char label : all)
    if (label != kDots && std::count(all.begin(), all.end(), label) == 1) output.push_back(label);
  std::sort(output.begin(), output.end());
  return has(all, kDots) ? kDots + output : output;
}

Equation parse(std::string_view text) {
  Equation result;
  const std::size_t arrow = text.find("->");
  const std::string_view left = text.substr(0, arrow);
  for (std::size_t begin = 0; begin <= left.size();) {
    const std::size_t comma = std::min(left.find(',', begin), left.size());
    result.inputs.push_back(parse_labels(left.substr(begin, comma - begin), text));
    begin = comma + 1;
  }
  if (arrow == std::string_view::npos) {
    result.output = implicit_output(result.inputs);
    return result;
  }
  result.output = parse_labels(text.substr(arrow + 2), text);
  for (const char label : result.output) {
    if (std::count(result.output.begin(), result.output.end(), label) > 1)
      fail("einsum", "the output of \"", text, "\" names '", label, "' twice");
    if (label != kDots && std::none_of(result.inputs.begin(), result.inputs.end(),
                                       [&](const Labels& in) { return has(in, label); }))
      fail("einsum", "the output of \"", text, "\" names '", label, "', which no input has");
  }
  return result;
}

// Writes labels in place of "...", which stands for the last of so many axes everywhere.
void name_dots(Equation& equation, std::string_view text, const std::vector<Tensor>& operands) {
  std::size_t most = 0;
  const auto replace = [](Labels& labels, std::size_t count) {
    if (const std::size_t at = labels.find(kDots); at != Labels::npos)
      labels.replace(at, 1, kAxesOfDots.substr(kAxesOfDots.size() - count));
  };
  for (std::size_t i = 0; i < std::min(operands.size(), equation.inputs.size()); ++i) {
    Labels& labels = equation.inputs[i];
    const auto rank = static_cast<std::size_t>(operands[i].rank());
    if (!has(labels, kDots)) continue;
    if (rank + 1 < labels.size())
      fail("einsum", "\"", text, "\" names ", labels.size() - 1, " axes and \"...\" of the shape ",
           operands[i].shape());
    const std::size_t count = rank + 1 - labels.size();
    if (count > kAxesOfDots.size())
      fail("einsum", "\"...\" in \"", text, "\" stands for ", count, " axes of the shape ",
           operands[i].shape(), ", need at most ", kAxesOfDots.size());
    most = std::max(most, count);
    replace(labels, count);
  }
  if (most > 0 && !has(equation.output, kDots))
    fail("einsum", "the output of \"", text, "\" has no \"...\", but the operands have ", most,
         " axes for it");
  replace(equation.output, most);
}

Tensor transposed(const Tensor& x, const Labels& from, const Labels& to) {
  Dims axes;
  for (const char label : to) axes.push_back(static_cast<std::int64_t>(from.find(label)));
  return transpose(x, axes);
}

// The diagonal of two axes becomes the last axis: as one axis of n * n elements, it is every (n +
// 1)-th of them.
void take_diagonal(Term& term, std::size_t first, std::size_t second, std::string_view equation) {
  const std::int64_t extent = term.value.shape(static_cast<int>(first));
  const char label = term.labels[first];
  if (term.value.shape(static_cast<int>(second)) != extent)
    fail("einsum", "'", label, "' in \"", equation,
         "\" stands for axes of different extents of the shape ", term.value.shape());
  Dims axes;
  Shape shape;
  Labels labels;
  for (std::size_t axis = 0; axis < term.labels.size(); ++axis) {
    if (axis == first || axis == second) continue;
    axes.push_back(static_cast<std::int64_t>(axis));
    shape.push_back(term.value.shape(static_cast<int>(axis)));
    labels.push_back(term.labels[axis]);
  }
  axes.push_back(static_cast<std::int64_t>(first));
  axes.push_back(static_cast<std::int64_t>(second));
  const int last = shape.rank();
  shape.push_back(extent * extent);
  term.value = slice_axis(reshape(transpose(term.value, axes), shape), last, 0, extent, extent + 1);
  term.labels = labels + label;
}

// The axes of a label that occurs twice.
std::optional<std::pair<std::size_t, std::size_t>> repeated(const Labels& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (const std::size_t j = labels.find(labels[i], i + 1); j != Labels::npos) return {{i, j}};
  return std::nullopt;
}

using Extents = std::array<std::int64_t, 128>;

// The extent of every label; an axis of extent 1 stretches.
Extents extents_of(const std::vector<Term>& terms, std::string_view equation) {
  Extents extents;
  extents.fill(1);
  for (const Term& term : terms)
    for (std::size_t axis = 0; axis < term.labels.size(); ++axis) {
      const std::int64_t extent = term.value.shape(static_cast<int>(axis));
      std::int64_t& common = extents[static_cast<std::size_t>(term.labels[axis])];
      if (common != 1 && extent != 1 && common != extent)
        fail("einsum", "'", term.labels[axis], "' in \"", equation, "\" stands for axes of ",
             common, " and ", extent, " elements");
      if (extent != 1) common = extent;
    }
  return extents;
}

// Drops the axes that stretch: whatever they meet is multiplied by the one element they have.
void drop_stretched(Term& term, const Extents& extents) {
  Shape shape;
  Labels labels;
  for (std::size_t axis = 0; axis < term.labels.size(); ++axis) {
    const std::int64_t extent = term.value.shape(static_cast<int>(axis));
    if (extent != extents[static_cast<std::size_t>(term.labels[axis])]) continue;
    shape.push_back(extent);
    labels.push_back(term.labels[axis]);
  }
  if (labels.size() < term.labels.size()) term = {reshape(term.value, shape), labels};
}

// Sums over the axes whose label nobody needs, within the element type (NumPy's einsum does not
// widen integers).
void sum_out(Term& term, const Labels& needed) {
  Dims axes;
  Labels labels;
  for (std::size_t axis = 0; axis < term.labels.size(); ++axis) {
    if (has(needed, term.labels[axis]))
      labels.push_back(term.labels[axis]);
    else
      axes.push_back(static_cast<std::int64_t>(axis));
  }
  if (axes.empty()) return;
  const DType dtype = term.value.dtype();
  term = {dtype == boolean ? any(term.value, axes) : cast(sum(term.value, axes), dtype), labels};
}

std::int64_t product(const Labels& labels, const Extents& extents) {
  std::int64_t result = 1;
  for (const char label : labels) result *= extents[static_cast<std::size_t>(label)];
  return result;
}

Shape shape_of(const Labels& labels, const Extents& extents) {
  Shape shape;
  for (const char label : labels) shape.push_back(extents[static_cast<std::size_t>(label)]);
  return shape;
}

// The product of two terms, summed over the labels of both that are not needed any more.
Term combine(const Term& a, const Term& b, const Labels& needed, const Extents& extents) {
  Labels batch, summed, left, right;
  for (const char label : a.labels) {
    if (!has(b.labels, label))
      left.push_back(label);
    else if (has(needed, label))
      batch.push_back(label);
    else
      summed.push_back(label);
  }
  for (const char label : b.labels)
    if (!has(a.labels, label)) right.push_back(label);
  const Tensor first = transposed(a.value, a.labels, batch + left + summed);
  const Tensor second = transposed(b.value, b.labels, batch + summed + right);
  const Labels labels = batch + left + right;
  const auto matrices = [&](const Tensor& x, std::int64_t rows, std::int64_t columns) {
    Shape shape = shape_of(batch, extents);
    shape.push_back(rows);
    shape.push_back(columns);
    return reshape(x, shape);
  };
  const std::int64_t rows = product(left, extents), columns = product(right, extents),
                     depth = product(summed, extents);
  const Tensor x = matrices(first, rows, depth), y = matrices(second, depth, columns);
  return {reshape(summed.empty() ? multiply(x, y) : matmul(x, y), shape_of(labels, extents)),
          labels};
}

std::vector<Term> terms_of(const Equation& equation, std::string_view text,
                           const std::vector<Tensor>& operands) {
  if (equation.inputs.size() != operands.size())
    fail("einsum", "\"", text, "\" names ", equation.inputs.size(), " operands, got ",
         operands.size());
  const DType dtype = result_type(operands, "einsum");
  std::vector<Term> terms;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Labels& labels = equation.inputs[i];
    if (static_cast<int>(labels.size()) != operands[i].rank())
      fail("einsum", "\"", labels, "\" in \"", text, "\" names ", labels.size(),
           " axes of the shape ", operands[i].shape());
    terms.push_back({cast(operands[i], dtype), labels});
    while (const auto axes = repeated(terms.back().labels))
      take_diagonal(terms.back(), axes->first, axes->second, text);
  }
  return terms;
}

// Labels as bits: 'A' to 'z' are 58.
using Set = std::uint64_t;

Set set_of(const Labels& labels) {
  Set set = 0;
  for (const char label : labels) set |= Set{1} << (label - 'A');
  return set;
}

// Multiplies terms pair by pair. Of few it finds the cheapest of all orders, by dynamic programming
// over their subsets; of many it first multiplies pairs that leave the fewest elements. An outer
// product is what comes last where a label connects others.
class Contraction {
 public:
  Contraction(std::vector<Term> terms, const Labels& output, const Extents& extents)
      : terms_(std::move(terms)), output_(output), extents_(extents) {}

  Term run() {
    for (std::size_t i = 0; i < terms_.size(); ++i)
      sum_out(terms_[i], needed_beside([&](std::size_t k) { return k == i; }));
    while (terms_.size() > kMostExact) combine_pair();
    find_splits();
    return product_of((std::size_t{1} << terms_.size()) - 1);
  }

 private:
  static constexpr std::size_t kMostExact = 8;

  // The labels that the output or other terms than those have.
  template <class Of>
  Labels needed_beside(Of&& is_of) const {
    Labels needed = output_;
    for (std::size_t k = 0; k < terms_.size(); ++k)
      if (!is_of(k)) needed += terms_[k].labels;
    return needed;
  }

  double elements(Set labels) const {
    double count = 1;
    for (; labels != 0; labels &= labels - 1)
      count *=
          static_cast<double>(extents_[static_cast<std::size_t>('A' + std::countr_zero(labels))]);
    return count;
  }

  void combine_pair() {
    Set once = 0, twice = 0, often = 0;  // labels of at least one, two and three terms
    for (const Term& term : terms_) {
      const Set set = set_of(term.labels);
      often |= twice & set, twice |= once & set, once |= set;
    }
    std::pair best{true, std::numeric_limits<double>::infinity()};  // is it outer, growth
    std::size_t first = 0, second = 1;
    for (std::size_t j = 1; j < terms_.size(); ++j)
      for (std::size_t i = 0; i < j; ++i) {
        const Set a = set_of(terms_[i].labels), b = set_of(terms_[j].labels);
        const Set kept = (a | b) & (set_of(output_) | often | (twice & ~(a & b)));
        const std::pair cost{(a & b) == 0, elements(kept) - elements(a) - elements(b)};
        if (cost < best) best = cost, first = i, second = j;
      }
    const Labels needed = needed_beside([&](std::size_t k) { return k == first || k == second; });
    terms_[first] = combine(terms_[first], terms_[second], needed, extents_);
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(second));
  }

  // For every subset of the terms, which part of it is multiplied by the rest.
  void find_splits() {
    const std::size_t subsets = std::size_t{1} << terms_.size();
    std::vector<Set> all(subsets), kept(subsets);
    for (std::size_t s = 1; s < subsets; ++s)
      all[s] =
          all[s & (s - 1)] | set_of(terms_[static_cast<std::size_t>(std::countr_zero(s))].labels);
    for (std::size_t s = 1; s < subsets; ++s)
      kept[s] = all[s] & (set_of(output_) | all[subsets - 1 - s]);
    std::vector<double> cost(subsets, std::numeric_limits<double>::infinity());
    splits_.assign(subsets, 0);
    for (std::size_t s = 1; s < subsets; ++s) {
      if ((s & (s - 1)) == 0) cost[s] = 0;
      for (std::size_t part = (s - 1) & s; part > s / 2; part = (part - 1) & s) {
        const std::size_t rest = s ^ part;
        const double sum =
            cost[part] + cost[rest] + elements(kept[part] | kept[rest]) + elements(kept[s]);
        if (splits_[s] == 0 || sum < cost[s]) cost[s] = sum, splits_[s] = rest;
      }
    }
  }

  Term product_of(std::size_t subset) const {
    const std::size_t part = splits_[subset];
    if (part == 0) return terms_[static_cast<std::size_t>(std::countr_zero(subset))];
    const Labels needed = needed_beside([&](std::size_t k) { return subset >> k & 1; });
    return combine(product_of(part), product_of(subset ^ part), needed, extents_);
  }

  std::vector<Term> terms_;
  const Labels& output_;
  const Extents& extents_;
  std::vector<std::size_t> splits_;
};

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  Equation parsed = parse(equation);
  name_dots(parsed, equation, operands);
  std::vector<Term> terms = terms_of(parsed, equation, operands);
  const Extents extents = extents_of(terms, equation);
  for (Term& term : terms) drop_stretched(term, extents);
  const Term result = Contraction(std::move(terms), parsed.output, extents).run();
  return transposed(result.value, result.labels, parsed.output);
}

}  // namespace tensor
