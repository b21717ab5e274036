// Indexing and assignment: 500 random indices against NumPy (tests/data/numpy_index.json, written
// by scripts/make_numpy_cases.py), overlapping assignment, and every message.
#include "tensor/index.h"

#include <gtest/gtest.h>

#include "tensor/json.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

Tensor stored(const Json& values, const Json& shape) {
  return array(values.ints(), Dims(shape.ints()));
}

std::optional<std::int64_t> bound(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.integer());
}

Index item_of(const Json& item) {
  if (item.is_integer()) return item.integer();
  if (item.is_string()) return item.text() == "..." ? Index(ellipsis) : Index(newaxis);
  if (item.has("slice")) {
    const Json parts = item["slice"];
    return Slice{bound(parts[0]), bound(parts[1]), bound(parts[2]).value_or(1)};
  }
  if (item.has("mask")) return stored(item["mask"], item["shape"]).astype(boolean);
  return stored(item["array"], item["shape"]);
}

TEST(Index, AgreesWithNumPy) {
  const Json cases = Json::load(TENSOR_TEST_DATA "/numpy_index.json");
  ASSERT_EQ(cases.size(), 500u);
  int errors = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json golden = cases[i];
    const Shape shape(golden["shape"].ints());
    std::vector<Index> index;
    for (std::size_t k = 0; k < golden["index"].size(); ++k)
      index.push_back(item_of(golden["index"][k]));
    const Tensor x = arange(num_elements(shape)).reshape(shape);
    SCOPED_TRACE("line " + std::to_string(i + 2) + " of numpy_index.json");
    if (golden.has("error")) {
      EXPECT_THROW(get_index(x, index), UserError);
      EXPECT_THROW(set_index(x, index, 0), UserError);
      ++errors;
      continue;
    }
    const Tensor got = get_index(x, index);
    EXPECT_EQ(got.shape(), Shape(golden["result_shape"].ints()));
    EXPECT_EQ(got.to_vector<std::int64_t>(), golden["result"].ints());
    set_index(x, index, stored(golden["value"], golden["value_shape"]));
    EXPECT_EQ(x.to_vector<std::int64_t>(), golden["assigned"].ints());
  }
  EXPECT_GT(errors, 5);
}

TEST(Index, ViewsShareAndGathersDoNot) {
  const Tensor x = arange(12).reshape({3, 4});
  EXPECT_TRUE(x(1, slice(0, 2)).shares_storage(x));
  EXPECT_TRUE(x["None, ..., ::-1"].shares_storage(x));
  EXPECT_FALSE(x(array({0, 1})).shares_storage(x));
  EXPECT_FALSE(x(x > 3).shares_storage(x));
}

// Positions on two sides of an ellipsis are apart even when it stands for no axis: theirs come
// first then.
TEST(Index, EllipsisSeparatesPositions) {
  const Tensor x = zeros({4, 5, 3});
  EXPECT_EQ(x(all_of_axis, -1, ellipsis, array({0, 1})).shape(), (Shape{2, 4}));
  EXPECT_EQ(x(all_of_axis, -1, array({0, 1}), ellipsis).shape(), (Shape{4, 2}));
}

TEST(Index, SlicesClampAsPythons) {
  const Tensor x = arange(5);
  EXPECT_EQ(x(slice(-100, 100)).size(), 5);
  EXPECT_EQ(x(slice(3, 1)).size(), 0);
  EXPECT_EQ(x(slice(none, none, -1)).to_vector<int>(), (std::vector<int>{4, 3, 2, 1, 0}));
  EXPECT_EQ(x(slice(none, none, 7)).to_vector<int>(), (std::vector<int>{0}));
  EXPECT_EQ(x(slice(100, -100, -2)).to_vector<int>(), (std::vector<int>{4, 2, 0}));
  const std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                     high = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(x(slice(low, high)).size(), 5);
  EXPECT_EQ(x(slice(high, low, low)).to_vector<int>(), (std::vector<int>{4}));
  EXPECT_EQ(x(slice(low, high, high)).to_vector<int>(), (std::vector<int>{0}));
}

