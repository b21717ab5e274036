// The residual stream in 16 bits: which values are stored so, and that they are rounded once.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/trace/fuse.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/divide_products.h"
#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

Graph cast_for(const TensorFunction& function, const std::vector<TensorType>& types, DType dtype,
               int devices = 1) {
  Graph graph = fold_constants(trace(function, types));
  if (devices > 1) graph = divide_products(graph, 0, devices).graph;
  const Graph products = cast_products(graph, dtype);
  const Graph residuals = cast_residuals(products, dtype);
  verify(residuals, "cast_residuals");
  return eliminate_common_and_dead(residuals);
}

// How many f32 values lie in memory in f16 only: their one reader rounds them.
int narrow_values(const TensorFunction& function, int devices = 1) {
  const Graph graph = cast_for(function, {{{2, 6, 64}, f32}, {{2, 6, 64}, f32}}, f16, devices);
  const Wiring wires = wiring(graph);
  int found = 0;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_op(id, Op::astype) || graph.type(id).dtype != f16) continue;
    const ValueId source = graph[id].inputs[0];
    const auto& readers = wires.readers[static_cast<std::size_t>(source)];
    if (!is_compute(graph, source)) continue;
    EXPECT_EQ(readers.size(), 1u) << graph;
    const auto& wide = wires.readers[static_cast<std::size_t>(id)];
    found += std::any_of(wide.begin(), wide.end(), [&](ValueId reader) {
      return graph.is_op(reader, Op::astype) && graph.type(reader).dtype == f32;
    });
  }
  return found;
}

class CastResiduals : public testing::Test {
 protected:
  Generator random{31};
  const Tensor a = random.normal({64, 64}), b = random.normal({64, 64}), gamma = ones({64}),
               beta = random.normal({64});
  Tensor norm(const Tensor& x) const { return layer_norm(x, gamma, beta); }
};

TEST_F(CastResiduals, StoresWhatIsAddedToAndNormalised) {
  const auto before = [&](const Tensors& in) -> Tensors {  // layer_norm before each block
    const Tensor x = exp(in[0]), y = x + (matmul(norm(x), a) + beta);
    const Tensor z = matmul(relu(matmul(norm(y), b)), a) + y;
    return {norm(z)};
  };
  EXPECT_EQ(narrow_values(before), 3) << "what comes first, and two sums";
  EXPECT_EQ(narrow_values(before, 2), 3) << "also where devices add up a product";
  const auto behind = [&](const Tensors& in) -> Tensors {  // behind each block
    const Tensor x = norm(in[0] + matmul(in[0], a)), y = norm(x + matmul(x, b));
    return {matmul(y, a)};
  };
  const Graph graph = cast_for(behind, {{{2, 6, 64}, f32}}, bf16);
  for (ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, Op::matmul)) {
      const ValueId rows = graph[id].inputs[0];
      EXPECT_TRUE(!graph.is_op(rows, Op::astype) || graph.type(graph[rows].inputs[0]).dtype == f32)
          << "products read the stream as it lies there\n"
          << graph;
    }
  EXPECT_EQ(narrow_values(behind), 3);
  const auto in_views = [&](const Tensors& in) -> Tensors {
    const Tensor x = exp(in[0]), y = x.reshape({12, 64}) + matmul(x.reshape({12, 64}), a);
    return {norm(y), max(x, 0)};
  };
  EXPECT_EQ(narrow_values(in_views), 2);
}

TEST_F(CastResiduals, LeavesOthersAlone) {
  const auto values = [](auto f) {
    return narrow_values([f](const Tensors& in) -> Tensors { return {f(in)}; });
  };
  EXPECT_EQ(narrow_values([&](const Tensors& in) -> Tensors {
              const Tensor y = matmul(in[0], a) + in[0];
              return {y, norm(y)};
            }),
            0)
      << "what the caller gives and gets";
  EXPECT_EQ(values([&](const Tensors& in) { return norm(in[0] + exp(in[1])); }), 0) << "no product";
  EXPECT_EQ(values([&](const Tensors& in) {
              return norm(matmul(in[0], a) + random.normal({6, 64}));
            }),
            0)
      << "an addend that is constant";
  EXPECT_EQ(values([&](const Tensors& in) { return exp(exp(in[1]) + matmul(in[0], a)); }), 0)
      << "sums of which nothing is stored";
  EXPECT_EQ(values([&](const Tensors& in) {
              return norm(exp(in[0]) + matmul(in[0], a) + matmul(in[0], b));
            }),
            1)
      << "the last of two sums";
  EXPECT_EQ(values([&](const Tensors& in) {
              const Tensor p = matmul(in[0], a);
              return norm(in[1] + p) * p;
            }),
            0)
      << "a product that others read, too";
}

