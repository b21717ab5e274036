// The copy family against the reference: every element type, layout and order of the axes. Copies
// are exact.
#include <gtest/gtest.h>

#include "src/kernels/host/strided_copy.h"
#include "src/ops/gather.h"
#include "tensor/compile.h"
#include "tests/error_of.h"
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

constexpr std::int64_t kExtents[] = {1, 2, 3, 7, 16, 17, 63, 65, 130, 197};

Shape any_shape(int rank, std::int64_t most) {
  Shape shape;
  for (; rank > 0; --rank) shape.push_back(kExtents[pick(10)]);
  while (tn::num_elements(shape) > most) shape[pick(shape.rank())] = 1 + pick(4);
  return shape;
}

Tensor any_whole_numbers(const Shape& shape) {
  constexpr tn::DType kTypes[] = {tn::boolean, tn::u8,  tn::i16,  tn::i32, tn::i64,
                                  tn::f16,     tn::f32, tn::bf16, tn::f64, tn::f32};
  const tn::DType dtype = kTypes[pick(10)];
  tn::Generator generator(random_engine()());
  return dtype == tn::boolean ? generator.randint(0, 2, shape).astype(dtype)
                              : generator.randint(-100, 100, shape).astype(dtype);
}

void check_copy(const tn::TensorFunction& f, const Tensors& inputs) {
  expect_close(run_group("copy", f, inputs, pick(4) ? &random_engine() : nullptr), 0);
}

TEST(Copy, ViewsOfEveryKind) {
  for (int round = 0; round < 120; ++round) {
    // Beyond 128 KiB several threads take part.
    const Shape shape = any_shape(1 + pick(5), pick(4) ? 5000 : 200000);
    tn::Dims axes;
    for (int axis = 0; axis < shape.rank(); ++axis) axes.insert(pick(axes.rank() + 1), axis);
    const int axis = pick(shape.rank()), kind = pick(4);
    check_copy(
        [&](const Tensors& in) -> Tensors {
          const Tensor x = in[0].transpose(axes);
          switch (kind) {
            case 0:
              return {tn::copy(x)};
            case 1:
              return {tn::copy(tn::flip(x, axis))};
            case 2:
              return {tn::copy(tn::broadcast_to(x.expand_dims(axis), [&] {
                Shape wide = x.shape();
                wide.insert(axis, 3);
                return wide;
              }()))};
            default: {
              std::vector<tn::Index> index(static_cast<std::size_t>(axis), tn::all_of_axis);
              index.push_back(tn::slice(shape[static_cast<int>(axes[axis])] / 3, tn::none, 2));
              return {tn::copy(tn::get_index(x, index))};
            }
          }
        },
        {any_whole_numbers(shape)});
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape << " kind " << kind;
  }
}

TEST(Copy, OfNothingDoesNothing) {
  tn::cpu::StridedCopy({0, 3}, {1, 5}, {3, 1}, 4).run(nullptr, nullptr, 2);
}

TEST(Copy, ImagesToChannelsLastAndBack) {
  for (const std::int64_t channels : {1, 3, 8, 9, 19, 64})
    for (const bool back : {false, true}) {
      const Tensor x = any_whole_numbers({2, channels, 37, 65});
      const tn::Dims axes = back ? tn::Dims{0, 3, 1, 2} : tn::Dims{0, 2, 3, 1};
      expect_close(
          run_group(
              "copy",
              [&](const Tensors& in) -> Tensors { return {tn::copy(in[0].transpose(axes))}; }, {x},
              nullptr),
          0);
      if (HasFailure()) FAIL() << channels;
    }
}

