// What every kernel and composite of the mathematical operators promises: outputs of any layout,
// and functions that can be traced.
#include <bit>
#include <cstring>

#include "src/ops/op.h"
#include "src/trace/trace.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::layouts;
using check::random_tensor;

// The elements' bytes in row-major order: NaN compares equal to itself, -0 does not equal 0.
std::vector<std::byte> bytes_of(const Tensor& x) {
  const Tensor packed = copy(x);
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.nbytes()));
  if (!bytes.empty()) std::memcpy(bytes.data(), const_view(packed).data, bytes.size());
  return bytes;
}

struct ShapedCall {
  Op op;
  std::vector<Shape> shapes;
  Attrs attrs;
};

const Attrs kDropped = {{"axis", Ints{0, 2}}, {"keepdims", false}, {"ddof", 0.0}};
const Attrs kKept = {{"axis", Ints{1}}, {"keepdims", true}, {"ddof", 1.0}};
const Attrs kDescending = {{"axis", 1}, {"descending", true}};

std::vector<ShapedCall> calls() {
  std::vector<ShapedCall> result;
  for (const Op op : {Op::sum, Op::mean, Op::prod, Op::max, Op::min, Op::var, Op::any, Op::all,
                      Op::argmax, Op::argmin})
    for (const Attrs& attrs : {kDropped, kKept}) result.push_back({op, {{3, 4, 5}}, attrs});
  for (const Op op : {Op::cumsum, Op::sort, Op::argsort, Op::softmax, Op::log_softmax})
    result.push_back({op, {{3, 4, 5}}, kDescending});
  result.push_back({Op::layer_norm, {{3, 4, 5}, {5}, {5}}, {{"eps", 1e-5}}});
  result.push_back({Op::matmul, {{3, 4, 5}, {5, 2}}, {}});
  result.push_back({Op::matmul, {{3, 1, 4, 5}, {2, 5, 6}}, {}});
  return result;
}

TEST(Kernels, WriteOutputsOfAnyLayout) {
  for (const ShapedCall& call : calls())
    for (const DType dtype : {f16, f32, f64}) {
      SCOPED_TRACE(info(call.op).name);
      std::vector<Tensor> inputs;
      std::vector<ConstView> views;
      for (const Shape& shape : call.shapes) inputs.push_back(random_tensor(shape, dtype));
      for (const Tensor& x : inputs) views.push_back(const_view(x));
      const Tensor expected = apply_op(call.op, inputs, call.attrs);
      const Tensor poison =
          full(expected.shape(), expected.dtype() == boolean ? 1 : 77, expected.dtype());
      for (const Tensor& out : layouts(poison)) {
        info(call.op).eval(views, call.attrs, mutable_view(out));
        EXPECT_EQ(bytes_of(out), bytes_of(expected)) << dtype << " with strides " << out.strides();
      }
    }
}

TEST(Kernels, CompositesCanBeTraced) {
  const Tensor keep = array({true, false, true, true}), bias = random_tensor({4});
  const std::vector<TensorFunction> functions = {
      [](const auto& in) -> std::vector<Tensor> {
        const auto [values, indices] = topk(in[0], 3, 1);
        return {values, indices};
      },
      [](const auto& in) -> std::vector<Tensor> {
        return {std(in[0].astype(f16), -1), std(in[0], {0, 1}, true, 1)};
      },
      [](const auto& in) -> std::vector<Tensor> {
        return {matmul(in[0][":, 0"], in[1]["0"]), dot(in[0], in[1])};
      },
      [&](const auto& in) -> std::vector<Tensor> {
        return {linear(in[0], eye(4), bias), linear(in[0], eye(4))};
      },
      [&](const auto& in) -> std::vector<Tensor> {
        return {layer_norm(in[0], {}, bias), layer_norm(in[0], bias)};
      },
      [&](const auto& in) -> std::vector<Tensor> {
        return {batch_norm(in[0].swapaxes(1, 2), bias, abs(bias), bias),
                group_norm(in[0].swapaxes(1, 2), 2, bias, bias)};
      },
      [&](const auto& in) -> std::vector<Tensor> {
        const Tensor keys = in[1].swapaxes(1, 2);
        return {scaled_dot_product_attention(in[0], keys, keys),
                scaled_dot_product_attention(in[0], in[1], in[1], keep),
                scaled_dot_product_attention(in[0], in[1], in[1], bias)};
      },
      [](const auto& in) -> std::vector<Tensor> {
        return {einsum("bij,bjk->bik", {in[0], in[1]}), einsum("bii->ib", {in[1]}),
                einsum("bij,bkl->", {in[0], in[1]})};
      },
  };
  const std::vector<Tensor> inputs = {random_tensor({3, 4, 4}), random_tensor({3, 4, 4})};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<Tensor> expected = functions[i](inputs);
    const std::vector<Tensor> got =
        interpret(trace(functions[i], {inputs[0].type(), inputs[1].type()}), inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_EQ(got[k].type(), expected[k].type());
      EXPECT_EQ(bytes_of(got[k]), bytes_of(expected[k]));
    }
  }
}

}  // namespace
}  // namespace tensor
