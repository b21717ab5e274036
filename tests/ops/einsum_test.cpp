// einsum against a loop over every value of every label.
#include <cmath>
#include <map>

#include "tensor/compile.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::layouts;
using check::random_tensor;

struct Reference {
  Shape shape;
  std::vector<double> values;
  double scale = 0;  // the largest sum of |products|
};

// `inputs` and `output` spell out what the equation means. Extents of 1 stretch.
Reference reference(const std::vector<std::string>& inputs, const std::string& output,
                    const std::vector<Tensor>& operands) {
  std::map<char, std::int64_t> extents, index;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t axis = 0; axis < inputs[i].size(); ++axis) {
      std::int64_t& extent = extents.emplace(inputs[i][axis], 1).first->second;
      if (operands[i].shape(int(axis)) != 1) extent = operands[i].shape(int(axis));
    }
  const auto place = [&](const std::string& labels, const Shape& shape) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < labels.size(); ++axis)
      at = at * shape[int(axis)] + (shape[int(axis)] == 1 ? 0 : index[labels[axis]]);
    return static_cast<std::size_t>(at);
  };
  Reference result;
  for (const char label : output) result.shape.push_back(extents[label]);
  result.values.assign(static_cast<std::size_t>(num_elements(result.shape)), 0.0);
  std::vector<double> sizes(result.values.size(), 0.0);
  std::vector<std::vector<double>> values;
  std::int64_t total = 1;
  for (const Tensor& x : operands) values.push_back(x.to_vector<double>());
  for (const auto& [label, extent] : extents) total *= extent;
  for (std::int64_t step = 0; step < total; ++step) {
    std::int64_t rest = step;
    for (const auto& [label, extent] : extents) {
      index[label] = rest % extent;
      rest /= extent;
    }
    double term = 1;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      term *= values[i][place(inputs[i], operands[i].shape())];
    const std::size_t at = place(output, result.shape);
    result.values[at] += term;
    result.scale = std::max(result.scale, sizes[at] += std::fabs(term));
  }
  return result;
}

struct EinsumCase {
  std::string equation;
  std::vector<std::string> inputs;
  std::string output;
  std::vector<Shape> shapes;
};

