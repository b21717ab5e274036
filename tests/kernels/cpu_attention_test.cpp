// The attention family against the reference: shapes, layouts, masks, places of the scale.
#include <gtest/gtest.h>

#include <iostream>

#include "src/kernels/host/simd/table.h"
#include "tests/families.h"
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

constexpr std::int64_t kTokens[] = {2, 3, 7, 16, 31, 33, 63, 65, 100, 197, 257, 353, 400, 710};
constexpr std::int64_t kDepths[] = {1, 3, 8, 16, 31, 32, 64, 65, 80, 128, 256};

struct AttentionCase {
  Shape batch;
  std::int64_t queries, keys, depth, features;
  tn::DType dtype;

  Shape with(std::int64_t rows, std::int64_t columns) const {
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    return shape;
  }
  Tensors inputs() const {
    return {normal(with(queries, depth), dtype), normal(with(keys, depth), dtype),
            normal(with(keys, features), dtype)};
  }
};

AttentionCase any_attention() {
  AttentionCase c;
  for (int rank = pick(3); rank > 0; --rank) c.batch.push_back(1 + pick(3));
  c.queries = kTokens[pick(14)];
  c.keys = kTokens[pick(14)];
  c.depth = kDepths[pick(11)];
  c.features = pick(2) ? c.depth : kDepths[pick(11)];
  c.dtype = pick(3) ? tn::f32 : pick(2) ? tn::bf16 : tn::f16;
  return c;
}

// Against the exact result for the same inputs, rounded once to the type: the tile stays in float32
// whatever the type. An average of values with weights that are off by the rounding of scores of up
// to a few dozens: by 2e-5 of the largest result, and, where 16-bit results round apart, one unit
// in the last place. Where products are in bf16, every weight is rounded by 2^-8 at most.
void check_attention(const tn::TensorFunction& f, const Tensors& inputs) {
  Tensors wide;
  for (const Tensor& x : inputs) wide.push_back(tn::is_floating(x.dtype()) ? x.astype(tn::f64) : x);
  GroupRun run = run_group("attention", f, inputs, pick(4) ? &random_engine() : nullptr);
  double largest = 0;
  run.expected.clear();
  for (const Tensor& x : f(wide)) {
    for (const double value : x.to_vector<double>())
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    run.expected.push_back(x.astype(inputs[0].dtype()));
  }
  const bool rounds_weights = run.kernel.find("products in bf16") != std::string::npos;
  const double weights =
      rounds_weights ? 0x1p-8 * tn::max(tn::abs(wide[2])).item<double>() / largest : 0;
  expect_close(run, 2e-5 + weights, largest);
}

Tensor attend(const Tensors& in, const Tensor& mask = {}) {
  return tn::scaled_dot_product_attention(in[0], in[1], in[2], mask);
}

// The same with a power of two for 1 / sqrt(depth): 16-bit types hold that, and it rounds nothing.
// What is rounded is the sum with a mask, to bf16.
Tensor attend_exactly(const Tensors& in, const Tensor& mask = {}) {
  const double depth = static_cast<double>(in[0].shape(-1));
  const Tensor scaled = in[0] * std::exp2(-std::round(std::log2(depth) / 2));
  Tensor scores = tn::matmul(scaled, in[1].swapaxes(-1, -2));
  if (mask.defined()) scores = (scores + mask).astype(tn::bf16).astype(in[0].dtype());
  return tn::matmul(tn::softmax(scores, -1), in[2]);
}

TEST(Attention, RandomShapesAndLayouts) {
  for (int round = 0; round < 60; ++round) {
    const AttentionCase c = any_attention();
    const bool is_short = c.dtype != tn::f32;
    check_attention(
        [=](const Tensors& in) -> Tensors { return {is_short ? attend_exactly(in) : attend(in)}; },
        c.inputs());
    if (HasFailure()) FAIL() << c.batch << ' ' << c.queries << ' ' << c.keys << ' ' << c.depth;
  }
}

// In f16 the tile stays in float32: compared with the exact result the group must be as good as one
// rounding of the result (and of nothing in between).
TEST(Attention, HalvesRoundOnce) {
  const AttentionCase c{{2}, 65, 100, 64, 32, tn::f16};
  const Tensors inputs = c.inputs();
  Tensors wide;
  for (const Tensor& x : inputs) wide.push_back(x.astype(tn::f64));
  GroupRun run = run_group(
      "attention", [](const Tensors& in) -> Tensors { return {attend(in)}; }, inputs, nullptr);
  // The factor 1 / sqrt(64) is exact.
  run.expected = {attend(wide).astype(tn::f16)};
  expect_close(run, 1e-5, 0.1);
}

