// Functions of structs of tensors, compiled.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <sstream>
#include <utility>

#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace {

namespace tn = tensor;
using tn::Tensor;
using tn::TensorTree;

struct Boxes {
  Tensor scores, corners;
};
struct Found {
  Boxes best;
  std::array<Tensor, 2> levels;
  std::pair<Tensor, Tensor> sums;
};

struct Mixed {
  Tensor x;
  int count = 0;
};
struct Nothing {};
struct Nine {
  Tensor a, b, c, d, e, f, g, h, i;
};
struct Eight {
  Tensor a, b, c, d, e, f, g, h;
};
static_assert(TensorTree<Tensor> && TensorTree<Boxes> && TensorTree<Found> && TensorTree<Eight>);
static_assert(!TensorTree<Mixed> && !TensorTree<Nothing> && !TensorTree<Nine>);
static_assert(!TensorTree<std::vector<Tensor>> && !TensorTree<int> && !TensorTree<tn::Shape>);

struct Detector {
  Tensor weight;
  Found operator()(const Boxes& in, const Tensor& x) const {
    const Tensor y = tn::matmul(x, weight);
    return {.best = {in.scores + y, in.corners * 2},
            .levels = {tn::relu(y), y},
            .sums = {tn::sum(in.scores, 0), tn::sum(in.corners, 0)}};
  }
};

// Integers, which products and sums of float32 do not round.
Tensor whole_numbers(const tn::Shape& shape, int seed) {
  return tn::Generator(static_cast<std::uint64_t>(seed)).randint(-4, 5, shape).astype(tn::f32);
}

TEST(Tree, TensorsComeInTheOrderOfTheMembers) {
  std::vector<Tensor> all;
  for (int i = 0; i < 6; ++i) all.push_back(tn::full({}, i, tn::f32));
  const auto found = tn::tree_of<Found>(all);
  EXPECT_EQ(found.best.corners.item<float>(), 1);
  EXPECT_EQ(found.levels[1].item<float>(), 3);
  EXPECT_EQ(found.sums.first.item<float>(), 4);
  const std::vector<Tensor> again = tn::tensors_of(found);
  ASSERT_EQ(again.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(again[i].item<float>(), float(i));
  all.pop_back();
  EXPECT_EQ(tensor::check::error_of([&] { tn::tree_of<Found>(all); }),
            "tree_of: got 5 tensors, the struct has 6");
}

TEST(Tree, ModelsOfStructsAreCompiled) {
  const Detector detector{whole_numbers({5, 3}, 1)};
  const auto fast = tn::compile(detector);
  for (const std::int64_t rows : {4, 7, 4}) {
    const Boxes boxes{whole_numbers({rows, 3}, 2), whole_numbers({rows, 4}, 3)};
    const Tensor x = whole_numbers({rows, 5}, 4);
    const std::vector<Tensor> want = tn::tensors_of(detector(boxes, x)),
                              got = tn::tensors_of(fast(boxes, x));
    ASSERT_EQ(got.size(), 6u);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].type(), want[i].type()) << i;
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>()) << i;
    }
    EXPECT_EQ(fast.executable(boxes, x).input_types().size(), 3u);
    EXPECT_EQ(&fast.executable(boxes, x).program(), &fast.executable(boxes, x).program());
  }
}

