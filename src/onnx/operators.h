// Operators of ONNX: what a node may be, and how it is computed by the functions of tensor/ops.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/storage.h"
#include "src/onnx/graph.h"
#include "tensor/ops.h"
#include "tensor/tensor.h"

namespace tensor::onnx {

class Runner;
using Results = std::vector<Tensor>;

/// A node with its inputs, and access to its attributes, whose kinds were checked before.
class Call {
 public:
  Call(const Node& node, std::vector<Tensor> inputs, Runner& runner)
      : node_(node), inputs_(std::move(inputs)), runner_(runner) {}

  std::int64_t opset() const { return node_.opset; }
  int count() const { return static_cast<int>(inputs_.size()); }
  bool has(int input) const { return input < count() && inputs_[at(input)].defined(); }
  /// Whether the model reads that output.
  bool gives(int output) const {
    return at(output) < node_.outputs.size() && node_.outputs[at(output)] != Node::kNone;
  }
  std::size_t outputs() const { return node_.outputs.size(); }

  /// UserError where the input is left out.
  const Tensor& operator[](int input) const;
  /// Undefined where it is left out.
  Tensor optional(int input) const { return has(input) ? inputs_[at(input)] : Tensor(); }
  const std::vector<Tensor>& all() const { return inputs_; }
  /// An input whose elements are needed now, in this process's memory. UserError where it is
  /// traced.
  Tensor host(int input) const;
  Ints ints(int input) const { return host(input).to_vector<std::int64_t>(); }

  bool has(std::string_view attribute) const { return node_.find(attribute) != nullptr; }
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  Ints ints(std::string_view name, Ints fallback = {}) const;
  const Attribute& attribute(std::string_view name) const;

  /// Runs a graph attribute.
  Results run(std::string_view graph, std::span<const Tensor> inputs) const;

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  const Node& node_;
  std::vector<Tensor> inputs_;
  Runner& runner_;
};

/// Whether x has no elements yet.
inline bool is_traced(const Tensor& x) { return detail::impl(x).recorder != nullptr; }

/// The least and the largest number of a type: infinite where it has such.
std::pair<double, double> limits_of(DType dtype);

/// x[..., start : start + count * step : step, ...] along an axis; the step may be negative.
Tensor sliced(const Tensor& x, int axis, std::int64_t start, std::int64_t count,
              std::int64_t step = 1);

/// A row of the tables of operators.
struct Operator {
  static constexpr int kAny = -1;

  std::string_view name;
  std::int64_t since;  // the first opset in which it means what `run` computes
  int least_inputs, most_inputs, most_outputs;
  /// "axis:i alpha:f": what attributes there may be, and their types: numbers (f, i), texts (s),
  /// tensors (t), graphs (g), and lists of numbers (F, I) or texts (S).
  std::string_view attributes;
  Results (*run)(const Call&);
  /// Why a node that is sound cannot be run, or nothing.
  std::string (*refuses)(const Node&) = nullptr;
};

// One table a family, each in a file of its own.
std::span<const Operator> pointwise_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> gather_operators();
std::span<const Operator> reduce_operators();
std::span<const Operator> conv_operators();
std::span<const Operator> pool_operators();
std::span<const Operator> norm_operators();
std::span<const Operator> product_operators();
std::span<const Operator> resize_operators();
std::span<const Operator> region_operators();
std::span<const Operator> fourier_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> quantize_operators();
std::span<const Operator> select_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> control_operators();

/// All of them, by name.
const std::map<std::string_view, const Operator*>& operator_table();

/// For `refuses`: why the attribute has none of the values, or nothing.
std::string refuse_unless(const Node& node, std::string_view attribute, std::int64_t value);
std::string refuse_unless(const Node& node, std::string_view attribute,
                          std::initializer_list<std::string_view> texts);

}  // namespace tensor::onnx