// ---- Both products in bf16, as compile() writes them.

bool multiplies_bf16() {
  return tn::cpu::this_machine().has_bf16 && tn::simd::table().product_pairs;
}

Tensor attend_narrow(const Tensors& in, double scale, tn::DType result) {
  const Tensor q = in[0].astype(tn::bf16), k = in[1].swapaxes(-1, -2).astype(tn::bf16);
  Tensor scores = tn::matmul(q, k).astype(tn::f32) * scale;
  if (in.size() > 3) scores = scores + in[3];
  const Tensor weights = tn::softmax(scores, -1).astype(tn::bf16);
  return tn::matmul(weights, in[2].astype(tn::bf16)).astype(result);
}

// Against the exact result for operands in bf16 (where the processor cannot multiply those, for
// operands as they are: nothing is rounded then). Every weight is rounded once, by 2^-8 at most:
// that moves an average of values by 2^-8 times the average of their magnitudes. Products and sums
// of float32, and of scores in float32 to their exponentials, may add 2e-5 of the largest value.
void check_narrow(const AttentionCase& c, Tensors inputs, double scale, tn::DType result) {
  const GroupRun run = run_group(
      "attention", [&](const Tensors& in) -> Tensors { return {attend_narrow(in, scale, result)}; },
      inputs, pick(4) ? &random_engine() : nullptr);
  EXPECT_EQ(run.kernel.find("products in bf16") != std::string::npos, multiplies_bf16())
      << run.kernel;
  Tensors wide;
  for (const Tensor& x : inputs)
    wide.push_back((wide.size() < 3 && multiplies_bf16() ? x.astype(tn::bf16) : x).astype(tn::f64));
  Tensor scores = tn::matmul(wide[0], wide[1].swapaxes(-1, -2)) * scale;
  if (wide.size() > 3) scores = scores + wide[3];
  const Tensor weights = tn::softmax(scores, -1);
  const auto exact = tn::matmul(weights, wide[2]).to_vector<double>(),
             magnitude = tn::matmul(weights, tn::abs(wide[2])).to_vector<double>(),
             got = run.got[0].to_vector<double>();
  const double largest = tn::max(tn::abs(wide[2])).item<double>();
  const double last = result == tn::bf16 ? 0x1p-8 : 0;  // the result is rounded as well
  ASSERT_EQ(got.size(), exact.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(exact[i]) && std::isnan(got[i])) continue;
    const double bound = 0x1p-8 * magnitude[i] + 2e-5 * largest + 1.01 * last * std::abs(got[i]);
    ASSERT_LE(std::abs(got[i] - exact[i]), bound)
        << run.kernel << " element " << i << ": got " << got[i] << ", need " << exact[i] << "; "
        << c.batch << ' ' << c.queries << ' ' << c.keys << ' ' << c.depth << ' ' << c.features;
  }
}

TEST(Attention, ProductsInBf16) {
  for (int round = 0; round < 80; ++round) {
    AttentionCase c = any_attention();
    c.dtype = pick(2) ? tn::f32 : tn::bf16;
    Tensors inputs = c.inputs();
    if (pick(3) == 0) inputs[2] = inputs[2].astype(c.dtype == tn::f32 ? tn::bf16 : tn::f32);
    if (pick(2)) {
      Shape shape{c.queries, c.keys};
      if (pick(2)) shape[pick(2)] = 1;
      inputs.push_back(
          pick(2) ? normal(shape)
                  : tn::where(normal(shape) > 0.5, 0.0, -std::numeric_limits<double>::infinity())
                        .astype(tn::f32));
    }
    // Scores of a few units whatever the depth; now and then with one weight of nearly 1.
    const double scale = (pick(5) ? 1 : 20) / std::sqrt(static_cast<double>(c.depth));
    check_narrow(c, inputs, scale, pick(2) ? tn::f32 : tn::bf16);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

// An odd number of keys or features leaves half a word, which must not be read.
TEST(Attention, ProductsInBf16WithOddEnds) {
  for (const std::int64_t keys : {2, 3, 15, 17, 31, 33, 197, 351, 353, 709})
    for (const std::int64_t depth : {1, 31, 33, 127, 128}) {
      const AttentionCase c{{2}, 5, keys, depth, depth, tn::bf16};
      check_narrow(c, c.inputs(), 0.3, tn::f32);
      if (HasFatalFailure()) return;
    }
}

TEST(Attention, ProductsInBf16OfSpecialValues) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t keys : {5, 64, 801})
    for (const float planted : {nan, -infinity, 1e30f}) {
      const AttentionCase c{{}, 20, keys, 32, 32, tn::f32};
      Tensors inputs = c.inputs();
      Tensor mask = tn::zeros({20, keys});
      mask(3, keys / 2) = planted;
      mask(7, tn::ellipsis) = planted;
      mask(8, tn::slice(0, keys / 2)) = planted;
      inputs.push_back(mask);
      check_narrow(c, inputs, 0.2, tn::f32);
      if (HasFatalFailure()) FAIL() << keys << " keys, " << planted;
    }
}

