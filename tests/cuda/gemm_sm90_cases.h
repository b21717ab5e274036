// Products on Hopper: a small set of schedules that covers, and what they are tried on.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/sm90.h"
#include "src/ops/op.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/cuda/machines.h"

namespace tensor::cuda {

using Tensors = std::vector<Tensor>;

// A small set that covers: both orientations, one to three groups, odd numbers of column blocks,
// depth split among two blocks and among three with a rest, weights shared by two blocks.
inline const std::vector<GemmSchedule> kSchedules = {
    {104, 64, 4, 1, 1, true},
    {200, 64, 3, 1, 1, true},
    {72, 128, 4, 2, 1, true},
    {96, 128, 4, 2, 1, true},
    {8, 64, 2, 1, 1, true},
    {144, 192, 3, 3, 1, true},
    {64, 64, 4, 1, 1, false},
    {128, 128, 5, 2, 1, false},
    {128, 256, 3, 2, 1, false},
    {192, 128, 3, 3, 1, false},
    {64, 256, 2, 1, 1, false},
    {128, 64, 4, 2, 1, false},
    {64, 64, 4, 2, 1, false, true},
    {40, 192, 4, 3, 1, true},
    {128, 128, 5, 2, 2, false, true},
    {256, 128, 3, 2, 2, false},
    {.tile_m = 112, .tile_n = 64, .stages = 2, .swapped = true, .splits = 2},
    {.tile_m = 128, .tile_n = 128, .stages = 2, .groups = 2, .swapped = true, .splits = 3},
    {.tile_m = 128, .tile_n = 256, .stages = 3, .groups = 2, .shares = 2},
    {.tile_m = 128,
     .tile_n = 128,
     .stages = 5,
     .groups = 2,
     .blocks = 2,
     .takes_turns = true,
     .shares = 2}};

// As many sums as there are registers for.
inline const GemmSchedule kWide = {.tile_m = 128,
                                   .tile_n = 192,
                                   .stages = 4,
                                   .groups = 2,
                                   .blocks = 2,
                                   .takes_turns = true,
                                   .shares = 2};

// Ten panels of floats a group, more than there are buffers and no multiple of those.
inline const GemmSchedule kTenPanels = {
    .tile_m = 128, .tile_n = 160, .stages = 4, .groups = 2, .blocks = 2, .takes_turns = true};

inline std::vector<GemmSchedule> with_wide() {
  std::vector<GemmSchedule> all = kSchedules;
  all.push_back(kWide);
  return all;
}

// As cast_norms makes it.
inline Tensor normalized(const Tensor& rows, const Tensor& sums, const Tensor& gain,
                         const Tensor& shift) {
  const Tensor wide = rows.astype(f32);
  return apply_op(Op::layer_norm_by_sums, {wide, gain, shift, sums}, {{"eps", 1e-5}})
      .astype(rows.dtype());
}
inline Tensor row_sums(const Tensor& rows) { return apply_op(Op::row_sums, {rows}); }

inline GemmProblem problem_of(const LaidOutGraph& laid, const Group& group) {
  auto product = match_product(laid.graph, group);
  if (!product) product = match_normalized_product(laid.graph, group);
  return gemm_problem(laid.graph, group, *product);
}
// Why there is no such kernel of the group.
inline std::string fault(const GemmSchedule& s, const LaidOutGraph& laid, const Group& group) {
  return s.fault(h200().device.shared_block_bytes, problem_of(laid, group));
}
inline std::string fault(const GemmSchedule& s, const emulator::GroupCase& c) {
  return fault(s, c.laid(), c.groups().front());
}

// What is stored as it comes, and with all that may be fused.
inline emulator::GroupCase product_case(Generator& random, std::int64_t m, std::int64_t n,
                                        std::int64_t k, bool is_fused) {
  const auto normal = [&](const Shape& shape, DType dtype) {
    return random.normal(shape).astype(dtype);
  };
  const Tensor w = normal({n, k}, f16), bias = normal({n}, f32);
  const TensorFunction plain = [=](const Tensors& in) -> Tensors {
    return {matmul(in[0], w.transpose())};
  };
  const TensorFunction fused = [=](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w.transpose()).astype(f32) + bias + in[1];
    return {sum, gelu(sum).astype(f16)};
  };
  const Tensor x = normal({m, k}, f16);
  if (!is_fused) return emulator::GroupCase(plain, {x});
  return emulator::GroupCase(fused, {x, normal({m, n}, f32)});
}

// LayerNorm before a product, of rows far from zero; weights of the norm about as large as `gain`.
inline emulator::GroupCase normalized_case(Generator& random, std::int64_t m, std::int64_t n,
                                           std::int64_t k, DType dtype, double gain,
                                           bool is_plain) {
  const Tensor w = random.normal({k, n}).astype(dtype), bias = random.normal({n}),
               weight = random.normal({k}) * gain, shift = random.normal({k}) * gain;
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor product = matmul(normalized(in[0], in[1], weight, shift), w);
    if (is_plain) return {product};
    return {gelu(product.astype(f32) + bias).astype(dtype), product.astype(f32) * 2};
  };
  const Tensor means = random.normal({m, 1}) * 8, x = random.normal({m, k}) * 3;
  const Tensor rows = (x + means).astype(dtype);
  return emulator::GroupCase(f, {rows, row_sums(rows)});
}

// What makes such rows: a residual's sum, stored twice or narrow only, and the sums of its rows.
inline emulator::GroupCase summed_case(Generator& random, const Shape& batch, std::int64_t m,
                                       std::int64_t n, std::int64_t k, DType dtype,
                                       bool is_narrow = false) {
  const Tensor w = random.normal({k, n}).astype(dtype), bias = random.normal({n});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w).astype(f32) + bias + in[1].astype(f32),
                 rows = sum.astype(dtype);
    if (is_narrow) return {rows, row_sums(rows)};
    return {sum, rows, row_sums(rows)};
  };
  const auto normal = [&](std::int64_t width) {
    Shape shape = batch;
    shape.push_back(m);
    shape.push_back(width);
    return random.normal(shape);
  };
  const Tensor residual = normal(n) * 20 + 8;
  return emulator::GroupCase(
      f, {normal(k).astype(dtype), is_narrow ? residual.astype(dtype) : residual});
}

// `processors`: fewer than there are, so that a block has several tiles.
inline emulator::GroupCase::Lower by(const GemmSchedule& s, int processors = 0) {
  return [=](const LaidOutGraph& laid, const Group& group, Machine machine) {
    if (processors > 0) machine.device.multiprocessors = processors;
    return lower_gemm_sm90(laid, group, machine, s);
  };
}

}  // namespace tensor::cuda
