#include "src/kernels/cuda/generated/expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "src/kernels/cuda/generated/extents.h"
#include "src/kernels/elementwise.h"
#include "src/trace/group.h"
#include "tensor/tensor.h"

namespace tensor::cuda {
namespace {

template <class T>
std::string shortest(T value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

Shape without_leading_ones(const Shape& shape) {
  Shape result;
  for (const auto extent : shape)
    if (extent != 1 || !result.empty()) result.push_back(extent);
  return result;
}

// A constant of one element, also when a view repeats it.
std::optional<Tensor> single_constant(const Graph& graph, ValueId id) {
  const Node& root = graph[root_of(graph, id)];
  if (root.kind != NodeKind::constant || root.constant.size() != 1) return std::nullopt;
  return root.constant;
}

class Writer {
 public:
  Writer(const Graph& graph, std::span<const ValueId> nodes,
         const std::map<ValueId, std::string>& given)
      : graph_(graph), nodes_(nodes) {
    code_.results = given;
  }

  std::optional<ElementCode> run() {
    for (const ValueId id : nodes_) {
      const Node& node = graph_[id];
      if (!is_elementwise(node.op) || !power_is_defined(node)) return std::nullopt;
      whole_ = std::max(whole_, num_elements(node.type.shape));
    }
    for (std::size_t i = nodes_.size(); i-- > 0;)
      if (!place(nodes_[i])) return std::nullopt;
    for (const ValueId id : nodes_) write(id);
    return std::move(code_);
  }

 private:
  bool is_inside(ValueId id) const { return std::binary_search(nodes_.begin(), nodes_.end(), id); }
  bool is_known(ValueId id) const { return is_inside(id) || code_.results.contains(id); }

  // Whole numbers to negative powers are an error, which a kernel cannot report.
  bool power_is_defined(const Node& node) const {
    if (node.op != Op::power || is_floating(node.type.dtype) || node.type.dtype == u8) return true;
    const auto exponent = single_constant(graph_, node.inputs[1]);
    return exponent && exponent->to_vector<double>()[0] >= 0;
  }

  // The value inside the group, or given, that an operand is a view of; -1 for one from outside.
  ValueId known_behind(ValueId id) const {
    for (;; id = graph_[id].inputs[0]) {
      if (is_known(id)) return id;
      if (!is_view(graph_, id)) return -1;
    }
  }

  // Readers come later, so they have told where they want the node.
  bool place(ValueId id) {
    const Shape& own = graph_.type(id).shape;
    if (!code_.shapes.contains(id)) code_.shapes[id] = own;
    const Shape as = code_.shapes[id];
    for (const ValueId operand : graph_[id].inputs) {
      const ValueId known = known_behind(operand);
      if (known >= 0 && !demand(known, operand, as)) return false;
    }
    return true;
  }

  // An operand that is a view of a known value, wanted at every element of `as`.
  bool demand(ValueId known, ValueId operand, const Shape& as) {
    if (known == operand && !is_inside(known)) return true;
    const Shape& shape = graph_.type(known).shape;
    for (ValueId id = operand; id != known; id = graph_[id].inputs[0])
      if (graph_[id].op != Op::reshape) return false;
    Shape wanted = as;
    if (num_elements(shape) == whole_ && num_elements(graph_.type(operand).shape) == whole_) {
      if (num_elements(as) != whole_) return false;
      wanted = shape;
    } else if (!(without_leading_ones(shape) == without_leading_ones(graph_.type(operand).shape))) {
      return false;
    } else if (num_elements(shape) == num_elements(as)) {
      wanted = shape;
    }
    if (!is_inside(known)) return num_elements(shape) == num_elements(wanted);
    return code_.shapes.emplace(known, wanted).first->second == wanted;
  }

  std::string operand_text(ValueId operand, const Shape& as) {
    if (const ValueId known = known_behind(operand); known >= 0) return code_.results.at(known);
    const auto constant = single_constant(graph_, operand);
    if (constant && constant->rank() == 0) return number(*constant);
    for (const auto& load : code_.loads)
      if (load.value == operand && load.as == as) return load.name;
    // Numbers of their own, so that equal groups have equal texts.
    const std::string name = "x" + std::to_string(code_.loads.size());
    code_.loads.push_back({operand, name, as});
    return name;
  }

  void write(ValueId id) {
    const Node& node = graph_[id];
    const Shape as = code_.shapes[id];
    std::vector<std::string> operands;
    for (const ValueId input : node.inputs) operands.push_back(operand_text(input, as));
    if (node.op == Op::round && compute_type(node.type.dtype) == "float")
      rounded_[id] = operands[0];
    if (const std::string wide = rounded_to_byte(node); !wide.empty()) {
      code_.results[id] = declare("signed char", "nearest_byte(" + wide + ")");
      return;
    }
    const Graph* formula = formula_of(node.op, node.type.dtype);
    code_.results[id] = formula ? declare_formula(*formula, operands) : declare(node, operands);
  }

  static std::string number(const Tensor& constant) {
    if (kind_of(constant.dtype()) == Kind::integer)
      return literal(constant.item<std::int64_t>(), constant.dtype());
    return literal(constant.item<double>(), constant.dtype());
  }

  // What a conversion to bytes rounds, which is one instruction; empty where it does not.
  std::string rounded_to_byte(const Node& node) const {
    if (node.op != Op::astype || node.type.dtype != i8) return {};
    const auto rounded = rounded_.find(known_behind(node.inputs[0]));
    return rounded == rounded_.end() ? std::string() : rounded->second;
  }

  std::string declare(const Node& node, const std::vector<std::string>& operands) {
    const std::string type(compute_type(node.type.dtype));
    std::string text(info(node.op).elementwise.device);
    if (node.op == Op::astype || node.op == Op::copy) text += "<" + type + ">";
    text += "(";
    for (std::size_t i = 0; i < operands.size(); ++i) text += (i > 0 ? ", " : "") + operands[i];
    return declare(type, text + ")");
  }
  std::string declare(const std::string& type, const std::string& value) {
    const std::string name = "v" + std::to_string(written_++);
    code_.body += "const " + type + " " + name + " = " + value + ";\n";
    return name;
  }

  std::string declare_formula(const Graph& formula, std::vector<std::string> values) {
    for (ValueId id = static_cast<ValueId>(values.size()); id < formula.size(); ++id) {
      const Node& node = formula[id];
      std::vector<std::string> operands;
      for (const ValueId input : node.inputs) operands.push_back(values[at(input)]);
      values.push_back(node.kind == NodeKind::constant ? number(node.constant)
                                                       : declare(node, operands));
    }
    return values[at(formula.outputs().front())];
  }

  const Graph& graph_;
  std::span<const ValueId> nodes_;
  std::int64_t whole_ = 0;  // elements of the largest node
  int written_ = 0;
  std::map<ValueId, std::string> rounded_;  // of each round of floats, what it rounds
  ElementCode code_;
};

}  // namespace

std::string_view device_type(DType dtype) {
  constexpr std::string_view kTypes[] = {"bool",  "unsigned char", "signed char", "short",
                                         "int",   "long long",     "Half",        "Bfloat16",
                                         "float", "double"};
  return kTypes[static_cast<std::size_t>(dtype)];
}

std::string_view compute_type(DType dtype) {
  return dtype == f16 || dtype == bf16 ? "float" : device_type(dtype);
}

std::string literal(std::int64_t value, DType dtype) {
  // There is no literal of the least number: a minus sign is an operator.
  const bool is_least = value == std::numeric_limits<std::int64_t>::min();
  std::string text = shortest(is_least ? value + 1 : value) + (dtype == i64 ? "ll" : "");
  if (is_least) text += " - 1";
  return std::string(compute_type(dtype)) == "int" && value >= 0
             ? text
             : "convert<" + std::string(compute_type(dtype)) + ">(" + text + ")";
}

std::string literal(double value, DType dtype) {
  if (dtype == boolean) return value != 0 ? "true" : "false";
  if (!is_floating(dtype)) return literal(static_cast<std::int64_t>(value), dtype);
  const std::string type(compute_type(dtype));
  if (std::isnan(value)) return type + "(kNan)";
  if (std::isinf(value)) return type + (value < 0 ? "(-kInfinity)" : "(kInfinity)");
  std::string text = dtype == f64 ? shortest(value) : shortest(static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (dtype != f64) text += "f";
  return std::signbit(value) ? "(" + text + ")" : text;
}

std::optional<ElementCode> element_code(const Graph& graph, std::span<const ValueId> nodes,
                                        const std::map<ValueId, std::string>& given) {
  return Writer(graph, nodes, given).run();
}

std::string offset_text(const Shape& extents, const Strides& strides, const std::string& linear) {
  Extents fixed;
  return offset_text(extents, strides, linear, fixed, "");
}

std::string offset_text(const Shape& extents, const Strides& strides, const std::string& linear,
                        Extents& numbers, const std::string& space) {
  struct Axis {
    std::int64_t extent, stride;
    int first, end;  // of the axes that are merged, without those of extent 1
  };
  std::vector<Axis> axes;  // from the outermost on
  std::int64_t reach = 0;
  int place = 0;
  for (int i = 0; i < extents.rank(); ++i) {
    if (extents[i] == 1) continue;
    reach += std::abs(strides[i]) * (extents[i] - 1);
    const int first = place++;
    if (!axes.empty() && axes.back().stride == strides[i] * extents[i])
      axes.back() = {axes.back().extent * extents[i], strides[i], axes.back().first, place};
    else
      axes.push_back({extents[i], strides[i], first, place});
  }
  const auto divisor = [&](std::int64_t value, int first, int end) {
    return numbers.divided_by(space + "_" + std::to_string(first) + "_" + std::to_string(end),
                              value);
  };
  const bool is_far = reach > std::numeric_limits<std::int32_t>::max();
  std::string sum;
  std::int64_t inner = 1;  // elements inside the axis
  for (std::size_t i = axes.size(); i-- > 0; inner *= axes[i].extent) {
    if (axes[i].stride == 0) continue;
    std::string index = linear;
    if (inner > 1) index = "unsigned(" + index + ") / " + divisor(inner, axes[i].end, place);
    if (i > 0)
      index = (inner > 1 ? index : "unsigned(" + index + ")") + " % " +
              divisor(axes[i].extent, axes[i].first, axes[i].end);
    if (index != linear) index = "int(" + index + ")";
    if (is_far) index = "i64(" + index + ")";
    if (axes[i].stride != 1) index += " * " + numbers.term(axes[i].stride);
    sum = sum.empty() ? index : index + " + " + sum;
  }
  return sum.empty() ? "0" : sum;
}

std::string constant_text(const char* name, std::int64_t value) {
  const bool is_long = std::abs(value) > std::numeric_limits<std::int32_t>::max();
  return "  static constexpr " + std::string(is_long ? "long long " : "int ") + name + " = " +
         std::to_string(value) + ";\n";
}

std::string flag_text(const char* name, bool value) {
  return std::string("  static constexpr bool ") + name + " = " + (value ? "true" : "false") +
         ";\n";
}

}  // namespace tensor::cuda