// A product of each kind: nothing may be rounded that the graph does not round.
TEST(Attention, OneProductInBf16StaysInFloat32) {
  const AttentionCase c{{2}, 33, 65, 32, 32, tn::f32};
  const Tensors inputs = c.inputs();
  GroupRun run = run_group(
      "attention",
      [](const Tensors& in) -> Tensors {
        const Tensor q = in[0].astype(tn::bf16), k = in[1].swapaxes(-1, -2).astype(tn::bf16);
        const Tensor scores = tn::matmul(q, k).astype(tn::f32) * 0.1;
        return {tn::matmul(tn::softmax(scores, -1), in[2])};
      },
      inputs, nullptr);
  EXPECT_EQ(run.kernel.find("products in bf16"), std::string::npos) << run.kernel;
  const Tensor q = inputs[0].astype(tn::f64), k = inputs[1].astype(tn::f64).swapaxes(-1, -2);
  const Tensor weights = tn::softmax(tn::matmul(q, k) * 0.1, -1);
  run.expected = {tn::matmul(weights, inputs[2].astype(tn::f64)).astype(tn::f32)};
  expect_close(run, 2e-5, 1);
}

TEST(Attention, PlacesOfTheScale) {
  const AttentionCase c{{2, 3}, 33, 65, 32, 32, tn::f32};
  const auto scores = [](const Tensor& q, const Tensor& k) {
    return tn::matmul(q, k.swapaxes(-1, -2));
  };
  const auto on = [&](const tn::TensorFunction& f) {
    for (int i = 0; i < 3; ++i) check_attention(f, c.inputs());
  };
  on([&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::softmax(scores(in[0], in[1]), -1), in[2])};
  });
  on([&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::softmax(scores(in[0], in[1]) * 0.2, -1), in[2])};
  });
  on([&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::softmax(scores(0.5 * in[0], in[1]) * 0.2 * 3.0, -1), in[2])};
  });
  on([&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::softmax(tn::matmul(in[0], in[1].swapaxes(-1, -2) * 0.3), -1), in[2])};
  });
  on([&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::softmax(tn::tanh(scores(in[0], in[1]) / 7.0) * 2.5, -1), in[2])};
  });
  check_narrow(c, c.inputs(), 0.1, tn::f32);
}

