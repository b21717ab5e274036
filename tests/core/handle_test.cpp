// The Tensor handle: access to elements, sharing, read-only memory, and every message of the
// handle.
#include "tensor/handle.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <sstream>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

TEST(Handle, Undefined) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  const std::string message =
      "tensor: this tensor is undefined (default constructed): give it a value first";
  EXPECT_EQ(error_of([&] { none.shape(); }), message);
  EXPECT_EQ(error_of([&] { none.dtype(); }), message);
  EXPECT_EQ(error_of([&] { none.data<float>(); }), message);
  EXPECT_EQ(error_of([&] { none.item(); }), message);
  EXPECT_EQ(error_of([&] { none.is_read_only(); }), message);
  EXPECT_EQ(error_of([&] { add(none, 1); }), message);
  EXPECT_EQ(error_of([&] { reshape(none, {1}); }),
            "reshape: got an undefined tensor (default constructed): give it a value first");
}

TEST(Handle, CopiesShareAndRebindingDoesNotWrite) {
  Tensor a = array({1.f, 2.f});
  Tensor b = a;
  EXPECT_TRUE(a.shares_storage(b));
  b = b + 1;
  EXPECT_EQ(a.item(0), 1);
  b = a;
  b.mutable_data<float>()[0] = 9;
  EXPECT_EQ(a.item(0), 9);
  EXPECT_FALSE(a.copy().shares_storage(a));
  b += 1;
  EXPECT_EQ(a.item(0), 9);
}