TEST(Copy, Concatenate) {
  for (int round = 0; round < 60; ++round) {
    const Shape shape = any_shape(1 + pick(4), 8000);
    const int axis = pick(shape.rank());
    Tensors inputs;
    const Tensor first = any_whole_numbers(shape);
    for (int parts = 1 + pick(4); parts > 0; --parts) {
      Shape part = shape;
      part[axis] = pick(5) == 0 ? 0 : kExtents[pick(6)];
      inputs.push_back(any_whole_numbers(part).astype(first.dtype()));
    }
    inputs.push_back(first);
    const bool twice = pick(3) == 0;
    check_copy(
        [&](const Tensors& in) -> Tensors {
          Tensors parts = in;
          if (twice) parts.push_back(in.back());
          return {tn::concatenate(parts, axis)};
        },
        inputs);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape << " axis " << axis;
  }
}

TEST(Copy, Pad) {
  for (int round = 0; round < 60; ++round) {
    const Shape shape = any_shape(1 + pick(4), 8000);
    std::vector<std::pair<std::int64_t, std::int64_t>> width;
    for (int axis = 0; axis < shape.rank(); ++axis)
      width.emplace_back(pick(2) * pick(4), pick(2) * pick(4));
    check_copy([&](const Tensors& in) -> Tensors { return {tn::pad(in[0], width, 1)}; },
               {any_whole_numbers(shape)});
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Copy, Take) {
  for (int round = 0; round < 60; ++round) {
    const bool is_many = pick(4) == 0;  // so that several threads take part
    const Shape shape = any_shape(1 + pick(3), is_many ? 30 : 8000);
    const int axis = pick(shape.rank());
    const Shape places = is_many ? Shape{1 + pick(90), 1 + pick(90)} : any_shape(pick(3), 20);
    const Tensor indices =
        tn::Generator(random_engine()()).randint(-shape[axis], shape[axis], places).astype(tn::i64);
    const bool constant = pick(2);
    Tensors inputs{any_whole_numbers(shape)};
    if (!constant) inputs.push_back(indices);
    check_copy(
        [&](const Tensors& in) -> Tensors {
          return {tn::take(in[0], constant ? indices : in[1], axis)};
        },
        inputs);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape << " axis " << axis;
  }
}

TEST(Copy, TakeOfClippedIndices) {
  const Tensor x = any_whole_numbers({4, 9});
  const Tensor indices = tn::array(std::vector<std::int64_t>{-9, -5, -4, -1, 0, 3, 4, 99});
  check_copy([](const Tensors& in) -> Tensors { return {tn::take_clipped(in[0], in[1], 0)}; },
             {x, indices});
  const Tensor nearest = tn::array(std::vector<std::int64_t>{0, 0, 0, 3, 0, 3, 3, 3});
  EXPECT_TRUE(tn::array_equal(tn::take_clipped(x, indices, 0), tn::take(x, nearest, 0)));
  EXPECT_EQ(tn::check::error_of([&] {
              tn::take_clipped(tn::ones({0, 2}), indices, 0);
            }),
            "take: index -9 is out of bounds for axis 0 of the shape (0, 2)");
}

TEST(Copy, TakeChecksAllIndicesBeforeItWrites) {
  const Tensor x = any_whole_numbers({4, 9});
  const Tensor indices = tn::array({std::int64_t{0}, std::int64_t{3}, std::int64_t{4}});
  const tn::Executable fast =
      tn::compile([](const Tensors& in) -> Tensors { return {tn::take(in[0], in[1], 0)}; },
                  Tensors{x, indices});
  Tensors out{tn::full({3, 9}, 7).astype(x.dtype())};
  EXPECT_EQ(tn::check::error_of([&] {
              fast.run({x, indices}, out);
            }),
            "take: index 4 is out of bounds for axis 0 of the shape (4, 9)");
  EXPECT_TRUE(tn::all(out[0] == tn::full({3, 9}, 7).astype(x.dtype())).item<bool>());
}

TEST(Copy, Declines) {
  const Tensor x = any_whole_numbers({4, 9}).astype(tn::f32);
  EXPECT_FALSE(
      accepts("copy", [](const Tensors& in) -> Tensors { return {tn::relu(in[0])}; }, {x}));
  EXPECT_FALSE(accepts(
      "copy", [](const Tensors& in) -> Tensors { return {tn::copy(tn::relu(in[0]))}; }, {x}));
}

}  // namespace
