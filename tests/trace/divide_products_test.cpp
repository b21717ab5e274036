// Which products are divided among devices, and that they compute what they did.
#include <random>

#include "models/vit/vit_checkpoint.h"
#include "src/trace/trace.h"
#include "tests/seed.h"
#include "tests/trace/divided_graphs.h"
#include "tests/trace/passes.h"

namespace tensor {
namespace {

using divided::Divided;
using divided::expect_same_divided;
using Tensors = std::vector<Tensor>;

std::int64_t elements_of_constants(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Node& node : graph.nodes())
    if (node.kind == NodeKind::constant && node.constant.size() > 1) sum += node.constant.size();
  return sum;
}

Divided expect_same_divided(const std::function<Tensor(const Tensor&)>& function, const Tensor& x,
                            int count) {
  return expect_same_divided(
      trace([&](const Tensors& in) -> Tensors { return {function(in[0])}; }, {x.type()}), {x},
      count);
}

class DivideProducts : public ::testing::Test {
 protected:
  Tensor normal(const Shape& shape) { return random_.normal(shape); }

  Generator random_{check::seed()};
};

TEST_F(DivideProducts, OfPerceptrons) {
  const Tensor first = normal({24, 8}), bias = normal({24}), second = normal({8, 24}),
               last = normal({8}), gates = normal({8, 48});
  const auto mlp = [&](const Tensor& x) {
    return x + linear(gelu(linear(layer_norm(x), first, bias)), second, last);
  };
  const auto gated = [&](const Tensor& x) {
    const Tensor both = matmul(x, gates);
    return matmul(silu(both(ellipsis, slice(0, 24))) * both(ellipsis, slice(24, 48)),
                  transpose(second)) +
           x;
  };
  const Tensor x = normal({3, 5, 8});
  for (const int count : {2, 3, 4}) {
    for (const auto& f :
         {std::function<Tensor(const Tensor&)>(mlp), std::function<Tensor(const Tensor&)>(gated)}) {
      const Divided divided = expect_same_divided(f, x, count);
      ASSERT_EQ(divided.chains.size(), 1u);
      EXPECT_EQ(divided.chains[0].extent, 24);
      EXPECT_EQ(divided.chains[0].is_divided, true);
      EXPECT_EQ(tensor::count(divided.graphs[0], Op::all_reduce), 1);
    }
    const Divided divided = expect_same_divided(mlp, x, count);
    // All but the last bias and the norm's shift is divided.
    EXPECT_EQ(elements_of_constants(divided.graphs[0]), (24 * 8 + 24 + 8 * 24) / count + 8);
  }
  // Not equally among five.
  const Divided divided = expect_same_divided(mlp, x, 5);
  EXPECT_EQ(divided.whole(), 1);
  EXPECT_EQ(tensor::count(divided.graphs[0], Op::all_reduce), 0);
}

// Of queries, keys and values by themselves, with a mask and a table for every head.
TEST_F(DivideProducts, OfAttentionByHeads) {
  constexpr std::int64_t kHeads = 6, kWidth = 24, kTokens = 5;
  nn::MultiheadAttention attention{{normal({kWidth, kWidth}), normal({kWidth})},
                                   {normal({kWidth, kWidth}), normal({kWidth})},
                                   {normal({kWidth, kWidth}), normal({kWidth})},
                                   {normal({kWidth, kWidth}), normal({kWidth})},
                                   kHeads};
  const Tensor mask = random_.normal({3, 1, 1, kTokens}),
               table = normal({kHeads, kTokens, kTokens}), other = normal({3, 7, kWidth});
  const auto of_itself = [&](const Tensor& x) {
    return x + attention(x * 0.5, x, x, mask + table);
  };
  const auto of_another = [&](const Tensor& x) {  // whose keys and values are folded
    return x + attention(x, other, other, {});
  };
  const Tensor x = normal({3, kTokens, kWidth});
  for (const int count : {2, 3}) {
    const Divided one = expect_same_divided(of_itself, x, count);
    ASSERT_EQ(one.chains.size(), 1u);
    EXPECT_EQ(one.chains[0].extent, kHeads);
    EXPECT_EQ(tensor::count(one.graphs[0], Op::all_reduce), 1);
    const std::int64_t masks = 3 * kHeads * kTokens * kTokens,  // with the table in each
        weights = 4 * kWidth * kWidth + 3 * kWidth + masks;
    EXPECT_EQ(elements_of_constants(one.graphs[0]), weights / count + kWidth);
    const Divided two = expect_same_divided(of_another, x, count);
    EXPECT_EQ(tensor::count(two.graphs[0], Op::all_reduce), 1);
  }
  // By heads alone, not by what they consist of.
  const Divided four = expect_same_divided(of_itself, x, 4);
  EXPECT_EQ(four.whole(), 1);
  EXPECT_EQ(tensor::count(four.graphs[0], Op::all_reduce), 0);
}

// All three by one weight: cut after they are told apart, or before.
TEST_F(DivideProducts, OfAttentionByOneWeight) {
  constexpr std::int64_t kHeads = 4, kChannels = 3, kWidth = kHeads * kChannels;
  const Tensor weight = normal({3 * kWidth, kWidth}), bias = normal({3 * kWidth}),
               output = normal({kWidth, kWidth});
  const auto attended = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor result = transpose(scaled_dot_product_attention(q, k, v), {0, 2, 1, 3});
    return linear(result.reshape({q.shape(0), -1, kWidth}), output);
  };
  const auto as_timm = [&](const Tensor& x) {
    const Tensor all = linear(x, weight, bias).reshape({x.shape(0), -1, 3, kHeads, kChannels});
    const Tensor apart = transpose(all, {2, 0, 3, 1, 4});
    return attended(apart(0), apart(1), apart(2));
  };
  const auto in_parts = [&](const Tensor& x) {
    const Tensor all = linear(x, weight, bias);
    const auto part = [&](std::int64_t i) {
      return transpose(all(ellipsis, slice(i * kWidth, (i + 1) * kWidth))
                           .reshape({x.shape(0), -1, kHeads, kChannels}),
                       {0, 2, 1, 3});
    };
    return attended(part(0), part(1), part(2));
  };
  // Each head has its query, key and value side by side.
  const auto by_heads = [&](const Tensor& x) {
    const Tensor all = linear(x, weight, bias).reshape({x.shape(0), -1, kHeads, 3 * kChannels});
    const auto part = [&](std::int64_t i) {
      return transpose(all(ellipsis, slice(i * kChannels, (i + 1) * kChannels)), {0, 2, 1, 3});
    };
    return attended(part(0), part(1), part(2));
  };
  // The tokens of all pictures below each other.
  const auto folded = [&](const Tensor& x) {
    const Tensor all = linear(x.reshape({-1, kWidth}), weight, bias);
    const Tensor apart =
        transpose(all.reshape({x.shape(0), x.shape(1), 3, kHeads, kChannels}), {2, 0, 3, 1, 4});
    return attended(apart(0), apart(1), apart(2));
  };
  const Tensor x = normal({2, 7, kWidth});
  for (const int count : {2, 4})
    for (const auto& f : {std::function<Tensor(const Tensor&)>(as_timm),
                          std::function<Tensor(const Tensor&)>(in_parts),
                          std::function<Tensor(const Tensor&)>(by_heads),
                          std::function<Tensor(const Tensor&)>(folded)}) {
      const Divided divided = expect_same_divided(f, x, count);
      ASSERT_EQ(divided.chains.size(), 1u);
      EXPECT_EQ(divided.chains[0].extent, kHeads);
      EXPECT_EQ(tensor::count(divided.graphs[0], Op::all_reduce), 1);
      EXPECT_EQ(elements_of_constants(divided.graphs[0]),
                (3 * kWidth * kWidth + 3 * kWidth + kWidth * kWidth) / count);
    }
}

