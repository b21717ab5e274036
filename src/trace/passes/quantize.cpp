#include "src/trace/passes/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "src/trace/derived.h"
#include "src/trace/group.h"
#include "src/trace/passes/byte_weights.h"
#include "src/trace/passes/round_rows.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr std::int64_t kLeastExtent = 16;
constexpr float kNormalized = 3;
constexpr std::size_t kMostBehindNorm = 6;  // operators, so that they fit into its kernel

bool is_by_constant(const Graph& graph, ValueId id) {
  return (graph.is_op(id, Op::matmul) || graph.is_op(id, Op::conv2d)) &&
         graph.is_constant(graph[id].inputs[1]);
}

// Whether a product by constants is among what a value is computed of, for every value.
std::vector<bool> behind_products(const Graph& graph) {
  std::vector<bool> result(at(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id)
    for (const ValueId input : graph[id].inputs)
      if (result[at(input)] || is_by_constant(graph, input)) result[at(id)] = true;
  return result;
}

// Whether the caller gets a value, or what operators make of it that read nothing else but
// constants and are no products, for every value.
std::vector<bool> ending(const Graph& graph) {
  std::vector<bool> result(at(graph.size()));
  for (const ValueId id : graph.outputs()) result[at(id)] = true;
  for (ValueId id = graph.size() - 1; id >= 0; --id) {
    const Node& node = graph[id];
    if (!result[at(id)] || node.kind != NodeKind::operation || is_by_constant(graph, id)) continue;
    ValueId only = -1;
    bool is_alone = true;
    for (const ValueId input : node.inputs) {
      if (graph.is_constant(input) || input == only) continue;
      is_alone = is_alone && only < 0;
      only = input;
    }
    if (is_alone && only >= 0) result[at(only)] = true;
  }
  return result;
}

// The numbers that integers stand for: scale * (bytes - zero).
struct Rounded {
  ValueId bytes;  // i8 or u8
  float scale, zero = 0;
};

// A constant that is one number.
std::optional<float> number_of(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id) || graph[id].constant.size() != 1 || graph.type(id).dtype != f32)
    return std::nullopt;
  return graph[id].constant.item<float>();
}

// What ONNX's DequantizeLinear makes of a tensor with one scale.
std::optional<Rounded> rounded(const Graph& graph, ValueId id) {
  if (!graph.is_op(id, Op::multiply)) return std::nullopt;
  for (const std::size_t side : {0, 1}) {
    const auto scale = number_of(graph, graph[id].inputs[side]);
    ValueId centred = graph[id].inputs[1 - side];
    if (!scale || !std::isnormal(*scale)) continue;
    Rounded result{-1, *scale};
    if (graph.is_op(centred, Op::subtract)) {
      const auto zero = number_of(graph, graph[centred].inputs[1]);
      if (!zero) continue;
      result.zero = *zero, centred = graph[centred].inputs[0];
    }
    if (!graph.is_op(centred, Op::astype) || graph.type(centred).dtype != f32) continue;
    result.bytes = graph[centred].inputs[0];
    const DType dtype = graph.type(result.bytes).dtype;
    const bool is_same_shape = graph.type(result.bytes).shape == graph.type(id).shape;
    if ((dtype == i8 || dtype == u8) && is_same_shape && std::abs(result.zero) <= 255)
      return result;
  }
  return std::nullopt;
}

class Quantizer {
 public:
  Quantizer(const Graph& graph, const std::vector<std::string>& wide, bool norms_only,
            const Quantize& quantized, const std::map<std::string, float>& scales,
            std::int64_t channels)
      : graph_(graph),
        norms_only_(norms_only),
        channels_(channels),
        quantized_(quantized),
        scales_(scales),
        readers_(consumers(graph)),
        chosen_(at(graph.size())) {
    for (const auto& [name, scale] : scales_) check_scale(name, scale);
    choose(wide);
    for (ValueId id = 0; id < graph.size(); ++id)
      if (graph.is_op(id, Op::layer_norm)) balance(id);
  }

  Graph run() {
    return rewrite(graph_,
                   [&](Rewriter& r, ValueId id, const Node& node) -> std::optional<ValueId> {
                     const auto factors = factors_.find(id);
                     const Tensor by = factors == factors_.end() ? Tensor() : factors->second;
                     if (node.op == Op::layer_norm && by.defined()) return norm(r, node, by);
                     if (chosen_[at(id)]) return product(r, node, by);
                     return by.defined() ? wide_product(r, node, by) : std::nullopt;
                   });
  }

