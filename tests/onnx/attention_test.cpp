// Attention and RotaryEmbedding, eagerly and compiled, against loops in float64.
#include "tests/error_of.h"
#include "tests/headers.h"
#include "tests/onnx_writer.h"
#include "tests/seed.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

constexpr double kNever = -std::numeric_limits<double>::infinity();

class OnnxAttention : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape) { return random_.normal(shape); }

  // Sums of some tens of products of magnitudes up to 4, and softmax of scores up to 10: errors of
  // 1e-6 times that.
  static void expect(const OnnxModel& model, const std::vector<Tensor>& inputs,
                     const Tensor& want) {
    const Tensor fast = compile(model, {.threads = 1})(inputs)[0];
    for (const Tensor& got : {model(inputs)[0], fast}) {
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_TRUE(allclose(got.to(f64), want, 0, 4e-5));
    }
  }

  Generator random_{check::seed()};
};

struct AttentionCase {
  bool is_flat = false, is_causal = false, has_past = false, is_choice = false;
  std::int64_t key_heads = 4, masked = 0;  // masked: keys of the mask, 0: none
  double softcap = 0, scale = 0;
};

TEST_F(OnnxAttention, IsSoftmaxOfScoresTimesValues) {
  const std::int64_t n = 2, heads = 4, queries = 5, d = 6, e = 3;
  const AttentionCase cases[] = {
      {},
      {.is_flat = true, .key_heads = 2},
      {.is_causal = true},
      {.is_causal = true, .has_past = true, .key_heads = 1},
      {.is_choice = true, .masked = 7},
      {.is_flat = true, .is_choice = true, .masked = 5},
      {.is_causal = true, .is_choice = true, .masked = 7},
      {.has_past = true, .masked = 9, .scale = 0.7},
      {.masked = 4, .softcap = 1.5},
  };
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(&c - cases);
    const std::int64_t added = 7, past = c.has_past ? 3 : 0, keys = added + past;
    const Tensor q = random({n, heads, queries, d}), k = random({n, c.key_heads, added, d}),
                 v = random({n, c.key_heads, added, e});
    const Tensor old_k = random({n, c.key_heads, past, d}),
                 old_v = random({n, c.key_heads, past, e});
    Tensor mask = random({1, heads, queries, c.masked});
    if (c.is_choice) {
      mask = mask > 0;
      for (std::int64_t j = 0; j < c.masked; ++j) mask.at<bool>(0, 1, 2, j) = false;  // sees none
    }
    const double scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(d));
    Tensor want = zeros({n, heads, queries, e}, f64);
    for (std::int64_t b = 0; b < n; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < queries; ++i) {
          const std::int64_t of = h / (heads / c.key_heads);
          const auto at = [&](const Tensor& older, const Tensor& newer, std::int64_t j,
                              std::int64_t f) {
            return j < past ? older.item(b, of, j, f) : newer.item(b, of, j - past, f);
          };
          std::vector<double> weights;
          double total = 0;
          for (std::int64_t j = 0; j < keys; ++j) {
            double score = 0;
            for (std::int64_t f = 0; f < d; ++f) score += q.item(b, h, i, f) * at(old_k, k, j, f);
            score *= scale;
            if (c.softcap > 0) score = std::tanh(score / c.softcap) * c.softcap;
            if (c.masked > 0 && j >= c.masked) score = kNever;
            if (c.masked > j && c.is_choice && !mask.at<bool>(0, h, i, j)) score = kNever;
            if (c.masked > j && !c.is_choice) score += mask.item(0, h, i, j);
            if (c.is_causal && j > i + past) score = kNever;
            weights.push_back(std::exp(score));
            total += weights.back();
          }
          for (std::int64_t f = 0; f < e && total > 0; ++f)
            for (std::int64_t j = 0; j < keys; ++j)
              want.at<double>(b, h, i, f) +=
                  weights[static_cast<std::size_t>(j)] / total * at(old_v, v, j, f);
        }
    const auto given = [&](const Tensor& x) {
      if (!c.is_flat) return x;
      return x.swapaxes(1, 2).reshape({x.shape(0), x.shape(2), x.shape(1) * x.shape(3)});
    };
    std::vector<Tensor> slots{given(q), given(k), given(v)};
    if (c.masked > 0 || c.has_past) slots.push_back(c.masked > 0 ? mask : Tensor());
    if (c.has_past) slots.insert(slots.end(), {old_k, old_v});
    std::vector<Message> attributes{attribute("is_causal", c.is_causal ? 1 : 0)};
    if (c.is_flat) {
      attributes.push_back(attribute("q_num_heads", static_cast<int>(heads)));
      attributes.push_back(attribute("kv_num_heads", static_cast<int>(c.key_heads)));
    }
    if (c.scale > 0) attributes.push_back(attribute("scale", static_cast<float>(c.scale)));
    if (c.softcap > 0) attributes.push_back(attribute("softcap", static_cast<float>(c.softcap)));
    const OnnxModel model = operator_alone("Attention", slots, f32, attributes, 23);
    std::vector<Tensor> inputs;
    for (const Tensor& x : slots)
      if (x.defined()) inputs.push_back(x);
    expect(model, inputs, given(want));
  }
}