// Between the products a filter for every channel.
TEST_F(DivideProducts, OfPerceptronsOfImages) {
  const Tensor first = normal({12, 8}), bias = normal({12}), second = normal({8, 12}),
               filters = normal({12, 1, 3, 3}), mixing = normal({12, 2, 3, 3});
  const auto mlp = [&](const Tensor& x, const Tensor& weight, std::int64_t groups) {
    const Tensor rows = linear(x, first).reshape({2, 3, 4, 12});
    const Tensor image =
        conv2d(transpose(rows, {0, 3, 1, 2}), weight, bias, {.padding = 1, .groups = groups});
    return linear(gelu(transpose(image.reshape({2, 12, 12}), {0, 2, 1})), second);
  };
  const Tensor x = normal({2, 12, 8});
  for (const int count : {2, 3}) {
    const Divided divided =
        expect_same_divided([&](const Tensor& in) { return mlp(in, filters, 12); }, x, count);
    ASSERT_EQ(divided.chains.size(), 1u);
    EXPECT_EQ(elements_of_constants(divided.graphs[0]), (12 * 8 * 2 + 12 + 12 * 9) / count);
  }
  // Of which several depend on each other.
  const Divided whole =
      expect_same_divided([&](const Tensor& in) { return mlp(in, mixing, 6); }, x, 2);
  EXPECT_TRUE(whole.chains.empty());
}