 private:
  void choose(const std::vector<std::string>& wide) {
    const std::vector<bool> behind = behind_products(graph_), ends = ending(graph_);
    std::vector<bool> is_known(wide.size());
    for (ValueId id = 0; id < graph_.size(); ++id) {
      if (!is_by_constant(graph_, id)) continue;
      bool is_excluded = false;
      for (std::size_t i = 0; i < wide.size(); ++i)
        if (matches(graph_[id].where, wide[i])) is_known[i] = is_excluded = true;
      chosen_[at(id)] =
          !is_excluded && can_be_bytes(graph_[id]) &&
          (is_of_bytes(graph_[id]) ||
           (behind[at(graph_[id].inputs[0])] && !ends[at(id)] &&
            (!norms_only_ || scale_of(graph_[id]) || is_by_norm(graph_[id].inputs[0]))));
    }
    for (std::size_t i = 0; i < wide.size(); ++i)
      if (!is_known[i]) refuse("exclude \"" + wide[i] + "\"", ", where * stands for any text");
  }

  std::optional<float> scale_of(const Node& product) const {
    const auto found = scales_.find(product.where);
    return found == scales_.end() ? std::nullopt : std::optional(found->second);
  }

  // That some product has the name, and the scale an inverse.
  void check_scale(const std::string& name, float scale) const {
    constexpr float kMost = 1 / kLeastMagnitude;
    if (!(scale >= kLeastMagnitude / kMostByte && scale <= kMost))
      fail("compile", "got the scale ", scale, " for \"", name, "\", need a number from ",
           kLeastMagnitude / kMostByte, " to ", kMost, ", as calibrate() finds it");
    for (ValueId id = 0; id < graph_.size(); ++id)
      if (is_by_constant(graph_, id) && graph_[id].where == name) return;
    refuse("a scale for \"" + name + "\"", "");
  }

  // Whether the kernel of a layer_norm can make these rows.
  bool is_by_norm(ValueId rows) const {
    const Shape& shape = graph_.type(rows).shape;
    std::vector<ValueId> open = {rows};
    for (std::size_t next = 0; next < open.size() && next < kMostBehindNorm; ++next) {
      const ValueId id = root_of(graph_, open[next]);
      if (graph_.is_op(id, Op::layer_norm)) return true;
      if (!is_compute(graph_, id) || info(graph_[id].op).pattern != Pattern::elementwise) continue;
      for (const ValueId input : graph_[id].inputs)
        if (num_elements(graph_.type(input).shape) == num_elements(shape)) open.push_back(input);
    }
    return false;
  }

  bool is_of_bytes(const Node& product) const {
    return product.op == Op::matmul && rounded(graph_, product.inputs[0]);
  }

  [[noreturn]] void refuse(const std::string& what, std::string_view more) const {
    std::string some;
    for (ValueId id = 0; id < graph_.size() && some.empty(); ++id)
      if (is_by_constant(graph_, id)) some = graph_[id].where;
    fail("compile", "got ", what, ", which no product by constants matches: need ",
         "names as report() has them, such as \"", some, "\"", more);
  }

  bool has_image_kernel(const Node& conv) const {
    return !norms_only_ || (channels_ > 0 && scale_of(conv) &&
                            graph_.type(conv.inputs[0]).shape[1] % channels_ == 0);
  }

  bool can_be_bytes(const Node& node) {
    if (node.type.dtype != f32 || graph_.is_constant(node.inputs[0])) return false;
    const Shape& shape = graph_.type(node.inputs[1]).shape;
    const bool is_image = node.op == Op::conv2d;
    if (is_image && (node.attrs.integer("groups") != 1 || !has_image_kernel(node))) return false;
    if (!is_image && shape.rank() != 2) return false;
    const std::int64_t depth = is_image ? shape[1] * shape[2] * shape[3] : shape[0],
                       columns = is_image ? shape[0] : shape[1];
    if (depth < kLeastExtent || depth > kMostByteDepth || columns < kLeastExtent) return false;
    const auto& largest = largest_of(node.inputs[1]);
    return std::all_of(largest.begin(), largest.end(), [](float x) { return std::isfinite(x); });
  }

  const std::vector<float>& largest_of(ValueId weights) {
    auto [known, is_new] = largest_.try_emplace(weights);
    if (is_new) known->second = largest_of_rows(matrix_of(graph_[weights].constant));
    return known->second;
  }