TEST(Attention, Masks) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 40; ++round) {
    AttentionCase c = any_attention();
    c.batch = {1 + pick(2), 1 + pick(3)};
    c.dtype = tn::f32;
    Shape shape = c.with(c.queries, c.keys);
    for (int axis = 0; axis < 3; ++axis)
      if (pick(2)) shape[axis] = 1;
    if (pick(2)) shape.erase(0);
    Tensors inputs = c.inputs();
    switch (round % 4) {
      case 0:  // added, as DETR adds -inf for padding
        inputs.push_back(tn::where(normal(shape) > 0.5, 0.0, -infinity).astype(tn::f32));
        check_attention([](const Tensors& in) -> Tensors { return {attend(in, in[3])}; }, inputs);
        break;
      case 1:  // kept where true
        inputs.push_back(normal(shape) > 0.8);
        check_attention([](const Tensors& in) -> Tensors { return {attend(in, in[3])}; }, inputs);
        break;
      case 2:  // a bias, all in bf16; scores that are exact, so that their sums round alike
        c.dtype = tn::bf16;
        inputs = c.inputs();
        for (const std::size_t i : {0, 1}) inputs[i] = tn::round(inputs[i]);
        inputs.push_back(normal(shape, tn::bf16));
        check_attention([](const Tensors& in) -> Tensors { return {attend_exactly(in, in[3])}; },
                        inputs);
        break;
      default:  // two of them
        inputs.push_back(normal(shape));
        inputs.push_back(normal({c.keys}));
        check_attention(
            [](const Tensors& in) -> Tensors {
              const Tensor scores = tn::matmul(in[0], in[1].swapaxes(-1, -2)) * 0.1;
              return {tn::matmul(tn::softmax(scores + in[3] * scores + in[4], -1), in[2])};
            },
            inputs);
    }
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

// Windows of images, each with a mask of its own, which the batch of all windows does not show.
TEST(Attention, MasksOfWindows) {
  for (int round = 0; round < 10; ++round) {
    AttentionCase c = any_attention();
    // Tiles of several images' windows would need another form of the batch.
    const std::int64_t images = round % 2 == 0 ? 1 : 1 + pick(3),
                       windows = images > 1 ? 1 : 1 + pick(4), heads = 1 + pick(3);
    c.batch = {images * windows, heads};
    c.dtype = tn::f32;
    Tensors inputs = c.inputs();
    inputs.push_back(normal({heads, c.queries, c.keys}));
    inputs.push_back(normal({1, windows, 1, c.queries, c.keys}));
    check_attention(
        [&](const Tensors& in) -> Tensors {
          const Tensor scores = tn::matmul(in[0], in[1].swapaxes(-1, -2)) * 0.1 + in[3];
          const Tensor masked = scores.reshape({images, windows, heads, c.queries, c.keys}) + in[4];
          return {tn::matmul(tn::softmax(masked.reshape(scores.shape()), -1), in[2])};
        },
        inputs);
    if (HasFailure()) FAIL() << "round " << round << ' ' << images << ' ' << windows;
  }
  // Other columns are no other windows.
  const Tensors in{normal({2, 6, 4}), normal({2, 6, 4}), normal({2, 6, 5})};
  EXPECT_FALSE(accepts(
      "attention",
      [](const Tensors& t) -> Tensors {
        const Tensor scores = tn::matmul(t[0], t[1].swapaxes(-1, -2)) * 0.1 + 1.0;
        const Tensor lines = scores.reshape({3, 24}) * 0.5;
        return {tn::matmul(tn::softmax(lines.reshape(scores.shape()), -1), t[2])};
      },
      in));
}

TEST(Attention, BroadcastKeysAndHeadsInOneRow) {
  // Queries of several heads that share keys and values.
  check_attention([](const Tensors& in) -> Tensors { return {attend(in)}; },
                  {normal({2, 4, 50, 16}), normal({2, 1, 70, 16}), normal({70, 16})});
  // One projection holds all heads: [tokens, heads * depth], and so does the result.
  check_attention(
      [](const Tensors& in) -> Tensors {
        const auto heads = [](const Tensor& x) { return x.reshape({197, 3, 64}).swapaxes(0, 1); };
        return {attend({heads(in[0]), heads(in[1]), heads(in[2])})};
      },
      {normal({197, 192}), normal({197, 192}), normal({197, 192})});
}

TEST(Attention, SpecialValues) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const auto f = [](const Tensors& in) -> Tensors { return {attend(in, in[3])}; };
  for (const std::int64_t keys : {5, 64, 800})
    for (const float planted : {nan, infinity, -infinity, 1e30f}) {
      const AttentionCase c{{}, 20, keys, 32, 32, tn::f32};
      Tensors inputs = c.inputs();
      Tensor mask = tn::zeros({20, keys});
      mask(3, keys / 2) = planted;
      mask(7, tn::ellipsis) = planted;
      mask(8, tn::slice(0, keys / 2)) = planted;
      inputs.push_back(mask);
      check_attention(f, inputs);
      if (HasFailure()) FAIL() << keys << " keys, " << planted;
    }
  // Scores of thousands: all weight on one key.
  const AttentionCase c{{}, 33, 500, 64, 64, tn::f32};
  Tensors inputs = c.inputs();
  inputs[0] = inputs[0] * 300.0;
  inputs.push_back(tn::zeros({500}));
  const GroupRun run = run_group("attention", f, inputs, nullptr);
  expect_close(run, 2e-3, 1);  // scores of 3000 round to 2e-4
}

// Bytes by one scale in place of the result, in any layout.
TEST(Attention, RoundsByOneScale) {
  for (int round = 0; round < 20; ++round) {
    const std::int64_t queries = 1 + pick(60), keys = 2 + pick(80), depth = 1 + pick(40);
    const tn::DType dtype = pick(2) ? tn::bf16 : tn::f32;
    const auto f = [](const Tensors& in) -> Tensors {
      const Tensor weights = tn::softmax(tn::matmul(in[0], in[1]).astype(tn::f32), -1);
      const Tensor sums = tn::matmul(weights.astype(in[2].dtype()), in[2]).astype(tn::f32);
      return {tn::round(tn::maximum(sums * 20, -127)).astype(tn::i8)};
    };
    const Tensors inputs = {(normal({2, 3, queries, depth}) * 0.05).astype(dtype),
                            normal({2, 3, depth, keys}, dtype), normal({2, 3, keys, depth}, dtype)};
    const GroupRun run = run_group("attention", f, inputs, pick(3) ? &random_engine() : nullptr);
    const auto got = run.got[0].to_vector<int>(), want = run.expected[0].to_vector<int>();
    // In bf16 scores of up to 1.3, weights of the kernel, those of the reference, and its sums are
    // off by 2^-9 of themselves: of 20 times numbers of up to 4 by less than a step.
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got[i] - want[i]), 1) << run.kernel << " element " << i;
  }
}

