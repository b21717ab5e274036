// The families product and tiles: matmul and conv2d by vector instructions, or in bf16 by tile
// instructions (AMX), with whatever elementwise operators follow. Convolutions are products whose
// rows are gathered from the image, a part of them at a time. Constant weights are packed once.
#include <algorithm>

#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/product/kernel.h"
#include "src/kernels/elementwise.h"

namespace tensor::cpu {
namespace {

struct Speed {
  double Machine::*rate;
  double share;       // of that, in a large product
  double dispatches;  // what a start costs; less where no library lies in between and both wait
};

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine,
                                       const AnchoredProduct& product, const Unit& unit,
                                       const Speed& speed) {
  const Graph& graph = alone.laid.graph;
  const Node& node = graph[product.anchor];
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  const Work work = work_of(graph, alone.group);
  // Sums that a program finishes come from the first-level cache, gathered rows go through the
  // second.
  const auto operators = static_cast<double>(operator_count(graph, product.epilogue.nodes));
  const double finished = operators > 0 ? elements(product.result) * (1 + operators) : 0;
  double gathered = 0, packed = 0, zeros = 1;
  if (node.op == Op::conv2d) {
    const Shape& filters = graph.type(node.inputs[1]).shape;
    const double groups = static_cast<double>(node.attrs.integer("groups"));
    const double columns = static_cast<double>(node.type.shape[1]);
    zeros = static_cast<double>(bundles_of(node, filters, unit).groups);
    gathered = elements(product.anchor) / columns * groups * elements(node.inputs[1]) / columns *
               static_cast<double>(item_size(unit.taken));
  }
  if (!graph.is_constant(node.inputs[1])) packed = elements(node.inputs[1]);
  const double rounded = product.left == node.inputs[0] ? 0 : elements(product.left);
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double others = finished / (4 * m.simple_gops) + gathered / m.cache_gbps +
                              (packed + rounded) / m.simple_gops;
        const double compute = zeros * work.flops / (speed.share * m.*speed.rate) + others;
        const double bandwidth = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return speed.dispatches * m.dispatch_us + std::max(compute, work.bytes / bandwidth) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return product_kernel(one.laid, one.group, product, m, unit);
      });
}

DType factor_type(const Graph& graph, const AnchoredProduct& product) {
  return graph.type(graph[product.anchor].inputs[0]).dtype;
}

std::optional<Implementation> consider_tiles(const Isolated& alone, const Machine& machine) {
  if (machine.tile_gflops <= 0) return std::nullopt;
  auto product = match_product(alone.laid.graph, alone.group, true);
  if (!product || is_quantized(alone.laid.graph, product->anchor)) return std::nullopt;
  product = with_sums_stored(alone.laid, *product);
  const auto unit = tiles_for(factor_type(alone.laid.graph, *product), machine);
  if (!unit) return std::nullopt;
  return consider(alone, machine, *product, *unit, {&Machine::tile_gflops, 0.5, 0.9});
}

std::optional<Implementation> consider_vectors(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  auto product = match_product(graph, alone.group, machine.has_bf16);
  if (!product || is_quantized(graph, product->anchor)) return std::nullopt;
  product = with_sums_finished(alone.laid, *product);
  const Unit unit = vectors_for(factor_type(graph, *product), machine);
  if (product->left != graph[product->anchor].inputs[0] && unit.taken != bf16) return std::nullopt;
  const auto rate = unit.taken == bf16 ? &Machine::bf16_gflops : &Machine::f32_gflops;
  // Measured against oneDNN: with AVX2 our convolutions are as fast or faster, with AVX-512 our
  // products in float32 (0.93 to 1.08 times its speed on one core of a Xeon), which wait for no
  // threads of OpenMP, either. Its products with AVX2, whose estimate is less, are some 3 % faster.
  const bool is_image = graph.is_op(product->anchor, Op::conv2d);
  Speed speed{rate, 0.8, 1.1};
  if (is_image && simd::table().lanes == 8) speed = {rate, 0.92, 0.9};
  if (!is_image && simd::table().lanes == 16 && unit.taken == f32) speed = {rate, 1.02, 0.9};
  return consider(alone, machine, *product, unit, speed);
}

}  // namespace

const Family kProduct = {"product", consider_vectors};
const Family kTileProduct = {"tiles", consider_tiles};

}  // namespace tensor::cpu