TEST(Handle, Facts) {
  const Tensor x = zeros({2, 3, 4}, f16);
  EXPECT_EQ(x.rank(), 3);
  EXPECT_EQ(x.size(), 24);
  EXPECT_EQ(x.nbytes(), 48);
  EXPECT_EQ(x.shape(-1), 4);
  EXPECT_EQ(x.strides(), (Strides{12, 4, 1}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(x.transpose().is_contiguous());
  EXPECT_TRUE(x(slice(0, 0)).is_contiguous());  // no elements
  EXPECT_TRUE(x(0, 0, slice(1, 3)).is_contiguous());
  EXPECT_FALSE(x(all_of_axis, 0).is_contiguous());
  EXPECT_EQ(error_of([&] { x.shape(3); }), "shape: got the axis 3 for a tensor of rank 3");
  std::ostringstream text;
  text << x.type();
  EXPECT_EQ(text.str(), "f16(2, 3, 4)");
}

TEST(Handle, ItemConvertsAndAtDoesNot) {
  Tensor x = array({{1.5f, -2.5f}, {3.5f, 300.f}});
  EXPECT_EQ(x.item(0, 1), -2.5);
  EXPECT_EQ(x.item<int>(-1, 0), 3);
  EXPECT_EQ(x.item<bool>(0, 0), true);
  EXPECT_EQ(x.at<float>(1, -1), 300.f);
  x.at<float>(0, 0) = 7;
  EXPECT_EQ(x.item<float>(0, 0), 7.f);
  EXPECT_EQ(array({42}).item<int>(), 42);
  EXPECT_EQ(full({1, 1}, 2.5).item(), 2.5);
  EXPECT_EQ(error_of([&] { x.item(); }),
            "item: got 0 indices for the shape (2, 2), need 2 (none is enough for a tensor of one "
            "element only)");
  EXPECT_EQ(error_of([&] { x.item(0); }), "item: got 1 indices for the shape (2, 2), need 2");
  EXPECT_EQ(error_of([&] { x.item(0, 2); }),
            "item: index 2 is out of bounds for axis 1 of the shape (2, 2)");
  EXPECT_EQ(error_of([&] { x.item(-3, 0); }),
            "item: index -3 is out of bounds for axis 0 of the shape (2, 2)");
  EXPECT_EQ(error_of([&] { x.at<double>(0, 0); }),
            "data: this tensor holds f32, got a request for f64: convert it with astype(f64)");
}

TEST(Handle, ItemConvertsAsAstypeDoes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = array({0.5, nan, 300.0, -1.0, 1e30});
  EXPECT_TRUE(x.item<bool>(0));
  EXPECT_TRUE(x.item<bool>(1));
  EXPECT_FALSE(array({-0.0}).item<bool>());
  EXPECT_EQ(x.item<int>(1), 0);
  EXPECT_EQ(x.item<std::uint8_t>(2), 255);
  EXPECT_EQ(x.item<std::uint8_t>(3), 0);
  EXPECT_EQ(x.item<int>(4), std::numeric_limits<int>::max());
  EXPECT_EQ(x.item<std::uint64_t>(4), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(array({300}).item<std::uint8_t>(), 44);  // integers wrap around
  EXPECT_EQ(x.item<Float16>(0).bits, Float16(0.5).bits);
}

TEST(Handle, OneElementIsANumber) {
  const Tensor x = array({{1.5f, -2.5f}, {0.f, 300.f}});
  EXPECT_EQ(static_cast<float>(x(0, 1)), -2.5f);
  EXPECT_EQ(static_cast<int>(x(0, 0)), 1);
  EXPECT_EQ(double(full({1, 1}, 0.25)), 0.25);
  EXPECT_EQ(static_cast<std::uint8_t>(x(1, 1)), 255);  // as astype
  static_assert(!std::is_convertible_v<Tensor, double> && !std::is_convertible_v<Tensor, bool>);
  EXPECT_EQ(error_of([&] { static_cast<void>(static_cast<float>(x(0))); }),
            "item: got 0 indices for the shape (2,), need 1 (none is enough for a tensor of one "
            "element only)");
}

TEST(Handle, OneElementIsACondition) {
  const Tensor a = array({1, 2}), b = array({1, 3});
  if (all(a == a))
    SUCCEED();
  else
    FAIL();
  EXPECT_FALSE(all(a == b));
  EXPECT_TRUE(any(a == b) && !all(a == b));
  EXPECT_TRUE(array({0.5}) ? true : false);
  EXPECT_FALSE(zeros({1, 1}) ? true : false);
  const std::string ambiguous =
      " is true is ambiguous, need one element: use all() or any(), or compare whole tensors with "
      "array_equal()";
  EXPECT_EQ(error_of([&] {
              if (a == b) FAIL();
            }),
            "condition: whether the shape (2,)" + ambiguous);
  EXPECT_EQ(error_of([&] {
              if (zeros({0})) FAIL();
            }),
            "condition: whether the shape (0,)" + ambiguous);
  EXPECT_EQ(error_of([&] {
              if (Tensor()) FAIL();
            }),
            "condition: got an undefined tensor (default constructed): ask defined() for that");
}

TEST(Handle, ToConvertsTheType) {
  const Tensor x = array({1.f, 2.5f});
  EXPECT_EQ(x.to(f16).dtype(), f16);
  EXPECT_EQ(x.to(f64).to_vector<double>(), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(x.to(f32).shares_storage(x));
  EXPECT_EQ(x.to("cpu", i32).to_vector<int>(), (std::vector<int>{1, 2}));
  EXPECT_TRUE(x.to("cpu", f32).shares_storage(x));
  EXPECT_EQ(x.to({}).dtype(), f32);  // the default device
  EXPECT_FALSE(Tensor(1.5).to(f64).is_weak());
}

template <class T>
concept TakesZeroAsDevice = requires(const T& x) {
  x.to(0);
};
template <class T>
concept TakesNullAsIndex = requires(const T& x) {
  x[nullptr];
};

// A literal 0 is a null pointer, too.
TEST(Handle, ZeroIsAnIndexAndNoDevice) {
  static_assert(!TakesZeroAsDevice<Tensor> && !TakesNullAsIndex<Tensor>);
  static_assert(!std::is_constructible_v<Device, int>);
  static_assert(!std::is_constructible_v<Device, std::nullptr_t>);
  Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x[0].to_vector<int>(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(x[-1][std::size_t{1}].item<int>(), 4);
  EXPECT_EQ(x["0"].to_vector<int>(), x[0].to_vector<int>());
  x[0] = 7;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{7, 7, 7, 3, 4, 5}));
}

TEST(Handle, LargeIntegersStayExact) {
  EXPECT_EQ(error_of([] { array({1}) + std::numeric_limits<std::uint64_t>::max(); }),
            "tensor: the number 18446744073709551615 does not fit into i64, the widest integer "
            "type: give it as a double");
  EXPECT_EQ(Tensor(std::uint64_t{5}).item<int>(), 5);
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  EXPECT_EQ(array({large}).item<std::int64_t>(0), large);
  EXPECT_EQ((array({large}) + 1).item<std::int64_t>(0), large + 1);
}

TEST(Handle, DataAndSpans) {
  Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x.span<std::int64_t>()[5], 5);
  x.mutable_span<std::int64_t>()[0] = 8;
  EXPECT_EQ(x.item<int>(0, 0), 8);
  EXPECT_EQ(x(1, slice(1, 3)).data<std::int64_t>()[0], 4);
  EXPECT_EQ(error_of([&] { x.data<int>(); }),
            "data: this tensor holds i64, got a request for i32: convert it with astype(i32)");
  EXPECT_EQ(error_of([&] { x.transpose().span<std::int64_t>(); }),
            "span: the elements of the shape (3, 2) with strides (1, 3) are not in a row: use "
            "copy() first");
}

TEST(Handle, ElementsWalkAnyLayout) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  const Tensor views[] = {x,
                          x.transpose(),
                          x["::-1, :, ::2"],
                          x(1),
                          x(0, 0, 0),
                          x(slice(0, 0)),
                          broadcast_to(x(0, 0), {2, 4})};
  for (const Tensor& view : views) {
    std::vector<std::int64_t> walked;
    for (const std::int64_t value : view.elements<std::int64_t>()) walked.push_back(value);
    const Tensor flat = view.copy();
    const auto span = flat.span<std::int64_t>();
    EXPECT_EQ(walked, std::vector<std::int64_t>(span.begin(), span.end())) << view.shape();
    EXPECT_EQ(view.to_vector<std::int64_t>(), walked);
  }
  auto range = x.elements<std::int64_t>();
  auto i = range.begin();
  EXPECT_EQ(*i++, 0);
  EXPECT_EQ(*i, 1);
  EXPECT_EQ(range.begin(), range.begin());
}

TEST(Handle, ToVectorConverts) {
  EXPECT_EQ(array({1.9f, -1.9f, 300.f}).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{1, 0, 255}));
  EXPECT_EQ(array({0, 2}).to_vector<double>(), (std::vector<double>{0, 2}));
}

