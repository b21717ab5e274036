// Products of matrices.
#include <algorithm>
#include <map>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

Results matmul_of(const Call& c) { return {matmul(c[0], c[1])}; }

Results gemm(const Call& c) {
  const bool is_turned = c.integer("transA", 0) != 0, is_rows = c.integer("transB", 0) != 0;
  const double alpha = c.number("alpha", 1), beta = c.number("beta", 1);
  const Tensor a = is_turned ? c[0].transpose() : c[0];
  Tensor bias = c.optional(2);
  if (bias.defined() && beta != 1) bias = (bias * beta).to(bias.dtype());
  if (a.rank() != 2 || c[1].rank() != 2)
    fail("gemm", "got the shapes ", c[0].shape(), " and ", c[1].shape(), ", need matrices");
  if (is_rows && alpha == 1 && bias.defined() && bias.rank() == 1 && bias.size() == c[1].shape(0))
    return {linear(a, c[1], bias)};
  Tensor y = matmul(a, is_rows ? c[1].transpose() : c[1]);
  if (alpha != 1) y = (y * alpha).to(y.dtype());
  return {bias.defined() ? y + bias : y};
}

// "..." stands for axes without letters: it gets those that the equation does not use, as many as
// the operand has left, counted from the last.
std::string spelled_out(std::string equation, const std::vector<Tensor>& operands) {
  std::erase(equation, ' ');
  if (equation.find("...") == std::string::npos) return equation;
  std::string unused;
  for (char letter = 'A'; letter <= 'z'; ++letter)
    if (is_letter(letter) && equation.find(letter) == std::string::npos) unused += letter;
  const std::size_t arrow = std::min(equation.find("->"), equation.size());
  std::string result;
  std::size_t operand = 0, most = 0;
  const auto letters = [&](std::size_t count) {
    if (count > unused.size()) fail("einsum", "needs more letters than there are");
    return unused.substr(unused.size() - count);
  };
  for (std::size_t at = 0; at < equation.size(); ++at) {
    if (equation[at] == ',') ++operand;
    if (!equation.substr(at).starts_with("...")) {
      result += equation[at];
      continue;
    }
    at += 2;
    if (at > arrow) {
      result += letters(most);
      continue;
    }
    if (operand >= operands.size()) fail("einsum", "has more operands than there are inputs");
    const std::size_t from = equation.rfind(',', at) + 1;  // 0 without a comma
    const std::size_t end = std::min(equation.find(',', at), arrow);
    const std::size_t named = end - from - 3;
    const auto rank = static_cast<std::size_t>(operands[operand].rank());
    if (rank < named)
      fail("einsum", "names more axes than an input of the shape ", operands[operand].shape());
    result += letters(rank - named);
    most = std::max(most, rank - named);
  }
  return result;
}

Results einsum_of(const Call& c) {
  return {einsum(spelled_out(c.attribute("equation").text, c.all()), c.all())};
}

constexpr Operator kProductRows[] = {
    {"MatMul", 1, 2, 2, 1, "", matmul_of},
    {"Gemm", 1, 2, 3, 1, "alpha:f beta:f transA:i transB:i broadcast:i", gemm},
    {"Einsum", 12, 1, Operator::kAny, 1, "equation:s", einsum_of},
};

}  // namespace

std::span<const Operator> product_operators() { return kProductRows; }

}  // namespace tensor::onnx