// The source overlaps the target: as if it had been copied first.
TEST(Assignment, OverlapsAreSafe) {
  Tensor x = arange(6);
  x(all_of_axis) = x["::-1"];
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{5, 4, 3, 2, 1, 0}));
  x = arange(6);
  x(slice(1, none)) = x(slice(none, -1));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 0, 1, 2, 3, 4}));
  x = arange(6);
  x(slice(none, -1)) = x(slice(1, none));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 5}));
  x = arange(9).reshape({3, 3});
  x(all_of_axis) = x.transpose();
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  x = arange(6);
  x(array({5, 4, 3, 2, 1, 0})) = x;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{5, 4, 3, 2, 1, 0}));
  x = arange(4);
  x(slice(1, none)) += x(slice(none, -1));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 1, 3, 5}));
}

TEST(Assignment, ConvertsAndBroadcasts) {
  Tensor x = zeros({2, 3}, u8);
  x(1) = 2.9;
  x(0, slice(1, none)) = array({-5.f, 300.f});
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 0, 255, 2, 2, 2}));
  x(all_of_axis, 0) = array({7, 8});
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{7, 0, 255, 8, 2, 2}));
  x(ellipsis) = 1;
  x(x == 1) *= 3;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>(6, 3)));
  x(0) -= 1;
  Tensor y = full({2}, 8.0);
  y(0) /= 2;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{4, 8}));
}

TEST(Assignment, LeadingAxesOfTheValueMayBeTooMany) {
  Tensor x = zeros({2, 3});
  x(0) = ones({1, 3});
  x(array({1}), 0) = full({1, 1, 1}, 5);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 1, 1, 5, 0, 0}));
}

TEST(Assignment, RefusesIntegersThatDoNotFit) {
  Tensor x = zeros({2}, u8);
  EXPECT_EQ(error_of([&] { x(0) = 300; }),
            "assignment: the number 300 does not fit into u8: convert the target with astype "
            "first");
  EXPECT_EQ(error_of([&] { x(x == 0) = -1; }),
            "assignment: the number -1 does not fit into u8: convert the target with astype first");
  x(0) = array({300});  // a tensor wraps around
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{44, 0}));
}

TEST(Assignment, InPlaceKeepsTheKind) {
  Tensor x = ones({2}, i64), small = ones({2}, u8), flags = ones({2}, boolean);
  EXPECT_EQ(error_of([&] { x(ellipsis) += 0.5; }),
            "assignment: the result is f64, which i64 cannot hold: convert the target with "
            "astype(f64) first, or the result with astype(i64)");
  EXPECT_THROW(x(0) /= 2, UserError);
  EXPECT_THROW(small(0) -= array({1}), UserError);
  EXPECT_THROW(flags(0) += 1, UserError);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 1}));
  small.astype(i8)(0) += array({1});
  Tensor half = ones({2}, f16);
  half(0) *= array({2.5});
  EXPECT_EQ(half.to_vector<double>(), (std::vector<double>{2.5, 1}));
}

TEST(Assignment, OneIndexedTensorToAnother) {
  Tensor x = arange(4), y = zeros({4}, i64);
  y(slice(0, 2)) = x(slice(2, 4));
  EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{2, 3, 0, 0}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
}

