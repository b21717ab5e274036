// How a random program grows: its values, and each kind of operator.
#include "tests/runtime/random_program.h"

#include <algorithm>
#include <cmath>

namespace random_program {

Program::Program(std::uint64_t seed, Numbers numbers)
    : random_(seed),
      numbers_(numbers),
      whole_(numbers == Numbers::whole || numbers == Numbers::narrow),
      steady_(numbers == Numbers::steady) {
  const int inputs = 1 + pick(3);
  for (int i = 0; i < inputs; ++i) {
    const Shape shape = any_shape();
    inputs_.push_back(fresh(shape));
    add_value(inputs_.back(), whole_ ? 4 : 8);
  }
  const int length = 3 + pick(12);
  for (int i = 0; i < length; ++i) grow();
  // The last value and up to two others.
  outputs_.push_back(values_.size() - 1);
  for (int i = pick(3); i > 0; --i)
    outputs_.push_back(static_cast<std::size_t>(pick(static_cast<int>(values_.size()))));
}

Tensors Program::run(const Tensors& in, const std::vector<std::size_t>& outputs) const {
  Tensors values = in;
  for (const Instruction& instruction : instructions_) values.push_back(instruction(values));
  Tensors result;
  for (const std::size_t id : outputs) result.push_back(values[id]);
  return result;
}

Shape Program::any_shape() {
  Shape shape;
  for (int rank = 1 + pick(4); rank > 0; --rank) shape.push_back(extent());
  while (tn::num_elements(shape) > 20000) shape[pick(shape.rank())] = 1;
  return shape;
}

Tensor Program::fresh(const Shape& shape) {
  tn::Generator generator(random_());
  return whole_ ? generator.randint(-4, 5, shape).astype(tn::f32) : generator.normal(shape);
}

void Program::add_value(Tensor value, double bound) {
  values_.push_back(std::move(value));
  bounds_.push_back(bound);
}

void Program::append(Instruction instruction, double bound) {
  if (whole_ && bound > 1 << 20) return;
  Tensor value = instruction(values_);
  if (value.size() > 100000) return;
  if (numbers_ == Numbers::narrow && !fits_bf16(value)) return;
  instructions_.push_back(std::move(instruction));
  add_value(std::move(value), bound);
}

std::size_t Program::any() {
  const int recent = std::min<int>(static_cast<int>(values_.size()), 5);
  return values_.size() - 1 -
         static_cast<std::size_t>(pick(pick(4) == 0 ? static_cast<int>(values_.size()) : recent));
}

void Program::grow() {
  switch (pick(10)) {
    case 8:
      return image();
    case 9:
      return whole_ ? counting() : smooth();
    case 0:
      return unary();
    case 1:
    case 2:
      return binary();
    case 3:
      return view();
    case 4:
      return reduction();
    case 5:
      return product();
    case 6:
      return movement();
    default:
      return whole_ ? rewriting() : neural();
  }
}

void Program::unary() {
  const std::size_t a = any();
  const double m = bounds_[a];
  const auto add = [&](Tensor (*f)(const Tensor&), double bound) {
    append([a, f](const Tensors& v) { return f(v[a]); }, bound);
  };
  switch (pick(whole_ ? 5 : 12)) {
    case 0:
      return add(tn::negative, m);
    case 1:
      return add(tn::abs, m);
    case 2:
      return add(tn::relu, m);
    case 3:
      return add(tn::square, m * m);
    case 4:
      return add(steady_ ? tn::sin : tn::sign, 1);
    case 5:
      return add(tn::tanh, 1);
    case 6:
      return add(tn::sigmoid, 1);
    case 7:
      return add(tn::gelu, m);
    case 8:
      return add(tn::silu, m);
    case 9:
      return add(tn::erf, 1);
    case 10:
      return append([a](const Tensors& v) { return tn::exp(tn::clip(v[a], -4, 4)); }, 55);
    default:
      return append([a](const Tensors& v) { return tn::sqrt(tn::abs(v[a]) + 0.5); }, m);
  }
}

Instruction Program::partner(std::size_t a) {
  const Shape shape = values_[a].shape();
  for (int tries = 0; tries < 3; ++tries) {
    const std::size_t b = any();
    if (values_[b].shape() == shape) return [b](const Tensors& v) { return v[b]; };
  }
  Shape narrowed;
  for (int axis = pick(shape.rank() + 1); axis < shape.rank(); ++axis)
    narrowed.push_back(pick(3) == 0 ? 1 : shape[axis]);
  const Tensor constant = fresh(narrowed);
  return [constant](const Tensors&) { return constant; };
}

void Program::binary() {
  const std::size_t a = any();
  const Instruction other = partner(a);
  double m = 8;
  for (const double bound : bounds_) m = std::max(m, bound);
  const double other_bound = m;
  const auto add = [&](Tensor (*f)(const Tensor&, const Tensor&), double bound) {
    append([a, other, f](const Tensors& v) { return f(v[a], other(v)); }, bound);
  };
  switch (pick(whole_ ? 5 : 6)) {
    case 0:
      return add(tn::add, bounds_[a] + other_bound);
    case 1:
      return add(tn::subtract, bounds_[a] + other_bound);
    case 2:
      return add(tn::multiply, bounds_[a] * other_bound);
    case 3:
      return add(pick(2) ? tn::maximum : tn::minimum, m);
    case 4:
      if (steady_) return add(tn::add, bounds_[a] + other_bound);
      // Away from the values themselves: at a tie the last bit would decide.
      return append([a, other, tie = whole_ ? 0 : 0.3718](
                        const Tensors& v) { return tn::where(v[a] > other(v) + tie, v[a], -1); },
                    bounds_[a] + 1);
    default:
      return append([a, other](const Tensors& v) { return v[a] / (tn::abs(other(v)) + 1.0); },
                    bounds_[a]);
  }
}

void Program::view() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  const double m = bounds_[a];
  if (shape.rank() == 0) return;
  switch (pick(5)) {
    case 0: {
      tn::Dims axes;
      for (int axis = 0; axis < shape.rank(); ++axis) axes.insert(pick(axes.rank() + 1), axis);
      return append([a, axes](const Tensors& v) { return v[a].transpose(axes); }, m);
    }
    case 1: {
      // The product of some neighbours, and another one split off.
      Shape wanted;
      for (const auto extent : shape) {
        if (!wanted.empty() && pick(2))
          wanted[wanted.rank() - 1] *= extent;
        else if (extent % 2 == 0 && pick(2))
          wanted.push_back(2), wanted.push_back(extent / 2);
        else
          wanted.push_back(extent);
      }
      return append([a, wanted](const Tensors& v) { return v[a].reshape(wanted); }, m);
    }
    case 2: {
      const int axis = pick(shape.rank());
      const std::int64_t step = pick(2) ? 1 : -1 - pick(2),
                         start = pick(static_cast<int>(std::min<std::int64_t>(shape[axis], 3)));
      std::vector<tn::Index> index(static_cast<std::size_t>(axis), tn::all_of_axis);
      if (step > 0)
        index.push_back(tn::slice(start, tn::none));
      else
        index.push_back(tn::slice(tn::none, tn::none, step));
      return append([a, index](const Tensors& v) { return tn::get_index(v[a], index); }, m);
    }
    case 3:
      return append([a](const Tensors& v) { return tn::flip(v[a]); }, m);
    default: {
      if (shape.rank() > 5) return;
      const int axis = pick(shape.rank() + 1);
      Shape wide = shape;
      wide.insert(axis, 1 + pick(3));
      return append(
          [a, axis, wide](const Tensors& v) {
            return tn::broadcast_to(v[a].expand_dims(axis), wide);
          },
          m);
    }
  }
}

