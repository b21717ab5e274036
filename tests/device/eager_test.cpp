// Eager operators on tensors of a GPU, against the same on the host.
#include <functional>

#include "tensor/nn.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

using Function = std::function<Tensor(const Tensors&)>;

struct Case {
  std::string name;
  Function f;
  Tensors inputs;
  double terms = 1;  // of the longest sum
};

class EagerOnGpu : public OnGpu {
 protected:
  // A few roundings, as many sums.
  void expect_agrees(const Case& c) {
    SCOPED_TRACE(c.name);
    Tensors there;
    for (const Tensor& x : c.inputs) there.push_back(x.to(gpu_));
    const Tensor got = c.f(there), want = c.f(c.inputs);
    EXPECT_EQ(got.device(), gpu_);
    const double eps = want.dtype() == f16 ? 0x1p-11 : want.dtype() == bf16 ? 0x1p-8 : 0x1p-23;
    expect_near(got.to("cpu"), want, is_floating(want.dtype()) ? 8 * eps * std::sqrt(c.terms) : 0);
  }
  Tensor normal(const Shape& shape) { return random_.normal(shape); }
};

TEST_F(EagerOnGpu, ElementwiseOperators) {
  const Tensor x = normal({3, 5}), y = normal({5});
  for (const Case& c : {
           Case{"add", [](const Tensors& in) { return in[0] + in[1]; }, {x, y}},
           Case{"number", [](const Tensors& in) { return 2 * in[0] - 0.5; }, {x}},
           Case{"gelu", [](const Tensors& in) { return gelu(in[0]); }, {x}},
           Case{"compare", [](const Tensors& in) { return in[0] < in[1]; }, {x, y}},
           Case{"where", [](const Tensors& in) { return where(in[0] > 0, in[0], in[1]); }, {x, y}},
           Case{"clip", [](const Tensors& in) { return clip(in[0], -0.5, 0.5); }, {x}},
           Case{"astype", [](const Tensors& in) { return (in[0] * 10).astype(i32); }, {x}},
           Case{"integers", [](const Tensors& in) { return in[0] % 3; }, {arange(10)}},
           Case{"half", [](const Tensors& in) { return in[0] * in[0]; }, {x.astype(f16)}},
           Case{"double", [](const Tensors& in) { return exp(in[0]); }, {x.astype(f64)}},
       })
    expect_agrees(c);
}

