// Assignment into views: x[index] = value (and += -= *=) changes the elements of the view as NumPy
// does, and no other element of x nor any byte around it.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/cases/shape_cases.h"
#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

using cases::Draw;
using cases::Input;
using cases::Values;

// The flat positions in an array of this shape that an index selects, in the order and shape of the
// selection.
Expected selected(const Shape& shape, const std::string& index) {
  Array positions(shape, i64);
  for (std::size_t i = 0; i < positions.size(); ++i) positions.values[i] = static_cast<Exact>(i);
  return references().at("slice")({positions}, {{"index", index}})[0];
}

enum class How { assign, add, subtract, multiply };

Exact combined(How how, Exact old, Exact value) {
  switch (how) {
    case How::add:
      return old + value;
    case How::subtract:
      return old - value;
    case How::multiply:
      return old * value;
    default:
      return value;
  }
}

void assign(Tensor& x, const std::string& index, How how, const Tensor& value) {
  switch (how) {
    case How::add:
      x[index.c_str()] += value;
      break;
    case How::subtract:
      x[index.c_str()] -= value;
      break;
    case How::multiply:
      x[index.c_str()] *= value;
      break;
    default:
      x[index.c_str()] = value;
  }
}

// A shape that broadcasts to `shape`: some leading axes left out, some others 1.
Shape narrower(Draw& draw, Shape shape) {
  while (shape.rank() > 0 && draw.below(4) == 0) shape.erase(0);
  for (auto& extent : shape)
    if (draw.below(4) == 0) extent = 1;
  return shape;
}

std::size_t run(DType dtype, std::mt19937_64& random) {
  Draw draw("assignment " + std::string(name(dtype)));
  std::size_t count = 0;
  for (std::size_t i = 0; i < 160; ++i, ++count) {
    const cases::Layout layout = cases::kLayouts[i % 4];  // the fifth, broadcast, is read-only
    const Shape shape = draw.shape(1 + static_cast<int>(i % 4), 300);
    const std::string index = cases::index_text(draw, shape);
    const Expected positions = selected(shape, index);
    const How how = static_cast<How>(dtype == boolean ? 0 : i / 4 % 4);
    const DType value_type = how == How::assign ? draw.pick<DType>({dtype, i64, f32}) : dtype;

    const Array before = make_values({shape, dtype, Values::integers, -9, 9, layout}, random);
    const Input input{narrower(draw, positions.shape), value_type, Values::integers, -3, 3, layout};
    const Array value = make_values(input, random);
    Block block(before, layout), value_block(value, layout);
    Expected expected(shape, dtype);
    expected.values = before.values;
    for (std::size_t k = 0; k < positions.size(); ++k) {
      Exact& element = expected.values[static_cast<std::size_t>(positions.values[k])];
      element = round_to(dtype, combined(how, element, value.at(unravel(k, positions.shape))));
      // A negative number saturates in an unsigned type when it comes from a floating one.
      if (dtype == u8 && how == How::assign && is_floating(value_type))
        element = std::max<Exact>(0, value.at(unravel(k, positions.shape)));
    }
    assign(block.tensor(), index, how, value_block.tensor());
    const auto wrong = difference(read(block.tensor()), expected);
    EXPECT_FALSE(wrong) << TensorType{shape, dtype} << "[" << index << "]: " << *wrong;
    EXPECT_TRUE(block.frame_unchanged())
        << TensorType{shape, dtype} << "[" << index << "] wrote past the view";
    EXPECT_TRUE(value_block.unchanged())
        << TensorType{shape, dtype} << "[" << index << "] wrote to the value";
  }
  return count;
}

TEST(GeneratedAssignment, WritesTheViewAndNothingElse) {
  SCOPED_TRACE("TENSOR_SEED=" + std::to_string(seed()));
  std::mt19937_64 random(seed());
  std::size_t count = 0;
  for (const DType dtype : cases::kAllTypes) count += run(dtype, random);
  std::cout << "assignment: " << count << " cases, seed " << seed() << '\n';
  EXPECT_GE(count, 1000u);
}

}  // namespace
}  // namespace tensor::generated
