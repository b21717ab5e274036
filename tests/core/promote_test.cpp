// Type promotion against what NumPy does (tests/data/numpy_types.json, written by
// scripts/make_numpy_cases.py).
#include <gtest/gtest.h>

#include <optional>

#include "src/ops/promote.h"
#include "tensor/json.h"
#include "tests/cases/case.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

const Json& numpy() {
  static const Json types = Json::load(TENSOR_TEST_DATA "/numpy_types.json");
  return types;
}

// The result's type, or nullopt where the library refuses.
template <class Body>
std::optional<DType> type_of(Body body) {
  try {
    return body().dtype();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string text(std::optional<DType> dtype) {
  return dtype ? std::string(name(*dtype)) : "refused";
}
std::string expected(const Json& value) { return value.is_null() ? "refused" : value.text(); }

TEST(Promotion, OfTwoTypesIsNumPys) {
  int count = 0;
  for (const std::string& a : numpy()["promote"].keys())
    for (const std::string& b : numpy()["promote"][a].keys()) {
      EXPECT_EQ(name(promote(parse_dtype(a), parse_dtype(b))), numpy()["promote"][a][b].text())
          << a << " with " << b;
      ++count;
    }
  EXPECT_EQ(count, 81);
}

// NumPy has no bfloat16; it behaves as a second 16-bit type.
TEST(Promotion, OfBFloat16) {
  for (const DType dtype : cases::kAllTypes) {
    const DType as_half = promote(f16, dtype);
    const DType want = dtype == bf16 ? bf16 : dtype == f16 ? f32 : as_half == f16 ? bf16 : as_half;
    EXPECT_EQ(promote(bf16, dtype), want) << dtype;
    EXPECT_EQ(promote(dtype, bf16), want) << dtype;
  }
}

TEST(Promotion, OfUnaryOperatorsIsNumPys) {
  for (const std::string& op : numpy()["unary"].keys())
    for (const std::string& a : numpy()["unary"][op].keys()) {
      const auto got = type_of([&] { return call(op, {ones({1}, parse_dtype(a))})[0]; });
      EXPECT_EQ(text(got), expected(numpy()["unary"][op][a])) << op << ' ' << a;
    }
}

TEST(Promotion, OfBinaryOperatorsIsNumPys) {
  for (const std::string& op : numpy()["binary"].keys())
    for (const std::string& a : numpy()["binary"][op].keys())
      for (const std::string& b : numpy()["binary"][op][a].keys()) {
        const auto got = type_of([&] {
          return call(op, {ones({1}, parse_dtype(a)), ones({1}, parse_dtype(b))})[0];
        });
        EXPECT_EQ(text(got), expected(numpy()["binary"][op][a][b])) << op << ' ' << a << ' ' << b;
      }
}

TEST(Promotion, OfCppNumbersIsNumPysOfPythonNumbers) {
  const std::pair<std::string, Tensor> numbers[] = {
      {"true", true}, {"1", 1}, {"300", 300}, {"-1", -1}, {"1.5", 1.5}};
  for (const std::string& a : numpy()["add_scalar"].keys())
    for (const auto& [spelling, number] : numbers) {
      const Tensor x = ones({1}, parse_dtype(a));
      const std::string want = expected(numpy()["add_scalar"][a][spelling]);
      EXPECT_EQ(text(type_of([&] { return x + number; })), want) << a << " + " << spelling;
      EXPECT_EQ(text(type_of([&] { return number + x; })), want) << spelling << " + " << a;
    }
}

TEST(Promotion, NumbersAmongThemselves) {
  EXPECT_EQ((Tensor(1) + Tensor(2)).dtype(), i64);
  EXPECT_EQ((Tensor(1) + Tensor(2.5)).dtype(), f64);
  EXPECT_EQ((Tensor(true) + Tensor(true)).dtype(), boolean);
  EXPECT_FALSE((Tensor(1) + Tensor(2)).is_weak());
  EXPECT_FALSE(Tensor(1).astype(i64).is_weak());
}

TEST(Promotion, NumbersStayWeakInWhereAndClip) {
  const Tensor x = ones({2}, f16);
  EXPECT_EQ(where(x > 0, x, 0.0).dtype(), f16);
  EXPECT_EQ(clip(x, 0, 1).dtype(), f16);
  EXPECT_EQ(clip(ones({2}, u8), 0, 7).dtype(), u8);
  EXPECT_EQ(maximum(ones({2}, i16), 1.5).dtype(), f64);
}

// NumPy 2 compares with any Python integer exactly, and clips by it.
TEST(Promotion, NumbersOutOfRangeCompareAndClip) {
  const Tensor x = ones({1}, u8);
  EXPECT_TRUE((x < 1000).item<bool>());
  EXPECT_TRUE((1000 > x).item<bool>());
  EXPECT_FALSE((x <= -1).item<bool>());
  EXPECT_FALSE((x == -1).item<bool>());
  EXPECT_FALSE((x == 257).item<bool>());  // 1, were it wrapped
  EXPECT_TRUE((x != 300).item<bool>());
  EXPECT_TRUE((full({1}, -1, i8) >= -129).item<bool>());
  EXPECT_EQ(clip(x, 0, 1000).dtype(), u8);
  EXPECT_EQ(clip(array({5, 100}).astype(u8), -7, 50).to_vector<int>(), (std::vector<int>{5, 50}));
  EXPECT_FALSE(clip(x, -1, 1000).shares_storage(x));
  EXPECT_EQ(error_of([&] { clip(x, 300, 1000); }),
            "maximum: the number 300 does not fit into u8: convert the tensor with astype first");
}

TEST(Promotion, Messages) {
  EXPECT_EQ(error_of([] { ones({2}, u8) + 300; }),
            "add: the number 300 does not fit into u8: convert the tensor with astype first");
  EXPECT_EQ(error_of([] { negative(ones({1}, boolean)); }),
            "negative: is not defined on bool: convert it with astype, or use a logical operator");
  EXPECT_EQ(
      error_of([] { subtract(ones({1}, boolean), ones({1}, boolean)); }),
      "subtract: is not defined on two bool tensors: use logical_xor, or convert them with astype");
  EXPECT_EQ(error_of([] { where(ones({1}), ones({2}), ones({3})); }),
            "broadcast: the shapes (2,) and (3,) do not broadcast: axes must be equal or 1, "
            "counted from the last");
}

TEST(Promotion, FloatingType) {
  const std::pair<DType, DType> table[] = {{boolean, f16}, {u8, f16},  {i8, f16},    {i16, f32},
                                           {i32, f64},     {i64, f64}, {bf16, bf16}, {f32, f32}};
  for (const auto& [from, to] : table) EXPECT_EQ(floating_type(from), to) << from;
}

}  // namespace
}  // namespace tensor