// As in NumPy: a view with a name writes into what it is a view of.
TEST(Assignment, ANamedViewWritesIntoItsTensor) {
  Tensor x = arange(6).reshape({2, 3});
  auto row = x(0);
  row += 1;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 3, 4, 5}));
  row -= array({1, 0, 1});
  row *= 3;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 6, 6, 3, 4, 5}));
  EXPECT_EQ(row.to_vector<int>(), (std::vector<int>{0, 6, 6}));
  row = 5;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{5, 5, 5, 3, 4, 5}));
  auto other = x(1);
  row = other;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{3, 4, 5, 3, 4, 5}));
  auto column = x[":, 1"];
  column = Tensor(array({8, 9}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{3, 8, 5, 3, 9, 5}));
  Tensor y = full({2, 2}, 8.0);
  auto half = y(1);
  half /= 4;
  EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{8, 8, 2, 2}));
  auto same = x(ellipsis);
  same = x["::-1"];
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{3, 9, 5, 3, 8, 5}));
}

// Also as in NumPy: what a mask or positions chose is a copy once it has a name, and only the
// expression itself writes back.
TEST(Assignment, ANamedSelectionIsACopy) {
  const Tensor x = arange(4);
  x(x > 1) += 10;
  x(array({0, 0, 1})) += 1;  // a repeated position once
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 12, 13}));
  auto large = x(x > 10);
  large += 1;
  EXPECT_EQ(large.to_vector<int>(), (std::vector<int>{13, 14}));
  large = 0;
  EXPECT_EQ(large.to_vector<int>(), (std::vector<int>{0, 0}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 12, 13}));
}

TEST(Assignment, AHandleIsRebound) {
  const Tensor x = arange(4).reshape({2, 2});
  Tensor row = x(0);
  row += 1;
  row = x(1);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(row.to_vector<int>(), (std::vector<int>{2, 3}));
  Tensor y = x;
  y(0) = 7;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{7, 7, 2, 3}));
}

// Those of a name are the expression's; the type, shape and memory must allow the result.
TEST(Assignment, ANamedViewRefusesWhatTheExpressionRefuses) {
  Tensor x = ones({2, 3}, i32);
  auto row = x(0);
  EXPECT_EQ(error_of([&] { row += 0.5; }),
            "assignment: the result is f64, which i32 cannot hold: convert the target with "
            "astype(f64) first, or the result with astype(i32)");
  EXPECT_EQ(error_of([&] {
              row += zeros({2, 3}, i32);
            }),
            "assignment: cannot stretch the shape (2, 3) to (3,): only axes of extent 1 stretch");
  const Tensor wide = broadcast_to(array({1, 2}), {2, 2});
  auto shared = wide(0, slice(0, 1));
  EXPECT_EQ(
      error_of([&] { shared = 3; }),
      "assignment: the target is read-only (a mapped file or a broadcast): write into a copy()");
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>(6, 1)));
}

template <class T>
concept IsAddedToInPlace = requires(T& x) {
  x += 1;
};

TEST(Assignment, ConstNamesArePlacesNoMore) {
  static_assert(IsAddedToInPlace<IndexedTensor> && !IsAddedToInPlace<const IndexedTensor>);
  const Tensor x = array({-1, 2});
  x(x < 0) = 0;  // const is the handle's
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 2}));
}

TEST(Rows, AreViewsOfTheFirstAxis) {
  static_assert(std::input_iterator<RowIterator>);
  const Tensor x = arange(6).reshape({3, 2});
  std::vector<int> sums;
  for (const Tensor& row : x) sums.push_back(sum(row).item<int>());
  EXPECT_EQ(sums, (std::vector<int>{1, 5, 9}));
  for (auto row : x) row += 1;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  const std::vector<Tensor> rows(x.begin(), x.end());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[1].shares_storage(x));
  EXPECT_EQ(rows[1].to_vector<int>(), (std::vector<int>{3, 4}));
  auto i = x.begin();
  EXPECT_EQ((*i++).item<int>(0), 1);
  EXPECT_EQ((*i).item<int>(0), 3);
  for (const Tensor& number : x(0)) EXPECT_EQ(number.rank(), 0);
  for (const Tensor& row : zeros({0, 4})) FAIL() << row;
  EXPECT_EQ(error_of([] {
              for (const Tensor& row : Tensor(1.5)) FAIL() << row;
            }),
            "iteration: got a 0-d tensor (f64), which has no rows: read its number with item(), or "
            "all elements of any tensor with elements<T>()");
}