TEST(Handle, ReadOnlyMemory) {
  static const float values[] = {1, 2, 3};
  Tensor x = from_memory(static_cast<const void*>(values), {3}, f32, nullptr);
  EXPECT_TRUE(x.is_read_only());
  EXPECT_TRUE(x(slice(1, 3)).is_read_only());
  EXPECT_FALSE(x.copy().is_read_only());
  EXPECT_EQ(error_of([&] { x.mutable_data<float>(); }),
            "mutable_data: the memory of this tensor is read-only: write into a copy() instead, or "
            "read through item() or a const Tensor");
  EXPECT_EQ(error_of([&] { x.at<float>(0) = 1; }),
            "at: the memory of this tensor is read-only: write into a copy() instead, or read "
            "through item() or a const Tensor");
  EXPECT_EQ(
      error_of([&] { x(0) = 1; }),
      "assignment: the target is read-only (a mapped file or a broadcast): write into a copy()");
  EXPECT_EQ(
      error_of([&] { x(x > 1) = 1; }),
      "assignment: the target is read-only (a mapped file or a broadcast): write into a copy()");
  EXPECT_EQ(x.data<float>()[0], 1);
}

TEST(Handle, BroadcastsAreReadOnly) {
  Tensor x = broadcast_to(array({1.f, 2.f}), {3, 2});
  EXPECT_TRUE(x.is_read_only());
  EXPECT_EQ(error_of([&] { x.mutable_data<float>(); }),
            "mutable_data: several indices of this broadcast share one element: write into a "
            "copy() instead, or read through item() or a const Tensor");
  EXPECT_FALSE(broadcast_to(array({1.f, 2.f}), {1, 2}).is_read_only());
  EXPECT_FALSE(x.copy().is_read_only());
}

TEST(Handle, ForeignMemoryKeepsItsOwnerAlive) {
  auto owner = std::make_shared<std::vector<float>>(6, 1.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor x = from_memory(static_cast<void*>(owner->data()), {2, 3}, f32, owner);
  owner.reset();
  Tensor row = x(1);
  x = Tensor();
  EXPECT_EQ(row.item(2), 1.5);
  EXPECT_FALSE(watch.expired());
  row = Tensor();
  EXPECT_TRUE(watch.expired());
}

// x and !x would both be true for another.
TEST(Handle, ForeignBoolsAre0Or1) {
  std::uint8_t bytes[] = {0, 2, 1, 255};
  const auto over = [&](const Shape& shape, const Strides& strides) {
    return error_of(
        [&] { from_memory(static_cast<const void*>(bytes), shape, boolean, nullptr, strides); });
  };
  EXPECT_EQ(over({2}, {2}), "no error");
  EXPECT_EQ(over({1000000, 1000000, 2}, {0, 0, 2}), "no error");
  EXPECT_EQ(over({0, 4}, {4, 1}), "no error");
  EXPECT_EQ(
      over({2, 2}, {1, 2}),
      "from_memory: got the bool 2, 1 elements from the first, need 0 or 1: take the memory as "
      "u8 and compare it with 0");
  const Tensor result = from_memory(static_cast<void*>(bytes), {4}, boolean, nullptr);
  result(ellipsis) = true;  // this memory is for results, and was not looked at
  EXPECT_EQ(std::accumulate(bytes, bytes + 4, 0), 4);
}

TEST(Handle, ForeignMemoryWithStrides) {
  float values[] = {0, 1, 2, 3, 4, 5};
  const Tensor x = from_memory(static_cast<void*>(values), {2, 3}, f32, nullptr, Strides{1, 2});
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(error_of([&] {
              from_memory(static_cast<void*>(values), {2, 3}, f32, nullptr, Strides{1});
            }),
            "from_memory: got 1 strides for the shape (2, 3), need 2");
  EXPECT_FALSE(x.shares_storage(from_memory(static_cast<void*>(values + 3), {3}, f32, nullptr)));
}

TEST(Handle, HighRanks) {
  const Shape shape{2, 1, 2, 1, 2, 1, 2, 1, 2, 1};
  const Tensor x = arange(32).reshape(shape);
  EXPECT_EQ(sum(x + x.transpose().transpose()).item<int>(), 992);
  EXPECT_EQ(x(1, 0, 1, 0, 1, 0, 1, 0, 1, 0).item<int>(), 31);
}

}  // namespace
}  // namespace tensor