  // The products by constants that read the rows of a value, as their left operand, themselves or
  // through views of whole rows; nullopt if anything else reads it.
  std::optional<std::vector<ValueId>> products_of(ValueId norm) const {
    std::vector<ValueId> open = {norm}, found;
    for (std::size_t next = 0; next < open.size(); ++next) {
      const ValueId value = open[next];
      if (std::count(graph_.outputs().begin(), graph_.outputs().end(), value)) return std::nullopt;
      for (const ValueId reader : readers_[at(value)]) {
        const Node& node = graph_[reader];
        if (is_view_of_rows(node))
          open.push_back(reader);
        else if (node.op == Op::matmul && is_by_constant(graph_, reader) &&
                 graph_.type(node.inputs[1]).shape.rank() == 2)
          found.push_back(reader);
        else
          return std::nullopt;
      }
    }
    return found;
  }

  bool is_view_of_rows(const Node& node) const {
    if (info(node.op).pattern != Pattern::view) return false;
    const Shape& from = graph_.type(node.inputs[0]).shape;
    const int last = node.type.shape.rank() - 1;
    if (last < 0 || from.rank() == 0 || node.type.shape.back() != from.back()) return false;
    if (node.op == Op::transpose) return node.attrs.dims("axes")[last] == from.rank() - 1;
    return node.op != Op::slice || node.attrs.dims("step")[last] == 1;
  }

  void balance(ValueId norm) {
    const Node& node = graph_[norm];
    const auto products = products_of(norm);
    const bool is_worth_it = products && std::any_of(products->begin(), products->end(),
                                                     [&](ValueId id) { return chosen_[at(id)]; });
    if (!is_worth_it || node.type.dtype != f32 || node.inputs.size() < 2) return;
    for (std::size_t i = 1; i < node.inputs.size(); ++i)
      if (!graph_.is_constant(node.inputs[i])) return;
    std::vector<float> size = graph_[node.inputs[1]].constant.to_vector<float>(), bias(size.size());
    if (node.inputs.size() > 2) bias = graph_[node.inputs[2]].constant.to_vector<float>();
    std::vector<float> most(size.size());
    for (const ValueId id : *products) {
      const auto& own = largest_of(graph_[id].inputs[1]);
      for (std::size_t j = 0; j < most.size(); ++j) most[j] = std::max(most[j], own[j]);
    }
    for (std::size_t j = 0; j < size.size(); ++j) {
      const float factor =
          std::sqrt((kNormalized * std::abs(size[j]) + std::abs(bias[j])) / most[j]);
      size[j] = std::isnormal(factor) ? factor : 1;
    }
    factors_[norm] = array(size);
    for (const ValueId id : *products) factors_[id] = factors_[norm];
  }

