// Making tensors.
#include "tensor/creation.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/cases/case.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

TEST(Creation, Filled) {
  for (const DType dtype : cases::kAllTypes) {
    EXPECT_EQ(zeros({2, 2}, dtype).to_vector<double>(), (std::vector<double>(4, 0))) << dtype;
    EXPECT_EQ(ones({2, 2}, dtype).to_vector<double>(), (std::vector<double>(4, 1))) << dtype;
    EXPECT_EQ(zeros({2}, dtype).dtype(), dtype);
    EXPECT_EQ(ones_like(zeros({3, 0}, dtype)).type(), (TensorType{{3, 0}, dtype}));
    EXPECT_EQ(zeros_like(ones({3}, dtype)).type(), (TensorType{{3}, dtype}));
  }
  EXPECT_EQ(zeros({2}).dtype(), f32);
  EXPECT_EQ(full({2}, 7).dtype(), i64);
  EXPECT_EQ(full({2}, 7.5).dtype(), f64);
  EXPECT_EQ(full({2}, true).dtype(), boolean);
  EXPECT_EQ(full({2}, 7.9, u8).to_vector<int>(), (std::vector<int>{7, 7}));
  EXPECT_EQ(full({2, 3}, array({1, 2, 3})).to_vector<int>(), (std::vector<int>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(full({2}, 7, boolean).to_vector<int>(), (std::vector<int>{1, 1}));
  EXPECT_EQ(full({2}, array({300}), u8).to_vector<int>(), (std::vector<int>{44, 44}));
  EXPECT_EQ(error_of([] { full({2}, 300, u8); }),
            "full: the number 300 does not fit into u8: name a wider type");
  EXPECT_EQ(error_of([] { full({2}, -1, u8); }),
            "full: the number -1 does not fit into u8: name a wider type");
  EXPECT_FALSE(full({2}, 1).is_weak());
  EXPECT_FALSE(full({}, 1).is_weak());
  EXPECT_FALSE(full({2}, 1).is_read_only());
}

TEST(Creation, OneExtent) {
  EXPECT_EQ(zeros(3).type(), (TensorType{{3}, f32}));
  EXPECT_EQ(ones(std::size_t{2}, i8).to_vector<int>(), (std::vector<int>{1, 1}));
  EXPECT_EQ(empty(4, f64).type(), (TensorType{{4}, f64}));
  EXPECT_EQ(full(2, 7).to_vector<int>(), (std::vector<int>{7, 7}));
  EXPECT_EQ(full(2, 7, f16).type(), (TensorType{{2}, f16}));
  EXPECT_EQ(zeros({}).rank(), 0);  // not an extent of 0
  EXPECT_EQ(zeros({0}).shape(), (Shape{0}));
  EXPECT_EQ(error_of([] { zeros(-1); }), "shape: got (-1,), need extents of at least 0");
}

TEST(Creation, LikeAnother) {
  const Tensor x = arange(6).reshape({2, 3}).transpose();
  for (const Tensor& y : {empty_like(x), zeros_like(x), ones_like(x), full_like(x, 7)}) {
    EXPECT_EQ(y.type(), x.type());
    EXPECT_TRUE(y.is_contiguous());
    EXPECT_FALSE(y.is_read_only());
  }
  const TensorType half{{3, 2}, f16};
  EXPECT_EQ(empty_like(x, f16).type(), half);
  EXPECT_EQ(zeros_like(x, f16).type(), half);
  EXPECT_EQ(ones_like(x, f16).type(), half);
  EXPECT_EQ(full_like(x, 0.5, f16).to_vector<double>(), (std::vector<double>(6, 0.5)));
  EXPECT_EQ(full_like(x, 2.9).to_vector<int>(), (std::vector<int>(6, 2)));
  EXPECT_EQ(full_like(x, array({1, 2})).to_vector<int>(), (std::vector<int>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(error_of([] { full_like(zeros(2, u8), 300); }),
            "full: the number 300 does not fit into u8: name a wider type");
}

TEST(Creation, EmptyIsAlignedAndChecked) {
  const Tensor x = empty({3, 5}, f64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data<double>()) % 64, 0u);
  EXPECT_EQ(empty({0}).size(), 0);
  EXPECT_EQ(empty({}).size(), 1);
  EXPECT_EQ(error_of([] { empty({-1}); }), "shape: got (-1,), need extents of at least 0");
  EXPECT_EQ(error_of([] { empty({std::int64_t{1} << 62}, f64); }),
            "shape: the shape (4611686018427387904,) of f64 takes more than 2^63 bytes");
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(error_of([&] {
              empty({2, large, large});
            }),
            "shape: the shape (2, 1099511627776, 1099511627776) holds more than 2^63 elements");
  EXPECT_EQ(error_of([] { empty({std::int64_t{1} << 60}, u8); }),
            "memory: cannot allocate 1152921504606846976 bytes for a tensor: the machine has not "
            "that much free");
  EXPECT_EQ(error_of([] { empty({std::numeric_limits<std::int64_t>::max()}, u8); }),
            "memory: cannot allocate 9223372036854775807 bytes for a tensor: the machine has not "
            "that much free");
}

// Large tensors begin with a huge page; what is written at either end of neighbours stays theirs.
TEST(Creation, LargeTensorsBeginWithAHugePage) {
  constexpr std::int64_t kHugePage = 2 << 20;
  std::vector<Tensor> tensors;
  for (const std::int64_t size : {kHugePage, kHugePage + 1, 2 * kHugePage + 12345, 5 * kHugePage}) {
    tensors.push_back(full({size}, static_cast<int>(tensors.size()), u8));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensors.back().data<std::uint8_t>()) % kHugePage,
              0u);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(all(tensors[i] == static_cast<int>(i)).item<bool>()) << tensors[i].type();
}

TEST(Creation, Arange) {
  EXPECT_EQ(arange(4).to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(arange(4).dtype(), i64);
  EXPECT_EQ(arange(2, 9, 3).to_vector<int>(), (std::vector<int>{2, 5, 8}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int>(), (std::vector<int>{5, 3, 1}));
  EXPECT_EQ(arange(5, 5).size(), 0);
  EXPECT_EQ(arange(5, 0).size(), 0);
  EXPECT_EQ(arange(0, 5, -1).size(), 0);
  EXPECT_EQ(arange(2.5).type(), (TensorType{{3}, f32}));
  EXPECT_EQ(arange(2.5f, f64).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(arange(0.0, 5.0).type(), (TensorType{{5}, f32}));
  EXPECT_EQ(arange(1, 2.5).to_vector<double>(), (std::vector<double>{1, 2}));
  EXPECT_EQ(arange(0.0, 1.0, 0.25, f64).to_vector<double>(),
            (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(1.0, 0.0, -0.5).to_vector<double>(), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(arange(0.0, 1.0, 0.3, f64).size(), 4);
  const std::int64_t high = std::numeric_limits<std::int64_t>::max(),
                     low = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(arange(high - 2, high, 1).size(), 2);
  EXPECT_EQ(arange(low, high, high).size(), 3);  // low, -1, high - 1
  EXPECT_EQ(error_of([] { arange(0, 3, 0); }),
            "arange: got a step of 0, need a positive or negative one");
  EXPECT_EQ(error_of([&] { arange(low, high, 1); }),
            "arange: cannot count from -9223372036854775808 to 9223372036854775807 in steps of 1");
  EXPECT_EQ(error_of([] { arange(0.0, 3.0, 0.0); }),
            "arange: cannot count from 0 to 3 in steps of 0");
  EXPECT_EQ(error_of([] { arange(0.0, 1e300, 1e-300); }),
            "arange: cannot count from 0 to 1e+300 in steps of 1e-300");
  EXPECT_EQ(error_of([] { arange(0.0, std::nan(""), 1.0); }),
            "arange: cannot count from 0 to nan in steps of 1");
}

TEST(Creation, Linspace) {
  EXPECT_EQ(linspace(0, 1, 5, true, f64).to_vector<double>(),
            (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(0, 1, 4, false, f64).to_vector<double>(),
            (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(linspace(2, 3, 1).to_vector<double>(), (std::vector<double>{2}));
  EXPECT_EQ(linspace(2, 3, 0).size(), 0);
  EXPECT_EQ(linspace(0.1, 0.7, 7, true, f64).item(6), 0.7);  // the end exactly
  EXPECT_EQ(linspace(0, 1, 3).dtype(), f32);
  EXPECT_EQ(linspace(-1, 0, 4, true, i64).to_vector<int>(), (std::vector<int>{-1, -1, -1, 0}));
  EXPECT_EQ(linspace(0, -2.5, 2, true, i32).to_vector<int>(), (std::vector<int>{0, -3}));
  EXPECT_EQ(error_of([] { linspace(0, 1, -2); }), "linspace: got a count of -2, need at least 0");
}

TEST(Creation, Eye) {
  EXPECT_EQ(eye(2).to_vector<int>(), (std::vector<int>{1, 0, 0, 1}));
  EXPECT_EQ(eye(2, 3, 1).to_vector<int>(), (std::vector<int>{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(eye(2, 3, -1, i8).to_vector<int>(), (std::vector<int>{0, 0, 0, 1, 0, 0}));
  for (const std::int64_t far :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})
    EXPECT_EQ(eye(2, 2, far).to_vector<int>(), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(eye(2, 0).shape(), (Shape{2, 0}));
  EXPECT_EQ(eye(0).size(), 0);
}

TEST(Creation, ArrayFromLists) {
  EXPECT_EQ(array({1, 2}).dtype(), i32);
  EXPECT_EQ(array({1.0, 2.0}).dtype(), f64);
  EXPECT_EQ(array({true, false}).dtype(), boolean);
  const Tensor cube = array({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}});
  EXPECT_EQ(cube.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(cube.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(error_of([] {
              array({{1, 2}, {3}});
            }),
            "array: got rows of the shapes (2,) and (1,), need equal ones");
}

TEST(Creation, ArrayFromAListInAShape) {
  const Tensor x = array({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(x.type(), (TensorType{{3, 2}, i32}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(array({2.5}, {1, 1}).type(), (TensorType{{1, 1}, f64}));
  EXPECT_EQ(array<float>({1, 2}, {2, 1}).dtype(), f32);
  EXPECT_EQ(error_of([] {
              array({1, 2, 3}, {2, 2});
            }),
            "array: got 3 values for the shape (2, 2), need 4");
}

TEST(Creation, ArrayFromSpans) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Tensor x = array(values, {2, 3});
  EXPECT_EQ(x.item(1, 0), 4);
  x.mutable_data<float>()[0] = 9;
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(array(std::span(values).subspan(1)).shape(), (Shape{5}));
  EXPECT_EQ(array(std::vector<std::int64_t>{}).shape(), (Shape{0}));
  EXPECT_EQ(error_of([&] { array(values, {4}); }),
            "array: got 6 values for the shape (4,), need 4");
}

}  // namespace
}  // namespace tensor