TEST_F(EagerOnGpu, OperatorsOfEveryFamily) {
  const Tensor x = normal({4, 6}), image = normal({1, 8, 6, 6});
  const Tensor weight = normal({8, 8, 3, 3});
  for (const Case& c : {
           Case{"sum", [](const Tensors& in) { return sum(in[0], 1); }, {x}, 6},
           Case{"all", [](const Tensors& in) { return all(in[0] < 9); }, {x}},
           Case{"argmax", [](const Tensors& in) { return argmax(in[0], -1); }, {x}},
           Case{"softmax", [](const Tensors& in) { return softmax(in[0]); }, {x}, 6},
           Case{"layer norm",
                [](const Tensors& in) { return layer_norm(in[0], {}, in[1]); },
                {x, normal({6})},
                6},
           Case{"matmul",
                [](const Tensors& in) { return matmul(in[0], in[1]); },
                {x, normal({6, 5})},
                6},
           Case{"linear",
                [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
                {normal({2, 3, 16}), normal({8, 16}), normal({8})},
                16},
           Case{"conv2d",
                [](const Tensors& in) { return conv2d(in[0], in[1], in[2], {.padding = 1}); },
                {image, weight, normal({8})},
                72},
           Case{"batch norm",
                [](const Tensors& in) { return batch_norm(in[0], in[1], in[2]); },
                {image, normal({8}), random_.uniform({8}, 0.5, 2)}},
           Case{"max pool", [](const Tensors& in) { return max_pool2d(in[0], 2); }, {image}},
           Case{"interpolate",
                [](const Tensors& in) {
                  return interpolate(in[0], {9, 4}, {.mode = Interpolation::bilinear});
                },
                {image},
                4},
           Case{"concatenate",
                [](const Tensors& in) {
                  return concatenate({in[0], in[1]}, 1);
                },
                {x, normal({4, 3})}},
           Case{"pad",
                [](const Tensors& in) {
                  return pad(in[0], {{1, 0}, {2, 1}}, 7);
                },
                {x}},
           Case{"cumsum", [](const Tensors& in) { return cumsum(in[0], 1); }, {x}, 6},
           Case{"tril", [](const Tensors& in) { return tril(in[0]); }, {x}},
           Case{"einsum",
                [](const Tensors& in) {
                  return einsum("ij,kj->ik", {in[0], in[1]});
                },
                {x, normal({3, 6})},
                6},
       })
    expect_agrees(c);
}

TEST_F(EagerOnGpu, OperatorsWithoutAKernelRunOnTheHost) {
  const Tensor x = normal({4, 6});
  for (const Case& c : {
           Case{"sort", [](const Tensors& in) { return sort(in[0]); }, {x}},
           Case{"top k", [](const Tensors& in) { return topk(in[0], 2).first; }, {x}},
           Case{"sort turned",  // operands with gaps, running backwards
                [](const Tensors& in) { return sort(in[0]["::2, ::-1"], 0); },
                {x}},
       })
    expect_agrees(c);
}

TEST_F(EagerOnGpu, SumsOfRows) {
  const auto sums = [](const Tensors& in) { return apply_op(Op::row_sums, {in[0]}); };
  expect_agrees({"row sums", sums, {normal({3, 5, 192})}});
  expect_agrees({"of narrow rows", sums, {normal({3, 5, 192}).astype(f16)}});
}

TEST_F(EagerOnGpu, IndicesAreChecked) {
  const Tensor x = normal({4, 6}), rows = array({{2, -1}, {0, 1}});
  const Tensor places = array({{2, -6}, {0, 1}, {-1, 1}, {5, 3}});
  for (const Case& c : {
           Case{"take", [](const Tensors& in) { return take(in[0], in[1], 0); }, {x, rows}},
           Case{"columns",
                [](const Tensors& in) { return take(in[0], in[1].transpose(), -1); },
                {x, rows.astype(i32)}},
           Case{"take along",
                [](const Tensors& in) { return take_along_axis(in[0], in[1], 1); },
                {x, places}},
       })
    expect_agrees(c);
  const Tensor there = x.to(gpu_);
  for (const int wrong : {4, -5})
    EXPECT_EQ(error_of([&] { take(there, array({wrong}).to(gpu_), 0); }),
              error_of([&] { take(x, array({wrong}), 0); }));
}

TEST_F(EagerOnGpu, OperandsMayHaveAnyStrides) {
  const Tensor x = normal({6, 8, 5}), y = normal({8, 5});
  for (const Case& c : {
           Case{"turned", [](const Tensors& in) { return in[0].transpose() * 2; }, {x}},
           Case{"offset", [](const Tensors& in) { return in[0]["1:, 3:, 1:4"] + 1; }, {x}},
           Case{"backwards", [](const Tensors& in) { return -in[0]["::-1, ::, ::-2"]; }, {x}},
           Case{"broadcast",
                [](const Tensors& in) {
                  return broadcast_to(in[1](0), {6, 8, 5}) + in[0];
                },
                {x, y}},
           Case{"product of views",
                [](const Tensors& in) { return matmul(in[0].swapaxes(1, 2), in[1]["::, 1:"]); },
                {x, y},
                8},
           Case{"row of a view", [](const Tensors& in) { return softmax(in[0](1)["2:"]); }, {x}, 5},
       })
    expect_agrees(c);
  EXPECT_TRUE(x.to(gpu_).transpose().copy().is_contiguous());
}

TEST_F(EagerOnGpu, AttributesAreToldApartToTheirLastDigit) {
  const Tensor x = normal({3, 6}) * 1e-3f, there = x.to(gpu_);
  const auto norm = [](const Tensor& t, double eps) { return layer_norm(t, {}, {}, eps); };
  const double first = 1, second = 1.000004;
  EXPECT_TRUE(any(norm(x, first) != norm(x, second)).item<bool>());
  EXPECT_TRUE(any(norm(there, first) != norm(there, second)).item<bool>());
}

TEST_F(EagerOnGpu, NothingToComputeIsFine) {
  const Tensor x = zeros({0, 3}).to(gpu_);
  EXPECT_EQ((x + 1).shape(), (Shape{0, 3}));
  EXPECT_EQ((x + 1).device(), gpu_);
  expect_same(sum(x, 0).to("cpu"), zeros({3}));
}

TEST_F(EagerOnGpu, IndexingReadsAndWrites) {
  const auto edit = [](Tensor x, const Tensor& y) {
    x(1) = 5;
    x(slice(none, none, 2), slice(1, 3)) = y;
    x(ellipsis, -1) += 1;
    x(slice(none, none, -1), 3) = x(ellipsis, 0);
    x(x < -1) = 0;                                    // a mask
    x(array({0, 3}), array({2, 0})) = array({7, 8});  // positions
    return x;
  };
  const Tensor x = normal({4, 5}), y = normal({2, 2});
  const Tensor want = edit(x.copy(), y), there = x.to(gpu_);
  expect_same(edit(there, y.to(gpu_)).to("cpu"), want);
  expect_same(edit(x.to(gpu_), y).to("cpu"), want);  // values come from the host as well
  expect_same(there(there > 0).to("cpu"), want(want > 0));
  EXPECT_EQ(there(array({1, 2})).device(), gpu_);
  expect_same(there(array({1, 2})).to("cpu"), want(array({1, 2})));
  const Tensor wide = broadcast_to(there(0), {3, 5});
  EXPECT_NE(error_of([&] { wide(0) = 1; }).find("read-only"), std::string::npos);
  // A target that overlaps with its value.
  Tensor shifted = there.copy(), expected = want.copy();
  shifted(all_of_axis, slice(1, none)) = shifted(all_of_axis, slice(none, -1));
  expected(all_of_axis, slice(1, none)) = expected(all_of_axis, slice(none, -1)).copy();
  expect_same(shifted.to("cpu"), expected);
}

TEST_F(EagerOnGpu, MixedDevicesAreRefused) {
  const Tensor x = normal({2, 3}), there = x.to(gpu_);
  EXPECT_EQ(error_of([&] { add(there, x); }),
            "add: got tensors on cuda:0 and on the cpu (f32(2, 3)), need all on one device: move "
            "one of them with to(\"cuda:0\"), or bring the others with to(\"cpu\")");
  EXPECT_EQ(error_of([&] { matmul(x, there.transpose()); }).substr(0, 7), "matmul:");
  // Numbers and 0-d tensors go along.
  expect_same((there * full({}, 2, f32)).to("cpu"), x * 2);
}

TEST_F(EagerOnGpu, ABlockOfATransformer) {
  const auto block = [](const Tensors& in) {
    const Tensor y = layer_norm(in[0], in[1], in[1], 1e-6);
    const Tensor q = linear(y, in[2]), k = linear(y, in[3]);
    const auto heads = [](const Tensor& t) {
      return t.reshape({t.shape(0), t.shape(1), 2, -1}).transpose({0, 2, 1, 3});
    };
    const Tensor mixed = scaled_dot_product_attention(heads(q), heads(k), heads(y));
    return in[0] + mixed.transpose({0, 2, 1, 3}).reshape(in[0].shape());
  };
  expect_agrees(
      {"block", block, {normal({2, 7, 16}), normal({16}), normal({16, 16}), normal({16, 16})}, 64});
}

}  // namespace
}  // namespace tensor