void Program::reduction() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  if (shape.rank() == 0 || tn::num_elements(shape) == 0) return;
  const int axis = pick(2) ? shape.rank() - 1 : pick(shape.rank());
  const bool keep = pick(2);
  const double m = bounds_[a], n = static_cast<double>(shape[axis]);
  using Reduction = Tensor (*)(const Tensor&, const tn::Axes&, bool);
  const auto add = [&](Reduction f, double bound) {
    append([a, f, axis, keep](const Tensors& v) { return f(v[a], axis, keep); }, bound);
  };
  switch (pick(whole_ ? 3 : 4)) {
    case 0:
      return add(tn::sum, m * n);
    case 1:
      return add(tn::max, m);
    case 2:
      return add(tn::min, m);
    default:
      return add(tn::mean, m);
  }
}

void Program::product() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  if (shape.rank() < 2 || shape.back() == 0) return;
  const std::int64_t inner = shape.back();
  const double m = bounds_[a];
  for (int tries = 0; tries < 4; ++tries) {  // q · kᵀ of two values, as in attention
    const std::size_t b = any();
    if (values_[b].rank() < 2 || values_[b].shape().back() != inner) continue;
    try {
      tn::broadcast_shapes(
          Shape(std::span(shape.begin(), shape.end() - 2)),
          Shape(std::span(values_[b].shape().begin(), values_[b].shape().end() - 2)));
    } catch (const tn::UserError&) {
      continue;
    }
    return append([a, b](const Tensors& v) { return tn::matmul(v[a], v[b].swapaxes(-1, -2)); },
                  m * bounds_[b] * static_cast<double>(inner));
  }
  // Now and then several products of one value, which may run as one.
  const std::int64_t width = extent();
  const bool has_bias = pick(2);
  for (int parts = pick(3) == 0 ? 2 + pick(3) : 1; parts > 0; --parts) {
    const std::int64_t columns = pick(2) ? width : extent();
    const Tensor weight =
        whole_ ? fresh({columns, inner})
               : fresh({columns, inner}) * (1 / std::sqrt(static_cast<double>(inner)));
    const Tensor bias = has_bias ? fresh({columns}) : Tensor();
    append([a, weight, bias](const Tensors& v) { return tn::linear(v[a], weight, bias); },
           m * 4 * static_cast<double>(inner) + 8);
  }
}

