#include "src/kernels/cuda/generated/row_writer.h"

#include <algorithm>

#include "src/core/rounding.h"
#include "tensor/error.h"

namespace tensor::cuda {

std::string RowWriter::number_of(ValueId id) const {
  const auto at = std::find(group_.nodes.begin(), group_.nodes.end(), id);
  return at != group_.nodes.end() ? std::to_string(at - group_.nodes.begin())
                                  : "p" + std::to_string(operand_of(group_, id, false));
}

ValueId RowWriter::member_behind(ValueId id) const {
  while (!is_member(id)) id = graph_[id].inputs[0];
  return id;
}

std::string RowWriter::array(std::string_view type, const std::string& name) const {
  return std::string(type) + " " + name + "[" + std::to_string(plan_.packs) + "][" +
         std::to_string(plan_.pack) + "];\n";
}

std::string RowWriter::begin_packs(bool checked) const {
  const bool is_held = plan_.way == RowWay::held;
  std::string text = "#pragma unroll\nfor (int p = 0; p < " + std::to_string(plan_.packs) +
                     "; ++p) {\n[[maybe_unused]] const int c = " + (is_held ? "" : "window + ") +
                     "(p * " + std::to_string(plan_.team) + " + lane) * " +
                     std::to_string(plan_.pack) + ";\n";
  if (checked && !(is_held && plan_.is_exact())) text += "if (c >= " + columns_ + ") continue;\n";
  return text;
}

std::string RowWriter::begin_elements() const {
  return "#pragma unroll\nfor (int e = 0; e < " + std::to_string(plan_.pack) + "; ++e) ";
}

std::string RowWriter::load_elements(ValueId id, const Shape& as) {
  const RowPlace p = plan_.place(id, as, BlockExtent::element);
  const std::string name = "a" + number_of(id);
  if (!loaded_.insert(name).second) return name;
  std::string text = array(compute_type(p.rows.dtype), name) + begin_packs(true);
  const std::string from = operands_.pointer(id, false) + " + " + p.row_offset(numbers_) + " + " +
                           p.column_offset(numbers_);
  text += load_text(name + "[p]", from, plan_.pack, p.is_packed(plan_.pack),
                    p.columns.inner().stride, numbers_) +
          "}\n";
  // What no earlier kernel writes can be on its way before those end.
  constexpr int kFew = 8;
  const bool is_held = plan_.way == RowWay::held;
  const bool is_early =
      graph_.is_constant(id) && !p.depends_on_row() && plan_.packs * plan_.pack <= kFew;
  (!is_held ? code_ : is_early ? early_ : p.depends_on_row() ? loads_ : code_) += text;
  return name;
}

std::string RowWriter::load_row(ValueId id, const Shape& as) {
  const RowPlace p = plan_.place(id, as, BlockExtent::row);
  const std::string name = "r" + number_of(id);
  if (!loaded_.insert(name).second) return name;
  loads_ += "const auto " + name + " = value_of(" + operands_.pointer(id, false) + "[" +
            p.row_offset(numbers_) + "]);\n";
  return name;
}

// Views of members have the names of what they rename.
std::map<ValueId, std::string> RowWriter::given(BlockExtent extent) const {
  std::map<ValueId, std::string> names;
  for (const auto& [id, own] : plan_.shape.members) {
    const ValueId member = member_behind(id);
    if (own == BlockExtent::row)
      names[id] = "r" + number_of(member);
    else if (extent == BlockExtent::element)
      names[id] = "a" + number_of(member) + "[p][e]";
  }
  return names;
}

void RowWriter::write_elementwise(ValueId id) {
  const BlockExtent extent = plan_.shape.members.at(id);
  auto names = given(extent);
  names.erase(id);
  const auto code = element_code(graph_, std::span(&id, 1), names);
  if (!code) internal_error("row", "no text for ", info(graph_[id].op).name);
  const std::string type(compute_type(graph_.type(id).dtype));
  const std::string number = number_of(id);
  if (extent == BlockExtent::row) {
    std::string inner;
    for (const auto& load : code->loads)
      inner += "const auto " + load.name + " = " + load_row(load.value, load.as) + ";\n";
    code_ += type + " r" + number + ";\n{\n" + inner + code->body + "r" + number + " = " +
             code->results.at(id) + ";\n}\n";
    return;
  }
  std::string inner;
  for (const auto& load : code->loads)
    inner += "const auto " + load.name + " = " + load_elements(load.value, load.as) + "[p][e];\n";
  code_ += array(type, "a" + number) + begin_packs(true) + begin_elements() + "{\n" + inner +
           code->body + "a" + number + "[p][e] = " + code->results.at(id) + ";\n}\n}\n";
}

std::string RowWriter::elements_of(ValueId operand) {
  if (operand_of(group_, operand, false) >= 0 && !plan_.shape.members.contains(operand))
    return load_elements(operand, graph_.type(operand).shape);
  return "a" + number_of(member_behind(operand));
}

const std::string& RowWriter::count_text() {
  if (count_.empty()) count_ = numbers_.real(static_cast<double>(plan_.columns));
  return count_;
}

void RowWriter::write_change(ValueId id, const std::string& from, const std::string& expression) {
  const std::string to = "a" + number_of(id);
  code_ += array("float", to) + begin_packs(true) + begin_elements() +
           "{\nconst float x = " + from + "[p][e];\n" + to + "[p][e] = " + expression + ";\n}\n}\n";
}

void RowWriter::write_quotient(ValueId id, const std::string& sum, double count) {
  code_ += "const float r" + number_of(id) + " = " + sum + " / " + numbers_.real(count) + ";\n";
}

double RowWriter::degrees_of_freedom(ValueId id) const {
  return std::max(static_cast<double>(plan_.columns) - graph_[id].attrs.number("ddof"), 0.0);
}

void RowWriter::write_layer_norm_scale(ValueId id, const std::string& squares) {
  code_ += "const float scale" + number_of(id) + " = 1.0f / sqrtf(" + squares + " / " +
           count_text() + " + " + literal(graph_[id].attrs.number("eps"), f32) + ");\n";
}

std::string RowWriter::layer_norm_expression(ValueId id) {
  const Node& node = graph_[id];
  const std::string number = number_of(id);
  std::string expression = "(x - mean" + number + ") * scale" + number;
  if (node.inputs.size() > 1)
    expression += " * " + load_elements(node.inputs[1], node.type.shape) + "[p][e]";
  if (node.inputs.size() > 2)
    expression += " + " + load_elements(node.inputs[2], node.type.shape) + "[p][e]";
  return expression;
}

void RowWriter::write_store(ValueId id) {
  const BlockExtent extent = plan_.shape.members.at(id);
  const RowPlace p = plan_.place(id, graph_.type(id).shape, extent);
  const std::string to = operands_.pointer(id, true), number = number_of(id);
  if (extent == BlockExtent::row) {
    code_ += "if (" + std::string(plan_.splits > 1 ? "blockIdx.y == 0 && " : "") +
             "lane == 0 && is_row) " + to + "[" + p.row_offset(numbers_) + "] = stored<" +
             std::string(device_type(p.rows.dtype)) + ">(r" + number + ");\n";
    return;
  }
  const std::string offset = p.row_offset(numbers_) + " + " + p.column_offset(numbers_);
  code_ += "if (is_row) {\n" + begin_packs(true) +
           store_text(to + " + " + offset, "a" + number + "[p]", plan_.pack,
                      p.is_packed(plan_.pack), p.columns.inner().stride, numbers_) +
           "}\n}\n";
}

Call RowWriter::call(const std::string& body, const std::vector<Partial>& partials,
                     const std::string& how) {
  Call call;
  std::string parameters = operands_.parameters();
  call.arguments = operands_.arguments();
  for (const Partial& partial : partials) {
    parameters += (parameters.empty() ? "" : ",\n    ") + partial.parameter;
    call.arguments.emplace_back(Pointer{Pointer::Base::scratch, 0, partial.bytes});
  }
  const bool is_held = plan_.way == RowWay::held;
  call.source.text = "#include \"" + std::string(is_held ? "row.h" : "long_row.h") +
                     "\"\nusing namespace tensor::device;\n" + numbers_.struct_text() +
                     "extern \"C\" __global__ __launch_bounds__(" + std::to_string(plan_.block) +
                     ") void KERNEL(" + parameters + numbers_.last_parameter() +
                     ") {\nlaunch_next();\n" + body + "}\n";
  call.launch.grid = {static_cast<unsigned>(ceil_div(plan_.rows, plan_.rows_of_block())),
                      static_cast<unsigned>(plan_.splits)};
  call.launch.block = {static_cast<unsigned>(plan_.block)};
  call.launch.overlaps_previous = machine_.overlaps_launches;
  numbers_.add_argument(call.arguments);
  const DType dtype = graph_.type(group_.writes.front()).dtype;
  name_kernel(call, machine_,
              "row_" + std::string(name(dtype)) + "_" + names_of(graph_, group_) +
                  (machine_.any_extent ? "" : "_" + std::to_string(plan_.columns)) + how);
  return call;
}

double row_computing_us(const BlockShape& shape, const Graph& graph, const Group& group,
                        const Machine& machine) {
  double compute = 0;
  for (const ValueId id : group.nodes) {
    const bool by_row = shape.members.at(id) == BlockExtent::row && is_elementwise(graph[id].op);
    compute +=
        computing_us(machine, graph[id].op,
                     static_cast<double>(by_row ? shape.row_count() : num_elements(shape.extents)));
  }
  return compute;
}

}  // namespace tensor::cuda