// A repeated position keeps what was written last.
TEST(Assignment, RepeatedPositions) {
  Tensor x = zeros({3}, i64);
  x(array({1, 1, 1})) = array({4, 5, 6});
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 6, 0}));
}

TEST(Index, Messages) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of([&] { x(2); }),
            "index: index 2 is out of bounds for axis 0 of the shape (2, 3)");
  EXPECT_EQ(error_of([&] { x(0, -4); }),
            "index: index -4 is out of bounds for axis 1 of the shape (2, 3)");
  EXPECT_EQ(error_of([&] { x(0, 0, 0); }),
            "index: got indices for 3 axes, but the shape (2, 3) has 2");
  EXPECT_EQ(error_of([&] { x(ellipsis, ellipsis); }), "index: got 2 ellipses, need at most one");
  EXPECT_EQ(error_of([&] { x(slice(0, 1, 0)); }),
            "index: got a slice with a step of 0, need a positive or negative one");
  EXPECT_EQ(error_of([&] { x(array({0.5})); }),
            "index: got positions of f64, need integers or a bool mask");
  EXPECT_EQ(error_of([&] {
              x(array({0, 2}));
            }),
            "index: position 2 is out of bounds for an axis of extent 2");
  EXPECT_EQ(error_of([&] {
              x(array({0, 1}), array({0, 1, 2}));
            }),
            "index: the shapes (2,) and (3,) do not broadcast: axes must be equal or 1, counted "
            "from the last");
  EXPECT_EQ(error_of([&] {
              x(array({true, false, true}));
            }),
            "index: the mask has the shape (3,), which does not fit the shape (2, 3) from axis 0");
  EXPECT_EQ(error_of([&] {
              x(array({true, false}), array({true}));
            }),
            "index: the mask has the shape (1,), which does not fit the shape (2, 3) from axis 1");
  EXPECT_EQ(error_of([&] { x(zeros({}, boolean)); }),
            "index: a 0-d mask is not supported: use where()");
  EXPECT_EQ(error_of([&] { x(0) = zeros({4}); }),
            "assignment: the shapes (4,) and (3,) do not broadcast: axes must be equal or 1, "
            "counted from the last");
  EXPECT_EQ(error_of([&] {
              x(0) = zeros({2, 3});
            }),
            "assignment: cannot stretch the shape (2, 3) to (3,): only axes of extent 1 stretch");
}

TEST(IndexText, IsReadAsNumPysSyntax) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  EXPECT_EQ(x[" 1 , ... , None , -2 "].shape(), (Shape{3, 1}));
  EXPECT_EQ(x["newaxis"].shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(x["1:, :2, ::-3"].shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(x["None:None:None"].shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(x["0,"].shape(), (Shape{3, 4}));
  EXPECT_EQ(error_of([&] { x["1:2:3:4"]; }),
            "index: \"1:2:3:4\" in \"1:2:3:4\" has more than two colons");
  EXPECT_EQ(error_of([&] { x["a"]; }),
            "index: cannot read \"a\" in \"a\": need integers, a:b:c, ..., None");
  EXPECT_EQ(error_of([&] { x["1,,2"]; }), "index: an empty item in \"1,,2\"");
  EXPECT_EQ(error_of([&] { x["1 2"]; }),
            "index: cannot read \"1 2\" in \"1 2\": need integers, a:b:c, ..., None");
  EXPECT_EQ(error_of([&] { x["99999999999999999999"]; }),
            "index: cannot read \"99999999999999999999\" in \"99999999999999999999\": need "
            "integers, a:b:c, ..., None");
  EXPECT_EQ(error_of([&] { x[""]; }), "index: got an empty index text");
}

}  // namespace
}  // namespace tensor
