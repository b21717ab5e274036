// The table of all operators, and what their functions see of a node.
#include "src/onnx/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/core/storage.h"
#include "src/io/source.h"
#include "src/onnx/runner.h"

namespace tensor::onnx {

const std::map<std::string_view, const Operator*>& operator_table() {
  static const std::map<std::string_view, const Operator*> table = [] {
    std::map<std::string_view, const Operator*> rows;
    for (const auto family :
         {pointwise_operators, shape_operators, gather_operators, reduce_operators, conv_operators,
          pool_operators, norm_operators, product_operators, resize_operators, region_operators,
          attention_operators, fourier_operators, quantize_operators, select_operators,
          recurrent_operators, control_operators})
      for (const Operator& row : family()) rows.emplace(row.name, &row);
    return rows;
  }();
  return table;
}

const Tensor& Call::operator[](int input) const {
  if (!has(input)) fail("inputs", "input ", input, " is left out, but needed");
  return inputs_[at(input)];
}

Tensor Call::host(int input) const {
  const Tensor& x = (*this)[input];
  detail::require_values(x, "input " + std::to_string(input),
                         "a shape, a condition or a list of positions must not depend on the "
                         "elements of the model's inputs where it is compiled: run it eagerly");
  return x.to(Device());
}

const Attribute& Call::attribute(std::string_view name) const {
  const Attribute* found = node_.find(name);
  if (!found) fail("attributes", "there is no ", name, ", which is needed");
  return *found;
}

std::int64_t Call::integer(std::string_view name, std::int64_t fallback) const {
  const Attribute* found = node_.find(name);
  return found ? found->integer : fallback;
}

double Call::number(std::string_view name, double fallback) const {
  const Attribute* found = node_.find(name);
  return found ? static_cast<double>(found->number) : fallback;
}

std::string Call::text(std::string_view name, std::string_view fallback) const {
  const Attribute* found = node_.find(name);
  return found ? found->text : std::string(fallback);
}

Ints Call::ints(std::string_view name, Ints fallback) const {
  const Attribute* found = node_.find(name);
  return found ? found->integers : std::move(fallback);
}

Results Call::run(std::string_view graph, std::span<const Tensor> inputs) const {
  return runner_.run_inner(*attribute(graph).graph, inputs);
}

std::pair<double, double> limits_of(DType dtype) {
  if (is_floating(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {-kInfinity, kInfinity};
  }
  if (dtype == boolean) return {0, 1};
  if (dtype == u8) return {0, 255};
  // 64 bits are rounded up to 2^63, which conversions cut to the largest number.
  const double half = std::ldexp(1.0, static_cast<int>(8 * item_size(dtype)) - 1);
  return {-half, half < 0x1p63 ? half - 1 : half};
}

Tensor sliced(const Tensor& x, int axis, std::int64_t start, std::int64_t count,
              std::int64_t step) {
  if (start == 0 && step == 1 && count == x.shape(axis)) return x;
  std::vector<Index> index(static_cast<std::size_t>(axis), all_of_axis);
  const std::int64_t stop = start + count * step;
  index.emplace_back(stop < 0 ? slice(start, none, step) : slice(start, stop, step));
  return get_index(x, index);
}

std::string refuse_unless(const Node& node, std::string_view attribute, std::int64_t value) {
  const Attribute* found = node.find(attribute);
  if (!found || found->integer == value) return {};
  return std::string(attribute) + "=" + std::to_string(found->integer);
}

std::string refuse_unless(const Node& node, std::string_view attribute,
                          std::initializer_list<std::string_view> texts) {
  const Attribute* found = node.find(attribute);
  if (!found || std::ranges::count(texts, std::string_view(found->text))) return {};
  return std::string(attribute) + "=" + in_quotes(found->text);
}

}  // namespace tensor::onnx
