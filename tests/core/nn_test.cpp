// Modules: parameters and their names, loading with all its complaints, random weights, attention.
#include "tensor/nn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/creation.h"
#include "tests/error_of.h"

namespace {

namespace nn = tensor::nn;
using tensor::Generator;
using tensor::Tensor;
using tensor::check::error_of;

struct Block {
  nn::LayerNorm norm = nn::LayerNorm::sized(4);
  std::vector<nn::Linear> layers = {nn::Linear::sized(4, 6), nn::Linear::sized(6, 4, false)};
  Tensor token = nn::parameter({1, 4});
  Tensor absent;
  void members(auto&& visit) {
    visit("norm", norm), visit("layers", layers), visit("token", token), visit("absent", absent);
  }
};

struct Heads {
  nn::Linear query = nn::Linear::sized(2, 2), key = nn::Linear::sized(2, 2);
  void members(auto&& visit) { visit("query", query), visit("key", key); }
};

struct Net {
  nn::Linear linear = nn::Linear::sized(400, 300);
  nn::BatchNorm2d norm = nn::BatchNorm2d::sized(4000);
  void members(auto&& visit) { visit("linear", linear), visit("norm", norm); }
};

std::vector<std::string> names_of(const std::vector<nn::Parameter>& parameters) {
  std::vector<std::string> names;
  for (const nn::Parameter& p : parameters) names.push_back(p.name);
  return names;
}

nn::StateDict random_state(std::uint64_t seed) {
  Block block;
  nn::randomize(block, seed);
  return nn::state_dict(block);
}

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && tensor::all(a == b).item<bool>();
}