TEST(Tree, FunctionsAndLambdasAreCompiled) {
  const Tensor x = whole_numbers({3}, 5), y = whole_numbers({3}, 6);
  Tensor (*const add)(const Tensor&, Tensor) = [](const Tensor& a, Tensor b) { return a + b; };
  EXPECT_EQ(tn::compile(add)(x, y).to_vector<float>(), (x + y).to_vector<float>());
  const auto thrice = tn::compile([](const Tensor& v) { return v * 3; }, {.threads = 1});
  EXPECT_EQ(thrice(x).to_vector<float>(), (x * 3).to_vector<float>());
  const auto constant = tn::compile([] { return tn::arange(3) + 1; });
  EXPECT_EQ(constant().to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Tree, FunctionsOfVectorsAreCompiledAlone) {
  const auto sums = tn::compile([](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0] + in[1], in[0] - in[1]};
  });
  static_assert(std::is_same_v<decltype(sums), const tn::Compiled>);
  const Tensor x = whole_numbers({3}, 7), y = whole_numbers({3}, 8);
  EXPECT_EQ(sums({x, y})[0].to_vector<float>(), (x + y).to_vector<float>());
  EXPECT_EQ(sums({x, y})[1].to_vector<float>(), (x - y).to_vector<float>());
  const tn::TensorFunction stored = [](const std::vector<Tensor>& in) { return in; };
  static_assert(std::is_same_v<decltype(tn::compile(stored)), tn::Compiled>);
}

TEST(Tree, TheResultOfAnIndexIsATensor) {
  const auto first = tn::compile([](const Tensor& x) { return x(0); });
  const Tensor x = whole_numbers({2, 3}, 9);
  EXPECT_EQ(first(x).to_vector<float>(), x(0).to_vector<float>());
}

// The options that people write come first, in that order.
TEST(Tree, OptionsInTheUsualOrder) {
  const auto f = tn::compile([](const Tensor& x) { return x * 2; },
                             {.device = "cpu", .dtype = tn::bf16, .threads = 1});
  EXPECT_EQ(f(tn::ones({2})).to_vector<float>(), (std::vector<float>{2, 2}));
}

// Options alone are no list of types, whatever the function is kept as.
TEST(Tree, OptionsGoWithEveryKindOfFunction) {
  const Tensor x = whole_numbers({3}, 10);
  const std::vector<float> want = (x * 2).to_vector<float>();
  std::function<Tensor(const Tensor&)> stored = [](const Tensor& v) { return v * 2; };
  const auto same = stored;
  EXPECT_EQ(tn::compile(stored, {.threads = 1})(x).to_vector<float>(), want);
  EXPECT_EQ(tn::compile(same, {.threads = 1})(x).to_vector<float>(), want);
  EXPECT_EQ(tn::compile(std::move(stored), {.threads = 1})(x).to_vector<float>(), want);
  tn::TensorFunction of_vectors = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0] * 2};
  };
  const tn::TensorFunction also = of_vectors;
  EXPECT_EQ(tn::compile(of_vectors, {.threads = 1})({x})[0].to_vector<float>(), want);
  EXPECT_EQ(tn::compile(also, {.threads = 1})({x})[0].to_vector<float>(), want);
  EXPECT_EQ(tn::compile(std::move(of_vectors), {.threads = 1})({x})[0].to_vector<float>(), want);
  const auto lambda = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * 2}; };
  EXPECT_EQ(tn::compile(lambda, {.threads = 1})({x})[0].to_vector<float>(), want);
  const Detector detector{whole_numbers({5, 3}, 1)};
  const Boxes boxes{whole_numbers({4, 3}, 2), whole_numbers({4, 4}, 3)};
  EXPECT_EQ(
      tn::tensors_of(tn::compile(detector, {.threads = 1})(boxes, whole_numbers({4, 5}, 4))).size(),
      6u);
  // With types or examples, as ever.
  EXPECT_EQ(tn::compile(also, {x.type()}, {.threads = 1})({x})[0].to_vector<float>(), want);
  EXPECT_EQ(tn::compile(also, {x}, {.threads = 1})({x})[0].to_vector<float>(), want);
}

TEST(Tree, EveryMemberNeedsATensor) {
  const std::string undefined =
      "tensor: this tensor is undefined (default constructed): give it a value first";
  const auto half = tn::compile([](const Tensor& x) { return Boxes{x, {}}; });
  EXPECT_EQ(tensor::check::error_of([&] { half(tn::ones({2})); }), undefined);
  const auto both = tn::compile([](const Boxes& in) { return in.scores + 1; });
  EXPECT_EQ(tensor::check::error_of([&] { both({tn::ones({2}), {}}); }), undefined);
}

}  // namespace
