#include "src/kernels/cuda/gemm/norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/host/weights.h"
#include "tensor/creation.h"

namespace tensor::cuda {
namespace {

// Whether only `reader` reads `id`, a member of the group.
bool is_read_by(const Graph& graph, const Group& group, ValueId id, ValueId reader) {
  if (std::count(group.writes.begin(), group.writes.end(), id) > 0) return false;
  return std::all_of(group.nodes.begin(), group.nodes.end(), [&](ValueId node) {
    const auto& in = graph[node].inputs;
    return node == reader || std::count(in.begin(), in.end(), id) == 0;
  });
}

bool is_member(const Group& group, ValueId id) {
  return std::binary_search(group.nodes.begin(), group.nodes.end(), id);
}

bool is_read(const Group& group, ValueId id) {
  return std::count(group.reads.begin(), group.reads.end(), id) > 0;
}

// In float32, dense.
std::vector<float> numbers_of(const Tensor& x) { return x.to_vector<float>(); }

// The power of two next to the largest of these.
float scale_of(const std::vector<float>& numbers) {
  float largest = 0;
  for (const float x : numbers)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return largest > 0 ? std::exp2(std::round(std::log2(largest))) : 1;
}

// In double, in eight sums so that one addition need not wait for the one before.
template <class F>
double sum_of(std::int64_t count, F&& element) {
  double sums[8] = {};
  for (std::int64_t i = 0; i < count; ++i) sums[i % 8] += element(i);
  double sum = 0;
  for (const double x : sums) sum += x;
  return sum;
}

}  // namespace

std::optional<Lead> match_lead(const Graph& graph, const Group& group, ValueId matmul) {
  const ValueId left = graph[matmul].inputs[0], right = graph[matmul].inputs[1];
  const DType dtype = graph.type(left).dtype;
  if (left == right || !is_member(group, left) || !graph.is_op(left, Op::astype))
    return std::nullopt;
  const ValueId normed = graph[left].inputs[0];
  if (!is_member(group, normed) || !graph.is_op(normed, Op::layer_norm_by_sums))
    return std::nullopt;
  const Node& node = graph[normed];
  const ValueId wide = node.inputs[0];
  if (!is_member(group, wide) || !graph.is_op(wide, Op::astype) || node.type.dtype != f32)
    return std::nullopt;
  Lead lead{graph[wide].inputs[0], {}, {wide, normed, left}};
  if (graph.type(lead.input).dtype != dtype || !is_read(group, lead.input)) return std::nullopt;
  if (!is_read_by(graph, group, wide, normed) || !is_read_by(graph, group, normed, left) ||
      !is_read_by(graph, group, left, matmul))
    return std::nullopt;
  if (!is_read(group, node.inputs[3])) return std::nullopt;
  lead.norm = {node.inputs[1], node.inputs[2], node.inputs[3], node.attrs.number("eps")};
  for (const ValueId id : {lead.norm.weight, lead.norm.bias})
    if (!is_read(group, id) || !graph.is_constant(id)) return std::nullopt;
  return lead;
}

Tensor NormalizedWeights::pack(const Tensor& right, const Tensor& weight,
                               const Tensor& bias) const {
  const int threads = tensor::threads();
  const Tensor rows =
      cpu::spread(right.reshape({k, n}).swapaxes(0, 1), {n, pitch}, {pitch, 1}, threads);
  std::vector<float> scales = numbers_of(weight), shifts = numbers_of(bias);
  const float gain = scale_of(scales);
  for (float& scale : scales) scale /= gain;
  Tensor result = zeros({corrections_at() + (2 * n + 1) * std::int64_t{sizeof(float)}}, u8);
  const std::byte* from = detail::stored(rows).first();
  std::byte* const to = detail::stored(result).first();
  auto* const corrections = reinterpret_cast<float*>(to + corrections_at());
  corrections[2 * n] = gain;
  const auto storage = static_cast<int>(dtype == f16 ? simd::Storage::f16 : simd::Storage::bf16);
  const auto load = simd::table().load[storage];
  const auto store = simd::table().store[storage];
  cpu::parallel_for(threads, n, [&](std::int64_t feature, int) {
    const std::int64_t row = feature * pitch * item_size(dtype);
    std::vector<float> numbers(static_cast<std::size_t>(k));
    float* const x = numbers.data();
    load(x, from + row, 1, k);
    corrections[n + feature] = static_cast<float>(sum_of(k, [&](std::int64_t i) {
      return double{x[i]} * double{shifts[static_cast<std::size_t>(i)]};
    }));
    for (std::int64_t i = 0; i < k; ++i) x[i] *= scales[static_cast<std::size_t>(i)];
    store(to + row, 1, x, k);
    load(x, to + row, 1, k);
    corrections[feature] =
        static_cast<float>(sum_of(k, [&](std::int64_t i) { return double{x[i]}; }));
  });
  return result;
}

}  // namespace tensor::cuda