TEST_F(DivideProducts, OfThePretrainedViT) {
  const auto vit = models::vit::load_vit(
      models::open_checkpoint(TENSOR_TEST_DATA "/../../models/vit/pretrained/digits"));
  const Tensor pixels = random_.uniform({2, 3, 32, 32}, -1, 1);
  const Graph graph = trace([&](const Tensors& in) -> Tensors { return {vit.model(in[0]).logits}; },
                            {pixels.type()});
  for (const int count : {2, 4}) {
    const Divided divided = expect_same_divided(graph, {pixels}, count);
    EXPECT_EQ(divided.whole(), 0);
    EXPECT_EQ(tensor::count(divided.graphs[0], Op::all_reduce),
              static_cast<int>(divided.chains.size()));
    EXPECT_EQ(divided.chains.size(), 2 * vit.model.layers.size());
  }
}

// What is not a chain of products by constants.
TEST_F(DivideProducts, LeavesTheRestWhole) {
  const Tensor first = normal({8, 12}), second = normal({12, 8}), square = normal({8, 8});
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
      {"one product", [&](const Tensor& x) { return matmul(x, first); }},
      {"normalized between",
       [&](const Tensor& x) { return matmul(layer_norm(matmul(x, first)), second); }},
      {"shares of columns",
       [&](const Tensor& x) { return matmul(softmax(matmul(x, first)), second); }},
      {"columns that are returned",
       [&](const Tensor& x) {
         const Tensor columns = matmul(x, first);
         return concatenate({matmul(columns, second), columns}, -1);
       }},
      {"columns that are mixed",
       [&](const Tensor& x) { return matmul(flip(matmul(x, first), -1), second); }},
      {"columns that are rows, too",
       [&](const Tensor& x) { return matmul(matmul(x, square) + x, square); }},
      {"products of the input",
       [&](const Tensor& x) { return matmul(matmul(x, swapaxes(x, -1, -2)), x); }}};
  for (const auto& [name, f] : functions) {
    const Divided divided = expect_same_divided(f, normal({2, 4, 8}), 2);
    EXPECT_TRUE(divided.chains.empty()) << name;
  }
  // Of two in a row, one.
  const Divided divided = expect_same_divided(
      [&](const Tensor& x) { return matmul(relu(matmul(relu(matmul(x, first)), second)), first); },
      normal({4, 8}), 2);
  EXPECT_EQ(divided.chains.size(), 1u);
}

// Programs of random operators that cut axes, join them, and move them.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed), choices_(seed) {}

  Tensor operator()(const Tensor& x) {
    std::vector<Tensor> values = {x};
    for (int i = 0; i < 12; ++i) {
      const Tensor next = step(values[below(std::ssize(values))], values);
      if (next.size() <= 4096) values.push_back(next);
    }
    // What is left of each is multiplied away.
    Tensor sum = zeros({1}, f32);
    for (const Tensor& value : values) {
      const Tensor rows = value.reshape({-1, value.shape(-1)});
      sum = sum + tensor::sum(tanh(matmul(rows, weight(rows.shape(1), 2))));
    }
    return sum;
  }

 private:
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(choices_() % static_cast<std::uint64_t>(count));
  }
  Tensor weight(std::int64_t rows, std::int64_t columns) {
    return random_.normal({rows, columns}, 0, 0.5);
  }
  Tensor step(const Tensor& x, const std::vector<Tensor>& values) {
    const Shape& shape = x.shape();
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return matmul(x, weight(shape.back(), 4 * (1 + below(3))));
      case 3: {  // cuts the last axis
        Shape cut = shape;
        const std::int64_t inner = shape.back() % 4 == 0 ? 4 : shape.back() % 2 == 0 ? 2 : 1;
        cut[cut.rank() - 1] /= inner;
        cut.push_back(inner);
        return cut.rank() > 5 ? x : x.reshape(cut);
      }
      case 4: {  // joins the last two
        if (shape.rank() < 3) return x;
        Shape joined = shape;
        joined.erase(joined.rank() - 1);
        joined[joined.rank() - 1] *= shape.back();
        return x.reshape(joined);
      }
      case 5:
        return swapaxes(x, static_cast<int>(below(shape.rank())), -1);
      case 6: {
        const std::int64_t half = (shape.back() + 1) / 2, start = below(2) * (shape.back() - half);
        return x(ellipsis, slice(start, start + half));
      }
      case 7:
        return relu(x) + random_.normal({shape.back()});
      case 8:
        return softmax(x, static_cast<int>(below(shape.rank())));
      default:
        for (const Tensor& other : values)
          if (other.shape() == shape) return x * tanh(other);
        return x * 0.5;
    }
  }

  Generator random_;
  std::mt19937_64 choices_;
};

TEST_F(DivideProducts, OfRandomPrograms) {
  int divided = 0;
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t seed = check::seed() + static_cast<std::uint64_t>(i);
    const Divided result = expect_same_divided(
        [&](const Tensor& x) { return RandomProgram(seed)(x); }, normal({2, 3, 8}), 2);
    divided += !result.chains.empty();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(divided, 100);
}

}  // namespace
}  // namespace tensor
