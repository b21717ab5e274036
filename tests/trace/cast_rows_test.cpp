// What products round to eight bits is stored in 16, where nothing else reads it.
#include <gtest/gtest.h>

#include <functional>

#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/quantize.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;
using Names = std::vector<std::string>;

// The operators whose results are read in bf16 by products in eight bits.
Names stored_narrow(const TensorFunction& function, const TensorType& type) {
  const Graph products =
      cast_products(quantize_products(fold_constants(trace(function, {type})), {}, false), bf16);
  const Graph graph = eliminate_common_and_dead(cast_rows(products, bf16));
  verify(graph, "cast_rows");
  Names found;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_op(id, Op::quantized_matmul) && !graph.is_op(id, Op::quantized_conv2d)) continue;
    ValueId rows = graph[id].inputs[0];
    while (is_view(graph, rows)) rows = graph[rows].inputs[0];
    if (graph.type(rows).dtype != bf16) continue;
    EXPECT_TRUE(graph.is_op(rows, Op::astype)) << graph;
    found.emplace_back(info(graph[graph[rows].inputs[0]].op).name);
  }
  return found;
}

// The first product and the last are none in eight bits.
class CastRows : public testing::Test {
 protected:
  Generator random{5};
  const Tensor first = random.normal({48, 64}), up = random.normal({64, 96}),
               down = random.normal({96, 64}), head = random.normal({64, 32});

  Names stored_narrow_between(const std::function<Tensors(const Tensor&)>& body) const {
    const auto whole = [&](const Tensors& in) -> Tensors {
      Tensors results = body(matmul(in[0], first));
      results[0] = softmax(matmul(results[0], head), -1);
      return results;
    };
    return stored_narrow(whole, {{32, 48}, f32});
  }
};

TEST_F(CastRows, WhereOnlyProductsRead) {
  EXPECT_EQ(stored_narrow_between([&](const Tensor& x) -> Tensors {
              return {matmul(gelu(matmul(relu(x), up)), down)};
            }),
            (Names{"relu", "gelu"}));
  EXPECT_EQ(stored_narrow_between([&](const Tensor& x) -> Tensors {
              const Tensor stream = exp(x);
              return {stream + matmul(relu(matmul(stream, up)), down)};
            }),
            Names{"relu"});
}

TEST_F(CastRows, NotWhatTheCallerGets) {
  EXPECT_EQ(stored_narrow_between([&](const Tensor& x) -> Tensors {
              const Tensor rows = exp(x);
              return {matmul(matmul(rows.reshape({2, 16, 64}), up), down).reshape({32, 64}), rows};
            }),
            Names{"quantized_matmul"});
}

TEST_F(CastRows, OfConvolutions) {
  const Tensor filters = random.normal({32, 32, 3, 3});
  const auto conv = [&](const Tensor& x) { return conv2d(x, filters, {}, {1, 1}); };
  EXPECT_EQ(stored_narrow(
                [&](const Tensors& in) -> Tensors { return {conv(relu(conv(relu(conv(in[0])))))}; },
                {{1, 32, 12, 12}, f32}),
            Names{"relu"});
}

}  // namespace
}  // namespace tensor
