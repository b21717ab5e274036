#include <gtest/gtest.h>
#include <sstream>

#include "tensor/tensor.h"

namespace tn = tensor;

TEST(Tensor, ScalarsDoNotPromote) {
  const tn::Tensor x = tn::array({1.f, 2.f});
  EXPECT_EQ((x + 1.5).dtype(), tn::f32);
  EXPECT_EQ((tn::array({1, 2}) + 1.5).dtype(), tn::f64);
  EXPECT_EQ((tn::array({1, 2}) + 1).dtype(), tn::i32);
  EXPECT_EQ((x + 1.5).item<float>(1), 3.5f);
}

TEST(Tensor, Indexing) {
  tn::Tensor x = tn::arange(24).reshape({2, 3, 4});
  EXPECT_EQ(x(1, 2, 3).item<int>(), 23);
  EXPECT_EQ(x["1, ::-1, 0"].to_vector<int>(), (std::vector<int>{20, 16, 12}));
  x(0, tn::slice(0, 2), 1) = -5;
  EXPECT_EQ(x.item<int>(0, 1, 1), -5);
  x(x < 0) = 7;
  EXPECT_EQ(x.item<int>(0, 1, 1), 7);
  EXPECT_EQ(x(tn::all_of_axis, tn::array({0, 2}), 1).shape(), (tn::Shape{2, 2}));
}
