// Products of matrices: the operator matmul, and dot and linear built on it.
#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/gemm.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The axes before the last two.
Dims batch_of(const Dims& dims) {
  return Dims(std::span(dims.begin(), static_cast<std::size_t>(dims.rank() - 2)));
}

Dims matrix_of(const Dims& dims) { return {dims[dims.rank() - 2], dims[dims.rank() - 1]}; }

// Attribute, of float32 on a GPU: tf32.
TensorType infer_matmul(std::span<const TensorType> in, const Attrs& attrs) {
  const Shape &a = in[0].shape, &b = in[1].shape;
  if (in[0].dtype != in[1].dtype || a.rank() < 2 || b.rank() < 2)
    fail("matmul", "got ", in[0], " and ", in[1],
         ", need matrices (or stacks of them) of one element type");
  attrs.flag("tf32", false);
  if (a.back() != b[b.rank() - 2])
    fail("matmul", "cannot multiply the shapes ", a, " and ", b, ": the ", a.back(),
         " columns of the first must be as many as the ", b[b.rank() - 2], " rows of the second");
  Shape shape = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  shape.push_back(a[a.rank() - 2]);
  shape.push_back(b.back());
  return {shape, in[0].dtype};
}

// Whether all matrices of a stack, each below the other, make one matrix with the given strides.
bool is_one_matrix(const Shape& shape, const Strides& strides) {
  for (int axis = 0; axis + 2 < shape.rank(); ++axis)
    if (strides[axis] != strides[axis + 1] * shape[axis + 1]) return false;
  return true;
}

template <class V>
V one_matrix(const V& x) {
  Shape rows = x.shape;
  rows.erase(x.rank() - 1);
  return {x.data, x.dtype, {num_elements(rows), x.shape.back()}, matrix_of(x.strides)};
}

// One product a pair of matrices, of operands that gemm reads in place.
void multiply_stacks(const ConstView& a, const ConstView& b, const View& c) {
  // A stack times one matrix (a linear layer) is a single tall product.
  if (b.rank() == 2 && is_one_matrix(a.shape, a.strides) && is_one_matrix(c.shape, c.strides))
    return gemm(one_matrix(a), b, one_matrix(c));
  const Shape batch = batch_of(c.shape);
  const auto batch_strides = [&](const auto& x) {
    return broadcast_strides(batch_of(x.shape), batch_of(x.strides), batch);
  };
  const auto matrix_at = [](auto x, std::int64_t offset) {
    x.data += offset * item_size(x.dtype);
    x.shape = matrix_of(x.shape);
    x.strides = matrix_of(x.strides);
    return x;
  };
  for_each_index(
      batch,
      [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_c) {
        gemm(matrix_at(a, at_a), matrix_at(b, at_b), matrix_at(c, at_c));
      },
      batch_strides(a), batch_strides(b), batch_strides(c));
}

// Operands are converted and copied as a whole, not once a pair.
void eval_matmul(std::span<const ConstView> in, const Attrs&, const View& out) {
  if (num_elements(out.shape) == 0) return;
  const bool half = out.dtype == f16 || out.dtype == bf16;
  const DType dtype = half ? f32 : out.dtype;
  Tensor copies[2];
  ConstView sides[2] = {in[0], in[1]};
  for (int i = 0; i < 2; ++i) {
    if (!half && (!is_floating(dtype) ||
                  gemm_reads_in_place(matrix_of(in[i].shape), matrix_of(in[i].strides))))
      continue;
    copies[i] = packed(in[i], dtype);
    sides[i] = const_view(copies[i]);
  }
  if (!half) return multiply_stacks(sides[0], sides[1], out);
  const Tensor product = empty(out.shape, f32);
  multiply_stacks(sides[0], sides[1], mutable_view(product));
  convert_elements(const_view(product), out);
}

TensorType infer_all_reduce(std::span<const TensorType> in, const Attrs&) {
  if (in[0].dtype != f32 && in[0].dtype != f64)
    fail("all_reduce", "got ", in[0], ", need f32 or f64");
  return in[0];
}

// One device alone knows its own summand: sums are made by its engine.
void eval_all_reduce(std::span<const ConstView> in, const Attrs&, const View& out) {
  convert_elements(in[0], out);
}

constexpr OpInfo kMatmulRows[] = {
    {Op::matmul, "matmul", 2, 2, Pattern::complex_out_fusable, infer_matmul, eval_matmul},
    {Op::all_reduce, "all_reduce", 1, 1, Pattern::opaque, infer_all_reduce, eval_all_reduce},
};

// Two operands with at least one axis each, brought to their common type.
std::pair<Tensor, Tensor> factors(const Tensor& a, const Tensor& b, std::string_view where) {
  const Tensor both[] = {a, b};
  const DType dtype = result_type(both, where);
  for (const Tensor& x : both)
    if (x.rank() == 0)
      fail(where,
           "got a 0-d tensor, need at least 1 axis: use multiply for a product with a number");
  return {cast(a, dtype), cast(b, dtype)};
}

}  // namespace

std::span<const OpInfo> matmul_ops() { return kMatmulRows; }

Tensor matmul(const Tensor& a, const Tensor& b) {
  auto [left, right] = factors(a, b, "matmul");
  // A 1-d operand is a row on the left, a column on the right; its axis is dropped from the result.
  const bool row = left.rank() == 1, column = right.rank() == 1;
  if (row) left = expand_dims(left, 0);
  if (column) right = expand_dims(right, 1);
  const Tensor product = apply_op(Op::matmul, {left, right});
  Shape shape = product.shape();
  if (column) shape.erase(shape.rank() - 1);
  if (row) shape.erase(shape.rank() - (column ? 1 : 2));
  return row || column ? reshape(product, shape) : product;
}

Tensor dot(const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 || b.rank() == 0) return multiply(a, b);
  if (a.rank() == 1 || b.rank() <= 2) return matmul(a, b);
  if (a.shape(-1) != b.shape(-2))
    fail("dot", "cannot multiply the shapes ", a.shape(), " and ", b.shape(),
         ": the last axis of the first must be as "
         "long as the second to last of the second");
  // b's rows become its first axis: every row of a meets every column of every matrix of b.
  Dims axes{b.rank() - 2}, shape = a.shape();
  shape.erase(a.rank() - 1);
  std::int64_t columns = 1;
  for (int axis = 0; axis < b.rank(); ++axis) {
    if (axis == b.rank() - 2) continue;
    axes.push_back(axis);
    shape.push_back(b.shape(axis));
    columns *= b.shape(axis);
  }
  return reshape(matmul(a, reshape(transpose(b, axes), {b.shape(-2), columns})), shape);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.rank() != 2)
    fail("linear", "got a weight of the shape ", weight.shape(), ", need (outputs, inputs)");
  if (x.rank() == 0 || x.shape(-1) != weight.shape(1))
    fail("linear", "got the shape ", x.shape(), " for a weight of ", weight.shape(), ", need ",
         weight.shape(1), " elements along the last axis");
  const Tensor product = matmul(x, transpose(weight));
  if (!bias.defined()) return product;
  if (!(bias.shape() == Shape{weight.shape(0)}))
    fail("linear", "got a bias of the shape ", bias.shape(), ", need ", Shape{weight.shape(0)});
  return add(product, bias);
}

}  // namespace tensor
