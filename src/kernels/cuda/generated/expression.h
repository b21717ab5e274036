// Elementwise operators as device text, for kernels of their own and for epilogues alike. The text
// needs templates/numbers.h and its namespace.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/trace/graph.h"

namespace tensor::cuda {

class Extents;

/// How elements are stored: "float", "Half", "Bfloat16", "int", "long long", "bool", ...
std::string_view device_type(DType dtype);
/// What they are calculated in: "float" for the 16-bit floats, otherwise device_type.
std::string_view compute_type(DType dtype);

/// One element of a group of elementwise operators.
struct ElementCode {
  /// What the body reads from outside: before it, `name` must hold the element of `value`,
  /// broadcast to `as`, in its compute type.
  struct Load {
    ValueId value;
    std::string name;
    Shape as;
  };
  std::vector<Load> loads;
  /// Statements that declare one constant a node, each in its compute type: nothing is rounded to
  /// 16 bits before it is stored.
  std::string body;
  /// Of every node and given value: its name.
  std::map<ValueId, std::string> results;
  /// Of every node: the shape whose elements are calculated. Its own, unless it is broadcast inside
  /// the group: then the one it is broadcast to.
  std::map<ValueId, Shape> shapes;
};

/// `nodes` ascending; `given` names values that are already in variables (a product's float sum,
/// say), right wherever the nodes read them. Elements are counted in row-major order over the
/// shapes, so that a reshape inside the group changes nothing. Constants of one number without
/// axes become literals; with axes they are read, and groups that differ by them have equal texts.
/// nullopt when an operator or type has no device text, or when some node is needed at
/// more than one place of its own.
std::optional<ElementCode> element_code(const Graph& graph, std::span<const ValueId> nodes,
                                        const std::map<ValueId, std::string>& given = {});

/// The offset, in elements, of the element at position `linear` of `extents` in row-major order: a
/// C++ expression of an int variable or an expression in parentheses. Axes are merged where they
/// can be; what is left is divided by literals.
std::string offset_text(const Shape& extents, const Strides& strides, const std::string& linear);
/// The same with the numbers of `numbers`. Expressions of one `space`, an identifier, are of the
/// same extents, and share what they divide by.
std::string offset_text(const Shape& extents, const Strides& strides, const std::string& linear,
                        Extents& numbers, const std::string& space);

/// A number as a literal of a compute type.
std::string literal(double value, DType dtype);
std::string literal(std::int64_t value, DType dtype);

/// "  static constexpr int kName = 3;\n", or of long long.
std::string constant_text(const char* name, std::int64_t value);
/// "  static constexpr bool kName = true;\n".
std::string flag_text(const char* name, bool value);

}  // namespace tensor::cuda