void Program::movement() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  if (shape.rank() == 0) return;
  const int axis = pick(shape.rank());
  const double m = std::max(bounds_[a], 2.0);
  switch (pick(4)) {
    case 0:
      return append(
          [a, axis](const Tensors& v) {
            return tn::concatenate({v[a], v[a] * 2.0}, axis);
          },
          2 * m);
    case 1: {
      std::vector<std::pair<std::int64_t, std::int64_t>> width(
          static_cast<std::size_t>(shape.rank()));
      width[static_cast<std::size_t>(axis)] = {pick(3), pick(3)};
      return append([a, width](const Tensors& v) { return tn::pad(v[a], width, 1.0); }, m);
    }
    case 2: {
      if (shape[axis] == 0) return;
      tn::Generator generator(random_());
      const Tensor where = generator.randint(0, shape[axis], {3});
      return append([a, axis, where](const Tensors& v) { return tn::take(v[a], where, axis); }, m);
    }
    default:
      return append([a](const Tensors& v) { return v[a].copy(); }, m);
  }
}

void Program::neural() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  if (shape.rank() == 0 || tn::num_elements(shape) == 0) return;
  switch (pick(3)) {
    case 0:
      return append([a](const Tensors& v) { return tn::softmax(v[a] * 0.25, -1); }, 1);
    case 1: {
      const Tensor gain = fresh({shape.back()}), shift = fresh({shape.back()});
      return append(
          [a, gain, shift](const Tensors& v) { return tn::layer_norm(v[a], gain, shift, 1e-3); },
          100);
    }
    default: {
      if (shape.rank() != 3) return;
      // Inputs alone are the same numbers wherever they are rounded or compared with 0.
      constexpr tn::DType kTypes[] = {tn::boolean, tn::i32, tn::f32};
      const tn::DType queries = a < inputs_.size() ? kTypes[pick(3)] : tn::f32,
                      keys = a < inputs_.size() ? kTypes[pick(3)] : tn::f32;
      return append(
          [=](const Tensors& v) {
            // A cast to its own type copies a value when it is called, but is no operator of a
            // graph, and the last bits of an eager product depend on how its operands lie.
            const auto through = [&](tn::DType type) {
              return type == tn::f32 ? v[a] : v[a].astype(type).astype(tn::f32);
            };
            return tn::scaled_dot_product_attention(through(queries), tn::tanh(v[a]),
                                                    through(keys));
          },
          bounds_[a]);
    }
  }
}

void Program::image() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  const std::int64_t count = tn::num_elements(shape), channels = 1 + pick(4);
  if (count % channels != 0 || count / channels < 16 || count > 5000) return;
  std::int64_t height = 4;
  while (count / channels % height != 0) --height;
  const Shape map{1, channels, height, count / channels / height};
  const double m = bounds_[a];
  const auto add = [&](auto f, double bound) {
    append([a, map, f](const Tensors& v) { return f(v[a].reshape(map)); }, bound);
  };
  const std::int64_t out = 1 + pick(9), stride = 1 + pick(2);
  const Tensor bias = fresh({out});
  const double scale = whole_ ? 1 : 1 / std::sqrt(9.0 * static_cast<double>(channels));
  const double reach = 36 * static_cast<double>(channels) * m + 8;
  switch (pick(whole_ ? 3 : 5)) {
    case 0: {
      const Tensor weight = fresh({out, channels, 3, 3}) * scale;
      return add(
          [=](const Tensor& x) {
            return tn::conv2d(x, weight, bias, {.stride = stride, .padding = 1});
          },
          reach);
    }
    case 1: {
      const Tensor weight = fresh({channels, out, 3, 3}) * scale;
      return add(
          [=](const Tensor& x) {
            return tn::conv_transpose2d(x, weight, bias, {.stride = stride, .padding = 1});
          },
          reach);
    }
    case 2:
      return add([=](const Tensor& x) { return tn::max_pool2d(x, 3, stride, 1); }, m);
    case 3:
      return add([=](const Tensor& x) { return tn::avg_pool2d(x, 3, stride, 1); }, m);
    default:
      return add([=](const Tensor& x) { return tn::interpolate(x, {7, 9}); }, m);
  }
}