// Where there are few rows. The last norm is the caller's.
TEST_F(CastResiduals, NormsOfTheStreamAreGivenItsSums) {
  const TensorFunction f = [&](const Tensors& in) -> Tensors {
    const Tensor x = in[0] + matmul(in[0], a), y = x + matmul(norm(x), b);
    return {norm(y + matmul(norm(y), a))};
  };
  const auto stream = [&](std::int64_t rows) {
    return cast_residuals(cast_products(trace(f, {{{rows, 64}, f32}}), f16), f16);
  };
  const auto sums_of = [](const Graph& graph) {
    std::vector<ValueId> sums;
    for (ValueId id = 0; id < graph.size(); ++id)
      if (graph.is_op(id, Op::row_sums)) sums.push_back(id);
    return sums;
  };
  EXPECT_TRUE(sums_of(cast_norms(stream(2500), f16)).empty());
  const Graph graph = eliminate_common_and_dead(cast_norms(stream(200), f16));
  const Wiring wires = wiring(graph);
  EXPECT_EQ(sums_of(graph).size(), 2u) << graph;
  for (const ValueId id : sums_of(graph)) {
    const ValueId rows = graph[id].inputs[0], sum = graph[rows].inputs[0];
    EXPECT_TRUE(graph.is_op(sum, Op::add)) << graph;
    EXPECT_EQ(wires.readers[static_cast<std::size_t>(sum)], std::vector<ValueId>{rows});
  }
}

TEST_F(CastResiduals, NoKernelStoresWhatOthersWiden) {
  const TensorFunction f = [&](const Tensors& in) -> Tensors {
    const Tensor x = in[0] + matmul(in[0], a), y = x + matmul(norm(x), b);
    return {norm(y) + y, y * 2};
  };
  Graph graph = trace(f, {{{6, 64}, f32}});
  for (const Pass& pass : passes_for({.dtype = bf16, .narrow_residuals = true}))
    graph = pass.run(graph);
  verify(graph, "passes");
  const Wiring wires = wiring(graph);
  int found = 0;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_op(id, Op::astype) || graph.type(id).dtype != f32 ||
        !graph.is_op(graph[id].inputs[0], Op::astype))
      continue;
    ++found;
    EXPECT_EQ(wires.readers[static_cast<std::size_t>(id)].size(), 1u) << graph;
  }
  EXPECT_EQ(found, 5) << "two of x, three of y\n" << graph;
}

// Products are exact here, so that what is left are the roundings of the stream, each made once, of
// a float32 sum.
TEST_F(CastResiduals, RoundsEverySumOnce) {
  const Tensor one = eye(64);
  const TensorFunction f = [&](const Tensors& in) -> Tensors {
    const Tensor x = in[0] * 3.0, y = x + matmul(in[1], one), z = y + matmul(in[1], one);
    return {z, norm(x), norm(y)};
  };
  for (const DType dtype : {f16, bf16}) {
    const Tensor x = random.normal({5, 64}), product = round(random.normal({5, 64}) * 16) / 16;
    const Graph graph = cast_for(f, {x.type(), product.type()}, dtype);
    const auto rounded = [&](const Tensor& t) { return t.astype(dtype).astype(f32); };
    const Tensor first = rounded(x * 3.0), second = rounded(first + product);
    const Tensors got = interpret(graph, {x, product});
    EXPECT_EQ(got[0].to_vector<float>(), (second + product).to_vector<float>()) << graph;
    EXPECT_EQ(got[1].to_vector<float>(), norm(first).to_vector<float>());
    EXPECT_EQ(got[2].to_vector<float>(), norm(second).to_vector<float>());
  }
}

}  // namespace
}  // namespace tensor
