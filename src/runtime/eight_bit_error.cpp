#include "src/runtime/eight_bit_error.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/ops/eight_bits.h"
#include "src/ops/pack.h"
#include "src/ops/pair.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr std::int64_t kMostRows = 32;

// Up to so many rows, from all over.
Tensor some_of(const ConstView& rows) {
  const std::int64_t depth = rows.shape.back(), count = num_elements(rows.shape) / depth;
  const Tensor all = reshape(packed(rows, f32), {count, depth});
  std::vector<Tensor> some;
  for (std::int64_t i = 0, most = std::min(count, kMostRows); i < most; ++i)
    some.push_back(all(count * i / most));
  return stack(some);
}

// The same of what the filters of a convolution lie on.
Tensor some_windows(const ConstView& images, const Node& node) {
  const auto pair = [&](std::string_view name) { return pair_of(node.attrs, name, 0, "conv"); };
  const Pair kernel = pair("kernel"), stride = pair("stride"), padding = pair("padding"),
             dilation = pair("dilation");
  const Tensor all =
      pad(packed(images, f32), {{0, 0}, {0, 0}, {padding.h, padding.h}, {padding.w, padding.w}});
  const std::int64_t height = node.type.shape[2], width = node.type.shape[3],
                     count = node.type.shape[0] * height * width;
  std::vector<Tensor> some;
  for (std::int64_t i = 0, most = std::min(count, kMostRows); i < most; ++i) {
    const std::int64_t at = count * i / most, y = at / width % height * stride.h,
                       x = at % width * stride.w;
    const Tensor window = all(at / (height * width), all_of_axis,
                              slice(y, y + (kernel.h - 1) * dilation.h + 1, dilation.h),
                              slice(x, x + (kernel.w - 1) * dilation.w + 1, dilation.w));
    some.push_back(transpose(window, {1, 2, 0}).reshape({-1}));
  }
  return stack(some);
}

double sum_of_squares(const Tensor& x) { return sum(square(x.astype(f64))).item(); }

// The sum of squares of the weights as they are multiplied.
double squares_of_weights(const Tensor& strips, const Tensor& scales, std::int64_t depth) {
  const std::vector<std::int8_t> bytes = strips.to_vector<std::int8_t>();
  const std::vector<double> by = scales.to_vector<double>();
  const std::int64_t strip_bytes = strips.shape(1) * kByteColumns * kByteWord;
  double total = 0;
  for (std::size_t n = 0; n < by.size(); ++n) {
    const auto column = static_cast<std::int64_t>(n);
    const std::int8_t* strip = bytes.data() + column / kByteColumns * strip_bytes;
    double squares = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      const double byte = strip[byte_place(k, column)];
      squares += byte * byte;
    }
    total += squares * by[n] * by[n];
  }
  return total;
}

}  // namespace

double eight_bit_error(const Graph& graph, ValueId product, const ConstView& rows) {
  if (num_elements(rows.shape) == 0) return 0;
  const Node& node = graph[product];
  const bool is_image = node.op == Op::quantized_conv2d;
  const Tensor x = is_image ? some_windows(rows, node) : some_of(rows),
               weights = graph[node.inputs[1]].constant, scales = graph[node.inputs[2]].constant;
  const Tensor steps = rows.dtype == i8
                           ? ones({x.shape(0)}, f32)
                           : maximum(max(abs(x), Axes(1)), kLeastMagnitude) / kMostByte;
  const double result = sum_of_squares(apply_op(Op::quantized_matmul, {x, weights, scales}));
  const double added = (sum_of_squares(x) * sum_of_squares(scales) +
                        sum_of_squares(steps) * squares_of_weights(weights, scales, x.shape(1))) /
                       12;
  return result > 0 ? std::sqrt(added / result) : 0;
}

ValueId quantized_product(const detail::Program& program, std::size_t step) {
  const int index = program.engine->steps()[step].group;
  if (index < 0) return -1;
  for (const ValueId id : program.plan.groups[static_cast<std::size_t>(index)].nodes)
    if (is_quantized(program.laid.graph, id)) return id;
  return -1;
}

bool is_by_one_scale(const Graph& graph, ValueId product) {
  const auto& inputs = graph[product].inputs;
  return graph.type(inputs[0]).dtype == i8 && inputs.size() == 3;
}

const std::string& name_of_product(const Graph& graph, ValueId product, std::string_view who) {
  const std::string& name = graph[product].where;
  if (name.empty())
    fail(who, "got a product by ", graph.type(product),
         " that has no name: need CompileOptions::names, such as nn::state_dict gives");
  return name;
}

void watch_products(const detail::Program& program, const std::vector<Tensor>& inputs,
                    const ShowRows& show) {
  bool any = false;
  for (std::size_t step = 0; step < program.engine->steps().size(); ++step)
    any = any || quantized_product(program, step) >= 0;
  if (!any) return;
  const Graph& graph = program.laid.graph;
  program.engine->watch(inputs, [&](std::size_t step, std::span<std::byte* const> operands) {
    const ValueId product = quantized_product(program, step);
    if (product < 0) return;
    const Group& group =
        program.plan.groups[static_cast<std::size_t>(program.engine->steps()[step].group)];
    const ValueId rows = graph[product].inputs[0];
    const auto place = std::find(group.reads.begin(), group.reads.end(), rows);
    if (place == group.reads.end()) return;
    const TensorType& type = graph.type(rows);
    show(step, product,
         {operands[static_cast<std::size_t>(place - group.reads.begin())], type.dtype, type.shape,
          program.laid.layouts[at(rows)].strides});
  });
}

std::vector<double> added_errors(const detail::Program& program,
                                 const std::vector<Tensor>& inputs) {
  std::vector<double> errors(program.engine->steps().size());
  const Graph& graph = program.laid.graph;
  watch_products(program, inputs, [&](std::size_t step, ValueId product, const ConstView& rows) {
    errors[step] = eight_bit_error(graph, product, rows);
  });
  return errors;
}

}  // namespace tensor