TEST(Nn, ParametersAreNamedByTheirPath) {
  Block block;
  EXPECT_EQ(names_of(nn::parameters(block)),
            (std::vector<std::string>{"norm.weight", "norm.bias", "layers.0.weight",
                                      "layers.0.bias", "layers.1.weight", "token"}));
  EXPECT_EQ(nn::parameter_count(block), 4 + 4 + 24 + 6 + 24 + 4);
  nn::Sequential<nn::Linear> stack{{nn::Linear::sized(2, 3), nn::Linear::sized(3, 1)}};
  EXPECT_EQ(names_of(nn::parameters(stack)),
            (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"}));
}

TEST(Nn, ParametersBeforeLoadingAreZerosWithoutMemory) {
  const Tensor huge = nn::parameter({1 << 20, 1 << 20});  // 4 TiB of f32
  EXPECT_EQ(huge.shape(), (tensor::Shape{1 << 20, 1 << 20}));
  EXPECT_EQ(huge.item(77, 123456), 0);
  EXPECT_TRUE(huge.is_read_only());
  EXPECT_EQ(nn::parameter({3}, tensor::f16).dtype(), tensor::f16);
  EXPECT_EQ(error_of([] {
              nn::parameter({1 << 30, 1 << 30, 1 << 30});
            }),
            "shape: the shape (1073741824, 1073741824, 1073741824) holds more than 2^63 elements");
}

TEST(Nn, LoadFillsParametersAndConverts) {
  nn::StateDict state = random_state(3);
  state["norm.weight"] = state["norm.weight"].astype(tensor::f16);
  state["token"] = state["token"].astype(tensor::f64);
  Block block;
  nn::load(block, state);
  for (const nn::Parameter& p : nn::parameters(block)) {
    EXPECT_EQ(p.tensor->dtype(), tensor::f32) << p.name;
    EXPECT_TRUE(same(*p.tensor, state.at(p.name).astype(tensor::f32))) << p.name;
  }
}

TEST(Nn, LoadRenamesSlicesAndIgnores) {
  const Tensor weight = tensor::arange(8).reshape({4, 2}).astype(tensor::f32);
  const Tensor bias = tensor::array<float>({1, 2, 3, 4});
  Heads heads;
  nn::load(heads, {{"qk.weight", weight}, {"qk.bias", bias}, {"steps", tensor::array({1})}},
           {.rename =
                [](const std::string& path) {
                  const std::string leaf = path.substr(path.rfind('.'));
                  return nn::Source{"qk" + leaf, path.starts_with("key") ? 1 : 0, 2};
                },
            .ignore = [](const std::string& name) { return name == "steps"; }});
  EXPECT_TRUE(same(heads.query.weight, tensor::array<float>({{0, 1}, {2, 3}})));
  EXPECT_TRUE(same(heads.key.weight, tensor::array<float>({{4, 5}, {6, 7}})));
  EXPECT_TRUE(same(heads.key.bias, tensor::array<float>({3, 4})));
}

TEST(Nn, LoadReportsEverythingAtOnceAndChangesNothing) {
  nn::StateDict state = random_state(4);
  state["layers.0.wieght"] = state["layers.0.weight"];
  state.erase("layers.0.weight");
  state["norm.bias"] = tensor::zeros({5});
  state["token"] = tensor::zeros({1, 4}, tensor::i64);
  state["surplus"] = tensor::zeros({1});
  Block block;
  EXPECT_EQ(error_of([&] { nn::load(block, state, {.file = "folder"}); }),
            "load: folder does not fit the model: 5 problems:\n"
            "  missing: \"layers.0.weight\"; did you mean \"layers.0.wieght\"?\n"
            "  unexpected: \"layers.0.wieght\"; did you mean \"layers.0.weight\"?\n"
            "  unexpected: \"surplus\"\n"
            "  wrong shape: \"norm.bias\" is (5,), need (4,)\n"
            "  wrong type: \"token\" is i64, need a floating type");
  for (const nn::Parameter& p : nn::parameters(block))
    EXPECT_FALSE(tensor::any(*p.tensor != 0).item<bool>()) << p.name;
}

TEST(Nn, LoadChecksTheShapeOfAFusedTensor) {
  nn::Linear linear = nn::Linear::sized(2, 2);
  EXPECT_EQ(error_of([&] {
              nn::load(linear, {{"weight", tensor::zeros({5, 2})}, {"bias", tensor::zeros({6})}},
                       {.rename = [](const std::string& path) {
                         return nn::Source{path, 1, 3};
                       }});
            }),
            "load: the checkpoint does not fit the model: 1 problem:\n"
            "  wrong shape: \"weight\" is (5, 2), need (6, 2)");
}

TEST(Nn, LoadRefusesPartsThatThereAreNot) {
  nn::Linear linear = nn::Linear::sized(2, 2, false);
  const auto message_of_part = [&](int part, int parts) {
    return error_of([&] {
      nn::load(linear, {{"weight", tensor::zeros({6, 2})}},
               {.rename = [=](const std::string& path) {
                 return nn::Source{path, part, parts};
               }});
    });
  };
  const std::string start = "load: the checkpoint does not fit the model: 1 problem:\n";
  EXPECT_EQ(message_of_part(3, 3), start +
                                       "  no such part: \"weight\", part 3 of 3 for the shape "
                                       "(2, 2), need parts from 0 to 2");
  EXPECT_EQ(message_of_part(-1, 3), start +
                                        "  no such part: \"weight\", part -1 of 3 for the shape "
                                        "(2, 2), need parts from 0 to 2");
}

// A cast to the type it has would double the memory of a model.
TEST(Nn, LoadTakesTensorsOfTheRightTypeAsTheyAre) {
  nn::Linear linear = nn::Linear::sized(2, 2, false);
  const Tensor weight = tensor::ones({2, 2});
  nn::load(linear, {{"weight", weight}});
  EXPECT_TRUE(linear.weight.shares_storage(weight));
}

TEST(Nn, LoadShortensALongListOfProblems) {
  nn::StateDict state = random_state(5);
  for (int i = 0; i < 5000; ++i) state["unknown." + std::to_string(i)] = tensor::zeros({1});
  Block block;
  const std::string message = error_of([&] { nn::load(block, state); });
  EXPECT_NE(message.find("5000 problems"), std::string::npos);
  EXPECT_TRUE(message.ends_with("\n  and 4960 more")) << message;
}

TEST(Nn, RandomizeIsSeededAndScaled) {
  Net a, b, c;
  nn::randomize(a, 7), nn::randomize(b, 7), nn::randomize(c, 8);
  EXPECT_TRUE(same(a.linear.weight, b.linear.weight));
  EXPECT_FALSE(same(a.linear.weight, c.linear.weight));
  // 120,000 normal numbers of deviation 1/20: the sample's is within 1 % (4 sigma: 0.8 %).
  EXPECT_NEAR(tensor::std(a.linear.weight).item(), 1 / 20.0, 0.01 / 20);
  EXPECT_NEAR(tensor::mean(a.norm.weight).item(), 1, 0.01);
  EXPECT_NEAR(tensor::mean(a.norm.bias).item(), 0, 0.01);
  EXPECT_GE(tensor::min(a.norm.running_var).item(), 0.5);
  EXPECT_LE(tensor::max(a.norm.running_var).item(), 2);
}

TEST(Nn, BatchNormFolds) {
  nn::BatchNorm2d norm = nn::BatchNorm2d::sized(3);
  nn::randomize(norm, 11);
  const Tensor x = Generator(12).normal({2, 3, 4, 5});
  const auto [scale, shift] = norm.fold();
  const Tensor folded = x * scale.reshape({3, 1, 1}) + shift.reshape({3, 1, 1});
  const Tensor direct = norm(x);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 3; ++c) {
      const double w = norm.weight.item(c), b = norm.bias.item(c), m = norm.running_mean.item(c),
                   v = norm.running_var.item(c);
      const double want = (x.item(n, c, 1, 2) - m) / std::sqrt(v + 1e-5) * w + b;
      // A few roundings of numbers below 10.
      EXPECT_NEAR(direct.item(n, c, 1, 2), want, 1e-5);
      EXPECT_NEAR(folded.item(n, c, 1, 2), want, 1e-5);
    }
}

/// Multi-head attention by its definition, one output row at a time, in double.
std::vector<double> attention_row(const nn::MultiheadAttention& m, const Tensor& q, const Tensor& k,
                                  const Tensor& v, std::int64_t row, const Tensor& keep) {
  const std::int64_t width = q.shape(-1), depth = width / m.heads, keys = k.shape(-2);
  const auto project = [&](const nn::Linear& l, const Tensor& x, std::int64_t t, std::int64_t i) {
    double sum = l.bias.defined() ? l.bias.item(i) : 0;
    for (std::int64_t j = 0; j < width; ++j) sum += x.item(t, j) * l.weight.item(i, j);
    return sum;
  };
  std::vector<double> joined;
  for (std::int64_t h = 0; h < m.heads; ++h) {
    std::vector<double> share;
    double total = 0;
    for (std::int64_t t = 0; t < keys; ++t) {
      double score = 0;
      for (std::int64_t i = h * depth; i < (h + 1) * depth; ++i)
        score += project(m.query, q, row, i) * project(m.key, k, t, i);
      const bool kept = !keep.defined() || keep.item<bool>(row, t);
      share.push_back(kept ? std::exp(score / std::sqrt(double(depth))) : 0);
      total += share.back();
    }
    for (std::int64_t i = h * depth; i < (h + 1) * depth; ++i) {
      double sum = 0;
      for (std::int64_t t = 0; t < keys; ++t)
        sum += share[std::size_t(t)] / total * project(m.value, v, t, i);
      joined.push_back(sum);
    }
  }
  std::vector<double> out;
  for (std::int64_t i = 0; i < width; ++i) {
    double sum = m.output.bias.item(i);
    for (std::int64_t j = 0; j < width; ++j)
      sum += joined[std::size_t(j)] * m.output.weight.item(i, j);
    out.push_back(sum);
  }
  return out;
}

TEST(Nn, MultiheadAttentionByDefinition) {
  for (const bool with_bias : {true, false}) {
    nn::MultiheadAttention attention = nn::MultiheadAttention::sized(6, 3, with_bias);
    nn::randomize(attention, 21);
    Generator random(22);
    const Tensor q = random.normal({2, 4, 6}), k = random.normal({2, 5, 6}),
                 v = random.normal({2, 5, 6});
    const Tensor keep = (random.uniform({4, 5}) < 0.7) | (tensor::eye(4, 5) != 0);
    for (const Tensor& mask : {Tensor(), keep}) {
      const Tensor got = attention(q, k, v, mask);
      ASSERT_EQ(got.shape(), q.shape());
      for (std::int64_t n = 0; n < 2; ++n)
        for (std::int64_t row = 0; row < 4; ++row) {
          const auto want = attention_row(attention, q(n), k(n), v(n), row, mask);
          for (std::int64_t i = 0; i < 6; ++i)
            // Sums of at most 6 products of numbers below 10, in float32.
            EXPECT_NEAR(got.item(n, row, i), want[std::size_t(i)], 1e-5);
        }
    }
    // Without a batch axis, too.
    const Tensor one = attention(q(0), k(0), v(0));
    EXPECT_LE(tensor::max(tensor::abs(one - attention(q, k, v)(0))).item(), 1e-6);
  }
}

TEST(Nn, MultiheadAttentionNeedsHeadsThatDivide) {
  nn::MultiheadAttention attention = nn::MultiheadAttention::sized(6, 4);
  const Tensor x = tensor::zeros({1, 2, 6});
  EXPECT_EQ(error_of([&] { attention(x, x, x); }),
            "MultiheadAttention: got 4 heads for 6 features, need a divisor of the features");
}

TEST(Nn, EmbeddingTakesRows) {
  const nn::Embedding embedding{tensor::arange(6).reshape({3, 2}).astype(tensor::f32)};
  EXPECT_TRUE(same(embedding(tensor::array({2, 0})), tensor::array<float>({{4, 5}, {0, 1}})));
}

}  // namespace