TEST(Attention, Declines) {
  const Tensor q = normal({2, 8, 4}), k = normal({2, 9, 4}), v = normal({2, 9, 5});
  const Tensors in{q, k, v};
  const auto scores = [](const Tensors& t) { return tn::matmul(t[0], t[1].swapaxes(-1, -2)); };
  const auto declines = [](const tn::TensorFunction& f, const Tensors& t) {
    return !accepts("attention", f, t);
  };
  EXPECT_FALSE(declines([&](const Tensors& t) -> Tensors { return {attend(t)}; }, in));
  // The weights are wanted too.
  EXPECT_TRUE(declines(
      [&](const Tensors& t) -> Tensors {
        const Tensor weights = tn::softmax(scores(t), -1);
        return {tn::matmul(weights, t[2]), weights};
      },
      in));
  EXPECT_TRUE(declines(
      [&](const Tensors& t) -> Tensors { return {tn::matmul(tn::softmax(scores(t), -2), t[2])}; },
      in));
  EXPECT_TRUE(declines(
      [&](const Tensors& t) -> Tensors {
        return {tn::matmul(tn::softmax(scores(t), -1) * 2.0, t[2])};
      },
      in));
  EXPECT_TRUE(declines(
      [&](const Tensors& t) -> Tensors {
        return {tn::matmul(tn::softmax(scores(t), -1), t[2]) + 1.0};
      },
      in));
  EXPECT_TRUE(
      declines([&](const Tensors& t) -> Tensors { return {tn::matmul(scores(t), t[2])}; }, in));
  EXPECT_TRUE(declines(
      [&](const Tensors& t) -> Tensors {
        return {tn::matmul(t[2].swapaxes(-1, -2), tn::softmax(scores(t), -1).swapaxes(-1, -2))};
      },
      in));
  EXPECT_TRUE(declines([&](const Tensors& t) -> Tensors { return {attend(t)}; },
                       {q.astype(tn::f64), k.astype(tn::f64), v.astype(tn::f64)}));
  // Casts of a factor that are no roundings.
  for (const std::size_t factor : {0, 2})
    for (const tn::DType to : {tn::boolean, tn::i32, tn::f64, tn::bf16})
      EXPECT_EQ(declines(
                    [&](const Tensors& t) -> Tensors {
                      Tensors cast = t;
                      cast[factor] = t[factor].astype(to).astype(tn::f32);
                      return {attend(cast)};
                    },
                    in),
                to != tn::bf16)
          << factor << ' ' << to;
  // One key: a softmax of nothing but ones.
  EXPECT_TRUE(declines([&](const Tensors& t) -> Tensors { return {attend(t)}; },
                       {q, normal({2, 1, 4}), normal({2, 1, 5})}));
}

// ---- What may be tried.

TEST(Attention, SchedulesSayHowItIsCut) {
  const AttentionCase c{{2}, 197, 197, 64, 64, tn::f32};
  const tn::Graph graph =
      graph_of([](const Tensors& in) -> Tensors { return {attend(in)}; }, c.inputs());
  const tn::LaidOutGraph laid = tn::lay_out(graph);
  tn::Group group = whole_group(laid.graph);
  const tn::cpu::Machine machine = tn::cpu::this_machine(2);
  const auto space = space_of(family("attention"), laid, group, machine);
  ASSERT_TRUE(space);
  EXPECT_TRUE(space->has(space->chosen)) << space->chosen.text();
  std::cout << space->size() << " schedules, chosen " << space->chosen.text() << '\n';
  EXPECT_GE(space->size(), 50);
  EXPECT_EQ(space->features(space->chosen).size(), tn::feature_names().size());
  const auto described = [&](const std::string& schedule) {
    group.schedule = schedule;
    return built_by(family("attention"), laid, group, machine)->description();
  };
  EXPECT_EQ(described(space->chosen.text()), described(""));
  EXPECT_NE(described("streamed parts=2 queries=32 keys=64").find("blocks of 32 x 64"),
            std::string::npos);
  EXPECT_EQ(described("streamed parts=2 queries=32 keys=63"), described("")) << "no whole panels";
  EXPECT_EQ(described("swapped tokens=8"), described(""));
}

}  // namespace