TEST_F(OnnxAttention, RotaryEmbeddingTurnsPairs) {
  const std::int64_t n = 2, heads = 3, tokens = 4, d = 8;
  for (const bool is_flat : {false, true})
    for (const bool is_mixed : {false, true})
      for (const std::int64_t turned : {d, d / 2}) {
        const std::int64_t half = turned / 2;
        const bool has_positions = is_flat != is_mixed;
        const Tensor x = random({n, heads, tokens, d});
        const Tensor positions = array(Ints{3, 0, 9, 1, 5, 5, 2, 7}).reshape({n, tokens});
        const Shape shape = has_positions ? Shape{10, half} : Shape{n, tokens, half};
        const Tensor cosine = random(shape), sine = random(shape);
        Tensor want = x.to(f64).copy();
        for (std::int64_t b = 0; b < n; ++b)
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t t = 0; t < tokens; ++t)
              for (std::int64_t i = 0; i < half; ++i) {
                const auto angle = [&](const Tensor& of) {
                  if (!has_positions) return of.item(b, t, i);
                  return of.item(positions.at<std::int64_t>(b, t), i);
                };
                const std::int64_t first = is_mixed ? 2 * i : i,
                                   second = is_mixed ? 2 * i + 1 : half + i;
                const double a = x.item(b, h, t, first), z = x.item(b, h, t, second);
                want.at<double>(b, h, t, first) = a * angle(cosine) - z * angle(sine);
                want.at<double>(b, h, t, second) = a * angle(sine) + z * angle(cosine);
              }
        const auto given = [&](const Tensor& of) {
          return is_flat ? of.swapaxes(1, 2).reshape({n, tokens, heads * d}) : of;
        };
        std::vector<Tensor> inputs{given(x), cosine, sine};
        if (has_positions) inputs.push_back(positions);
        std::vector<Message> attributes{attribute("interleaved", is_mixed ? 1 : 0)};
        if (turned != d)
          attributes.push_back(attribute("rotary_embedding_dim", static_cast<int>(turned)));
        if (is_flat) attributes.push_back(attribute("num_heads", static_cast<int>(heads)));
        expect(operator_alone("RotaryEmbedding", inputs, f32, attributes, 23), inputs, given(want));
      }
}

TEST_F(OnnxAttention, RefusesWhatDoesNotFit) {
  const auto error_in = [](const std::string& type, const std::vector<Tensor>& inputs,
                           const std::vector<Message>& attributes = {}) {
    const std::string text =
        error_of([&] { operator_alone(type, inputs, f32, attributes, 23)(inputs); });
    const std::string start = "m: node \"make y\" (" + type + " of opset 23): ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const Tensor x = ones({1, 2, 3, 4}), flat = ones({1, 3, 8});
  EXPECT_EQ(error_in("Attention", {flat, flat, flat}),
            "attention: got input 0 of the shape (1, 3, 8) and q_num_heads=0, need (N, heads, "
            "tokens, features), or (N, tokens, heads * features)");
  EXPECT_EQ(error_in("Attention", {ones({1, 3, 3, 4}), x, x}),
            "attention: got 3 heads of queries and 2 of keys or values");
  EXPECT_EQ(error_in("Attention", {x, x, x, ones({3, 4})}),
            "attention: got a mask of the shape (3, 4), need 2 to 4 axes and at most 3 keys");
  EXPECT_EQ(error_in("Attention", {x, x, x, ones({3, 3}, i64)}),
            "attention: got a mask of i64, need bool or a floating type");
  EXPECT_EQ(
      error_in("RotaryEmbedding", {x, ones({1, 3, 3}), ones({1, 3, 3})}),
      "rotary_embedding: got angles of the shape (1, 3, 3) for the positions, need (1, 3, 2)");
  EXPECT_EQ(error_in("RotaryEmbedding", {x, x, x}, {attribute("rotary_embedding_dim", 3)}),
            "rotary_embedding: got rotary_embedding_dim=3 of 4 features");
}

}  // namespace
}  // namespace tensor::testing
