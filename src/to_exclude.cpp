// to_exclude: which products stay float32 so that a function in eight bits is exact enough.
#include <algorithm>
#include <cmath>

#include "src/runtime/eight_bit_error.h"
#include "tensor/compile.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The larger of the outputs' differences, relative to the output.
double difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!is_floating(want[i].dtype()) || want[i].size() == 0) continue;
    const auto size = [](const Tensor& x) { return std::sqrt(sum(square(x.astype(f64))).item()); };
    const double off = size(got[i] - want[i]);
    if (off > 0) largest = std::max(largest, off / size(want[i]));
    if (std::isnan(off)) return off;
  }
  return largest;
}

// The products in eight bits, those first to whose results these add most.
std::vector<std::string> by_error(const Executable& executable, const std::vector<Tensor>& inputs) {
  const detail::Program& program = executable.program();
  const std::vector<double> errors = added_errors(program, inputs);
  std::vector<std::pair<double, std::string>> found;
  for (std::size_t step = 0; step < errors.size(); ++step) {
    const ValueId product = quantized_product(program, step);
    if (product < 0) continue;
    found.emplace_back(errors[step], name_of_product(program.laid.graph, product, "to_exclude"));
  }
  std::ranges::stable_sort(found, std::greater(), [](const auto& one) { return one.first; });
  std::vector<std::string> names;
  for (const auto& [error, name] : found)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

}  // namespace

std::vector<std::string> to_exclude(const detail::TracedFunction& function,
                                    const std::vector<Tensor>& examples, double most_error,
                                    CompileOptions options) {
  if (!(most_error > 0))
    fail("to_exclude", "got most_error ", most_error, ", need more than 0, such as 0.01");
  if (!options.devices.empty()) {  // they are of one kind, and one of them tells enough
    options.device = options.devices.front();
    options.devices = {};
    options.divide = Divide::batch;
  }
  CompileOptions wide = options;
  wide.dtype = f32, wide.exclude = {}, wide.scales = {};
  const std::vector<Tensor> want = compile(function, examples, wide)(examples);
  options.dtype = i8;
  const std::vector<std::string> before = options.exclude;
  const auto is_enough = [&](std::span<const std::string> names) {
    options.exclude = before;
    options.exclude.insert(options.exclude.end(), names.begin(), names.end());
    return difference(compile(function, examples, options)(examples), want) <= most_error;
  };
  if (is_enough({})) return {};
  CompileOptions apart = options;  // products are not joined, and have names of their own
  apart.fuse = false;
  const std::vector<std::string> names = by_error(compile(function, examples, apart), examples);
  // The fewest are more than `few` and at most `many`.
  std::size_t few = 0, many = names.size();
  while (few + 1 < many) {
    const std::size_t middle = (few + many) / 2;
    (is_enough({names.data(), middle}) ? many : few) = middle;
  }
  return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(many)};
}

}  // namespace tensor