  std::optional<ValueId> norm(Rewriter& r, const Node& node, const Tensor& by) const {
    std::vector<ValueId> inputs = r.inputs(node);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const Node& constant = graph_[node.inputs[i]];
      inputs[i] = r.to().add_constant(constant.constant / by, constant.where);
    }
    return r.to().add(node.op, std::move(inputs), node.attrs, node.where);
  }

  std::optional<ValueId> product(Rewriter& r, const Node& node, const Tensor& by) {
    const Node& constant = graph_[node.inputs[1]];
    std::vector<Tensor> from = {constant.constant};
    if (by.defined()) from.push_back(by);
    const auto part = [&](const char* what, auto* make) {
      const Tensor made =
          derived_for_others(r.to(), what, from, [weights = from[0], by, make, use = quantized_] {
            return make(matrix_of(weights), by, use);
          });
      return r.to().add_constant(made, constant.where);
    };
    const ValueId weights = part("bytes", bytes_of);
    ValueId scales = part("scales of bytes", scales_of), x = r(node.inputs[0]);
    const auto rows = node.op == Op::matmul ? rounded(graph_, node.inputs[0]) : std::nullopt;
    if (rows) return of_bytes(r, node, *rows, weights, scales);
    Attrs attrs;
    if (const auto scale = scale_of(node)) {
      x = bytes_by(r.to(), x, *scale, node.where);
      scales = r.to().add_constant(r.to()[scales].constant * *scale, node.where);
      attrs.set(kSymmetric, true);
    }
    if (node.op == Op::conv2d) return convolution(r, node, {x, weights, scales}, std::move(attrs));
    return r.to().add(Op::quantized_matmul, {x, weights, scales}, std::move(attrs), node.where);
  }

  // A value as bytes by one scale, made once. Views are of what the kernel behind them rounds.
  ValueId bytes_by(Graph& to, ValueId x, float scale, const std::string& where) {
    if (const auto known = bytes_.find({x, scale}); known != bytes_.end()) return known->second;
    const Node node = to[x];
    const bool is_view = node.kind == NodeKind::operation && info(node.op).pattern == Pattern::view;
    const ValueId result =
        is_view ? to.add(node.op, {bytes_by(to, node.inputs[0], scale, where)}, node.attrs, where)
                : add_rounding(to, x, scale, where);
    return bytes_[{x, scale}] = result;
  }

  // The numbers that belong to operands of quantized_conv2d.
  ValueId convolution(Rewriter& r, const Node& node, std::vector<ValueId> operands,
                      Attrs attrs) const {
    const Shape& filters = graph_.type(node.inputs[1]).shape;
    attrs.set("kernel", Ints{filters[2], filters[3]});
    for (const char* name : {"stride", "padding", "dilation"})
      attrs.set(name, node.attrs.ints(name));
    const ValueId sums =
        r.to().add(Op::quantized_conv2d, std::move(operands), std::move(attrs), node.where);
    if (node.inputs.size() < 3) return sums;
    const ValueId bias = r.reshaped(r(node.inputs[2]), {filters[0], 1, 1}, node.where);
    return r.to().add(Op::add, {sums, bias}, {}, node.where);
  }

  // Of integers x with a scale s and a zero z: (x w) s - z (sums of the columns of w) s.
  ValueId of_bytes(Rewriter& r, const Node& node, Rounded rows, ValueId weights,
                   ValueId scales) const {
    ValueId x = r(rows.bytes);
    if (r.to().type(x).dtype == u8) {  // 128 less, as i8
      const ValueId wide = r.to().add(Op::astype, {x}, {{"dtype", f32}}, node.where);
      const ValueId middle = r.to().add_constant(full({}, 128, f32), node.where);
      x = r.to().add(Op::subtract, {wide, middle}, {}, node.where);
      x = r.to().add(Op::astype, {x}, {{"dtype", i8}}, node.where);
      rows.zero -= 128;
    }
    const Tensor by = r.to()[scales].constant * rows.scale;
    const ValueId sums = r.to().add(
        Op::quantized_matmul, {x, weights, r.to().add_constant(by, node.where)}, {}, node.where);
    if (rows.zero == 0) return sums;
    const Tensor shift = sums_of_columns(r.to()[weights].constant, by.size()) * by * -rows.zero;
    return r.to().add(Op::add, {sums, r.to().add_constant(shift, node.where)}, {}, node.where);
  }

  // One that stays float32, behind a norm that was balanced.
  std::optional<ValueId> wide_product(Rewriter& r, const Node& node, const Tensor& by) const {
    const Node& constant = graph_[node.inputs[1]];
    const Tensor weights = constant.constant;
    const Tensor made = derived_for_others(r.to(), "rows scaled", {weights, by}, [weights, by] {
      return transpose(transpose(weights) * by);
    });
    return r.to().add(node.op, {r(node.inputs[0]), r.to().add_constant(made, constant.where)},
                      node.attrs, node.where);
  }

  const Graph& graph_;
  const bool norms_only_;
  const std::int64_t channels_;
  const Quantize& quantized_;
  const std::map<std::string, float>& scales_;
  const std::vector<std::vector<ValueId>> readers_;
  std::vector<bool> chosen_;
  std::map<ValueId, std::vector<float>> largest_;  // of the rows of weights
  std::map<ValueId, Tensor> factors_;  // of balanced norms, and of the products that read them
  std::map<std::pair<ValueId, float>, ValueId> bytes_;  // of values of the new graph, by one scale
};

}  // namespace

bool matches(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t begin = star; begin <= text.size(); ++begin)
    if (matches(text.substr(begin), rest)) return true;
  return false;
}

Graph quantize_products(const Graph& graph, const std::vector<std::string>& wide, bool norms_only,
                        const Quantize& quantized, const std::map<std::string, float>& scales,
                        std::int64_t channels) {
  return Quantizer(graph, wide, norms_only, quantized, scales, channels).run();
}

}  // namespace tensor