const EinsumCase kEinsumCases[] = {
    {"ij,jk->ik", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
    {"ij,jk", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
    {"ij,jk->ki", {"ij", "jk"}, "ki", {{3, 4}, {4, 5}}},
    {"ba", {"ba"}, "ab", {{3, 4}}},  // implicit output: alphabetical
    {" b h q d , b h k d -> b h q k ", {"bhqd", "bhkd"}, "bhqk", {{2, 3, 5, 4}, {2, 3, 6, 4}}},
    {"ii->i", {"ii"}, "i", {{5, 5}}},
    {"ii", {"ii"}, "", {{5, 5}}},
    {"iii->i", {"iii"}, "i", {{3, 3, 3}}},
    {"ijij->ji", {"ijij"}, "ji", {{2, 3, 2, 3}}},
    {"ii,i->", {"ii", "i"}, "", {{4, 4}, {4}}},
    {"bi,bj->bij", {"bi", "bj"}, "bij", {{2, 3}, {2, 4}}},
    {"i,j->ji", {"i", "j"}, "ji", {{3}, {4}}},
    {"ijk->kj", {"ijk"}, "kj", {{2, 3, 4}}},
    {"ijk->", {"ijk"}, "", {{2, 3, 4}}},
    {"ij,kl->", {"ij", "kl"}, "", {{2, 3}, {4, 2}}},  // everything is summed, nothing shared
    {"abc,cd,db->a", {"abc", "cd", "db"}, "a", {{2, 3, 4}, {4, 5}, {5, 3}}},
    {"ab,bc,ca->", {"ab", "bc", "ca"}, "", {{2, 3}, {3, 4}, {4, 2}}},
    {"ab,ab,ab->ab", {"ab", "ab", "ab"}, "ab", {{2, 3}, {2, 3}, {2, 3}}},
    {"aB,Bc->ac", {"aB", "Bc"}, "ac", {{2, 3}, {3, 4}}},
    {",ij->ji", {"", "ij"}, "ji", {{}, {2, 3}}},
    {"i,i->i", {"i", "i"}, "i", {{1}, {3}}},          // extents of 1 stretch,
    {"ij,ij->", {"ij", "ij"}, "", {{1, 3}, {4, 1}}},  // also where they are summed
    {"ij,jk->ik", {"ij", "jk"}, "ik", {{3, 0}, {0, 2}}},
    {"ij->j", {"ij"}, "j", {{0, 3}}},
};

TEST(Einsum, AgreesWithLoopsInEveryLayout) {
  for (const EinsumCase& c : kEinsumCases) {
    for (const DType dtype : {f16, bf16, f32, f64}) {
      SCOPED_TRACE(c.equation);
      std::vector<Tensor> operands;
      for (const Shape& shape : c.shapes) operands.push_back(random_tensor(shape, dtype));
      const Reference expected = reference(c.inputs, c.output, operands);
      for (std::size_t layout = 0; layout < 4; ++layout) {
        std::vector<Tensor> views;
        for (const Tensor& x : operands) views.push_back(layouts(x)[layout]);
        const Tensor got = einsum(c.equation, views);
        EXPECT_EQ(got.shape(), expected.shape);
        EXPECT_EQ(got.dtype(), dtype);
        // At most 24 terms a sum, and one rounding to the type for each of at most 5 steps.
        const double tolerance =
            24 * check::epsilon(dtype == f64 ? f64 : f32) + 5 * check::epsilon(dtype);
        expect_near(got, expected.values, tolerance, expected.scale);
      }
    }
  }
}

// From the left, the first two would make 10^9 elements, the first three 10^14.
TEST(Einsum, MultipliesInAnOrderThatTakesLittle) {
  const Tensor a = random_tensor({2000, 40}), b = random_tensor({40, 2000}),
               c = random_tensor({40, 40});
  const auto expect_product = [&](const char* equation, const std::vector<Tensor>& operands,
                                  const Tensor& expected) {
    const Tensor exact = expected.astype(f64);
    expect_near(einsum(equation, operands), exact.to_vector<double>(), 1e-4,
                max(abs(exact)).item());
  };
  const Tensor chain = matmul(matmul(a, c), b);
  expect_product("ij,kl,jk->il", {a, b, c}, chain);
  expect_product("kl,ij,jk->li", {b, a, c}, chain.transpose());
  const Tensor wide = random_tensor({2000, 2000}), narrow = matmul(matmul(b, wide), a);
  expect_product("ij,kl,mn,op,jk,lm,no->ip", {a, b, a, b, c, wide, c},
                 matmul(matmul(matmul(matmul(a, c), narrow), c), b));
}

// As many operands as make it choose pairs one by one, in any order.
TEST(Einsum, MultipliesChainsOfManyOperands) {
  for (const int count : {2, 8, 9, 20}) {
    std::vector<Tensor> operands;
    std::vector<std::string> labels;
    Tensor expected = ones({1, 1}, f64);
    for (int i = 0; i < count; ++i) {
      operands.push_back(random_tensor({i == 0 ? 1 : 60, i + 1 == count ? 1 : 60}, f64));
      labels.push_back({static_cast<char>('a' + i), static_cast<char>('a' + i + 1)});
      expected = matmul(expected, operands.back());
    }
    // Every third from the front, then what is left: neighbours are far apart.
    std::string equation;
    std::vector<Tensor> mixed;
    for (int start : {0, 1, 2})
      for (int i = start; i < count; i += 3) {
        equation += (equation.empty() ? "" : ",") + labels[static_cast<std::size_t>(i)];
        mixed.push_back(operands[static_cast<std::size_t>(i)]);
      }
    equation += "->a" + std::string(1, static_cast<char>('a' + count));
    const double value = expected.item();
    EXPECT_NEAR(einsum(equation, mixed).item(), value, 1e-9 * std::pow(60, count - 1)) << equation;
  }
}

// Random expressions: few labels, which repeat within operands and stretch, and any output.
TEST(Einsum, AgreesWithLoopsForRandomExpressions) {
  Generator& random = check::random();
  const auto below = [&](int n) { return static_cast<int>(random.randint(0, n, {}).item<int>()); };
  for (int round = 0; round < 300; ++round) {
    const std::string letters = "abXyz";
    std::map<char, std::int64_t> extents;
    for (const char letter : letters) extents[letter] = 1 + below(3);
    std::vector<std::string> inputs(static_cast<std::size_t>(1 + below(round % 10 == 0 ? 11 : 5)));
    std::vector<Tensor> operands;
    std::string equation, output, used;
    for (std::string& labels : inputs) {
      Shape shape;
      for (int axes = below(4); axes > 0; --axes) {
        labels += letters[static_cast<std::size_t>(below(5))];
        const bool stretches = below(6) == 0 && labels.find(labels.back()) + 1 == labels.size();
        shape.push_back(stretches ? 1 : extents[labels.back()]);
      }
      for (std::size_t axis = 0; axis < labels.size(); ++axis)  // a diagonal is a square's
        shape[static_cast<int>(axis)] = shape[static_cast<int>(labels.find(labels[axis]))];
      operands.push_back(random_tensor(shape, f64));
      equation += (operands.size() > 1 ? "," : "") + labels;
      used += labels;
    }
    for (const char letter : letters)
      if (used.find(letter) != std::string::npos && below(2) == 0)
        output.insert(static_cast<std::size_t>(below(int(output.size()) + 1)), 1, letter);
    equation += "->" + output;
    SCOPED_TRACE(equation);
    const Reference expected = reference(inputs, output, operands);
    const double tolerance = 1e3 * check::epsilon(f64);
    const Tensor eager = einsum(equation, operands);
    EXPECT_EQ(eager.shape(), expected.shape);
    expect_near(eager, expected.values, tolerance, expected.scale);
    if (round % 10 != 0) continue;
    const auto traced = [&](const std::vector<Tensor>& in) {
      return std::vector{einsum(equation, in)};
    };
    expect_near(compile(traced, operands)(operands)[0], expected.values, tolerance, expected.scale);
  }
}

TEST(Einsum, KeepsTheElementType) {
  for (const DType dtype : {u8, i8, i32, i64}) {
    const Tensor x = full({300, 2}, 3, dtype);
    const Tensor total = einsum("ij->j", {x}), product = einsum("ij,ij->j", {x, x});
    EXPECT_EQ(total.dtype(), dtype);
    EXPECT_EQ(product.dtype(), dtype);
    const auto wrapped = [&](int value) {
      return dtype == u8 ? std::uint8_t(value) : dtype == i8 ? std::int8_t(value) : value;
    };
    EXPECT_EQ(total.item<int>(0), wrapped(900));
    EXPECT_EQ(product.item<int>(0), wrapped(2700));
  }
  EXPECT_EQ(einsum("ij,j->i", {ones({2, 2}, i32), ones({2}, f32)}).dtype(), f64);
  const Tensor flags = array({true, true, false, false}).reshape({2, 2});
  EXPECT_EQ(einsum("ij->i", {flags}).dtype(), boolean);
  EXPECT_EQ(einsum("ij->i", {flags}).to_vector<int>(), (std::vector<int>{1, 0}));
  EXPECT_EQ(einsum("ij,kj->ik", {flags, flags}).to_vector<int>(), (std::vector<int>{1, 0, 0, 0}));
  EXPECT_EQ(einsum("i,j->ij", {flags(0), flags(1)}).dtype(), boolean);
}

TEST(Einsum, Errors) {
  const Tensor m = zeros({2, 3});
  EXPECT_EQ(error_of([&] { einsum("..i", {m}); }),
            "einsum: got '.' in \"..i\", need one \"...\" of an operand's axes");
  EXPECT_EQ(error_of([&] { einsum("...i...", {m}); }),
            "einsum: got '.' in \"...i...\", need one \"...\" of an operand's axes");
  EXPECT_EQ(error_of([&] { einsum("...ijk", {m}); }),
            "einsum: \"...ijk\" names 3 axes and \"...\" of the shape (2, 3)");
  EXPECT_EQ(
      error_of([&] { einsum("...i->i", {m}); }),
      "einsum: the output of \"...i->i\" has no \"...\", but the operands have 1 axes for it");
  EXPECT_EQ(error_of([&] {
              einsum("...", {ones({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})});
            }),
            "einsum: \"...\" in \"...\" stands for 12 axes of the shape "
            "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), need at most 11");
  EXPECT_EQ(error_of([&] { einsum("i1", {m}); }),
            "einsum: got '1' in \"i1\", need letters, commas and one \"->\"");
  EXPECT_EQ(error_of([&] { einsum("ij->i->j", {m}); }),
            "einsum: got '-' in \"ij->i->j\", need letters, commas and one \"->\"");
  EXPECT_EQ(error_of([&] { einsum("ij,jk", {m}); }), "einsum: \"ij,jk\" names 2 operands, got 1");
  EXPECT_EQ(error_of([&] { einsum("", {}); }), "einsum: \"\" names 1 operands, got 0");
  EXPECT_EQ(error_of([&] { einsum("ijk", {m}); }),
            "einsum: \"ijk\" in \"ijk\" names 3 axes of the shape (2, 3)");
  EXPECT_EQ(error_of([&] { einsum("ij->ii", {m}); }),
            "einsum: the output of \"ij->ii\" names 'i' twice");
  EXPECT_EQ(error_of([&] { einsum("ij->ik", {m}); }),
            "einsum: the output of \"ij->ik\" names 'k', which no input has");
  EXPECT_EQ(error_of([&] { einsum("ii->i", {m}); }),
            "einsum: 'i' in \"ii->i\" stands for axes of different extents of the shape (2, 3)");
  EXPECT_EQ(error_of([&] {
              einsum("ij,jk->ik", {m, m});
            }),
            "einsum: 'j' in \"ij,jk->ik\" stands for axes of 3 and 2 elements");
}

}  // namespace
}  // namespace tensor
