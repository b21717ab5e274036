// Operators by name: the bindings, and the elementwise operators without attributes, which need
// none: they are found in the operator table.
#include <algorithm>
#include <string>

#include "src/core/closest.h"
#include "src/ops/binding.h"
#include "src/ops/op.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

int checked_axis(std::string_view name, std::int64_t axis) {
  if (axis < -kMaxRank || axis >= kMaxRank)
    fail("attribute", name, " is ", axis, ", need one of the tensor's axes");
  return static_cast<int>(axis);
}

const std::vector<Binding>& bindings() {
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all = array_bindings();
    for (Binding& binding : neural_bindings()) all.push_back(std::move(binding));
    return all;
  }();
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

Axes reduced_axes(const Attrs& attrs) {
  return attrs.has("axis") ? Axes(attrs.dims("axis")) : Axes();
}
int one_axis(const Attrs& attrs, std::int64_t fallback) {
  return named_axis(attrs, "axis", fallback);
}
int named_axis(const Attrs& attrs, std::string_view name) {
  return checked_axis(name, attrs.integer(name));
}
int named_axis(const Attrs& attrs, std::string_view name, std::int64_t fallback) {
  return checked_axis(name, attrs.integer(name, fallback));
}

Pair pair_attribute(const Attrs& attrs, std::string_view name, Pair fallback) {
  const Ints values = attrs.ints(name, {fallback.h, fallback.w});
  if (values.empty() || values.size() > 2)
    fail("attribute", name, " has ", values.size(), " numbers, need one or two");
  return {values.front(), values.back()};
}

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