void Program::smooth() {
  const std::size_t a = any();
  const double m = bounds_[a];
  const auto add = [&](auto f, double bound) {
    append([a, f](const Tensors& v) { return f(v[a]); }, bound);
  };
  switch (pick(15)) {
    case 0:
      return add([](const Tensor& x) { return tn::sin(tn::clip(x, -3, 3)); }, 1);
    case 1:
      return add([](const Tensor& x) { return tn::cos(tn::clip(x, -3, 3)); }, 1);
    case 2:
      return add([](const Tensor& x) { return tn::log1p(tn::abs(x)); }, m);
    case 3:
      return add([](const Tensor& x) { return tn::expm1(tn::clip(x, -3, 3)); }, 20);
    case 4:
      return add([](const Tensor& x) { return tn::reciprocal(tn::abs(x) + 1.0); }, 1);
    case 5:
      return add([](const Tensor& x) { return tn::rsqrt(tn::abs(x) + 1.0); }, 1);
    case 6:
      return add([](const Tensor& x) { return tn::log(tn::abs(x) + 1.0); }, m);
    case 7:
      return add([](const Tensor& x) { return tn::hardswish(x); }, m);
    case 8:
      return add([](const Tensor& x) { return tn::gelu_tanh(x); }, m);
    case 9:
      return add([](const Tensor& x) { return tn::softplus(x); }, m + 1);
    default: {
      const auto& table = smooth_functions();
      const Function f = table[static_cast<std::size_t>(pick(static_cast<int>(table.size())))];
      if (f.fits(values_[a].shape())) add(f.apply, m);
    }
  }
}

void Program::counting() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  if (shape.rank() == 0 || tn::num_elements(shape) == 0) return;
  const int axis = pick(shape.rank());
  const double m = bounds_[a], n = static_cast<double>(shape[axis]);
  const auto add = [&](auto f, double bound) {
    append([a, f](const Tensors& v) { return f(v[a]); }, bound);
  };
  switch (pick(10)) {
    case 0:
      return add([=](const Tensor& x) { return tn::cumsum(x, axis); }, m * n);
    case 1:
      return add([=](const Tensor& x) { return tn::sort(x, axis); }, m);
    case 2:
      return add([=](const Tensor& x) { return tn::argmax(x, axis).astype(tn::f32); }, n);
    case 3:
      return add([=](const Tensor& x) { return tn::argmin(x, axis).astype(tn::f32); }, n);
    case 4:
      return add([](const Tensor& x) { return tn::floor(x * 0.5) + tn::ceil(x * 0.5); }, 2 * m);
    case 5:
      return add([](const Tensor& x) { return tn::round(x * 0.5); }, m);
    case 6:
      return add([](const Tensor& x) { return tn::remainder(x, 3.0) + tn::floor_divide(x, 4.0); },
                 m + 3);
    case 7:
      return add([=](const Tensor& x) { return tn::any(x > 1.0, axis).astype(tn::f32); }, 1);
    case 8:
      return add(
          [](const Tensor& x) {
            return tn::logical_or((x >= 1.0) & (x <= 5.0), tn::logical_not(x != -1.0))
                .astype(tn::i32)
                .astype(tn::f32);
          },
          1);
    default:
      return add([](const Tensor& x) { return tn::where(tn::isfinite(x) & (x < 2.0), x, 7.0); },
                 m + 7);
  }
}

void Program::rewriting() {
  const std::size_t a = any();
  const Shape shape = values_[a].shape();
  const double m = bounds_[a];
  switch (pick(4)) {
    case 0:
      return append([a](const Tensors& v) { return v[a] + 0.0; }, m);
    case 1:
      return append([a](const Tensors& v) { return v[a] * 1.0; }, m);
    case 2:
      return append([a](const Tensors& v) { return v[a].transpose().transpose(); }, m);
    default:
      if (shape.rank() == 0) return;
      return append(
          [a](const Tensors& v) {
            return tn::concatenate(tn::split(v[a], tn::Ints{v[a].shape(0) / 2}, 0), 0);
          },
          m);
  }
}

}  // namespace random_program
