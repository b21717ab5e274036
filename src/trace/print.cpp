// Graphs as text: one node a line, and Graphviz.
#include <ostream>

#include "src/trace/graph.h"
#include "tensor/text.h"

namespace tensor {
namespace {

void print_call(TextWriter& out, const Node& node) {
  out << info(node.op).name << '(';
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    out << (i > 0 ? ", %" : "%") << node.inputs[i];
  if (!node.attrs.entries().empty()) out << (node.inputs.empty() ? "" : ", ") << node.attrs;
  out << ')';
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::ostream& operator<<(std::ostream& to, const Graph& graph) {
  TextWriter out;
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    out << '%' << id << " = ";
    if (node.kind == NodeKind::input)
      out << "input";
    else if (node.kind == NodeKind::constant)
      out << "constant";
    else
      print_call(out, node);
    out << " : " << node.type;
    if (!node.where.empty()) out << "  # " << node.where;
    out << '\n';
  }
  out << "return";
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    out << (i > 0 ? ", %" : " %") << graph.outputs()[i];
  out << '\n';
  for (const std::string& check : graph.checks()) out << "check " << check << '\n';
  return to << out.str();
}

std::string to_dot(const Graph& graph) {
  TextWriter out;
  out << "digraph tensor {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.kind == NodeKind::constant) continue;
    TextWriter label;
    label << (node.kind == NodeKind::input ? "input" : info(node.op).name);
    if (!node.where.empty()) label << "\\n" << escaped(node.where);
    out << "  v" << id << " [label=\"" << label.str() << '"';
    if (node.kind == NodeKind::input) out << ", shape=oval";
    out << "];\n";
    for (const ValueId input : node.inputs)
      if (!graph.is_constant(input))
        out << "  v" << input << " -> v" << id << " [label=\"" << graph.type(input) << "\"];\n";
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    out << "  out" << i << " [label=\"output " << i << "\", shape=oval];\n  v" << graph.outputs()[i]
        << " -> out" << i << ";\n";
  out << "}\n";
  return out.str();
}

}  // namespace tensor
