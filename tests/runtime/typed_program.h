// A random program on tensors of all types, grown forward from values; every result is exact, so
// that two runs must agree in every bit: integers as they are, and floating types as long as their
// values stay whole and small. A few values are NaN or infinite.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tensor/tensor.h"
#include "tests/runtime/random_functions.h"

namespace random_program {

class TypedProgram {
 public:
  using Instruction = std::function<tn::Tensor(const std::vector<tn::Tensor>&)>;

  explicit TypedProgram(std::uint64_t seed) : random_(seed) {
    for (int i = 1 + pick(3); i > 0; --i) {
      inputs_.push_back(fresh(any_shape(), any_type()));
      values_.push_back(inputs_.back());
    }
    for (int i = 3 + pick(12); i > 0; --i) grow();
    outputs_.push_back(values_.size() - 1);
    for (int i = pick(3); i > 0; --i)
      outputs_.push_back(static_cast<std::size_t>(pick(static_cast<int>(values_.size()))));
  }

  const std::vector<tn::Tensor>& inputs() const { return inputs_; }
  const std::vector<std::size_t>& outputs() const { return outputs_; }
  std::size_t size() const { return values_.size(); }
  std::vector<tn::Tensor> run(const std::vector<tn::Tensor>& in,
                              const std::vector<std::size_t>& outputs) const {
    std::vector<tn::Tensor> values = in, result;
    for (const Instruction& instruction : instructions_) values.push_back(instruction(values));
    for (const std::size_t id : outputs) result.push_back(values[id]);
    return result;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  tn::DType any_type() {
    constexpr tn::DType kTypes[] = {tn::boolean, tn::u8,  tn::i8,   tn::i16, tn::i32,
                                    tn::i64,     tn::f16, tn::bf16, tn::f32, tn::f64};
    return kTypes[pick(10)];
  }

  tn::Shape any_shape() {
    constexpr std::int64_t kExtents[] = {1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33};
    tn::Shape shape;
    for (int rank = 1 + pick(3); rank > 0; --rank) shape.push_back(kExtents[pick(11)]);
    if (pick(16) == 0) shape[pick(shape.rank())] = 0;
    return shape;
  }

  // Whole numbers; those of integers now and then the largest and smallest.
  tn::Tensor fresh(const tn::Shape& shape, tn::DType dtype) {
    tn::Generator generator(random_());
    const bool is_float =
        dtype == tn::f16 || dtype == tn::bf16 || dtype == tn::f32 || dtype == tn::f64;
    tn::Tensor x = generator.randint(-5, 6, shape);
    if (pick(4) == 0) {
      const tn::Tensor rare = generator.randint(0, 8, shape);
      if (is_float)
        x = tn::where(rare == 0, tn::full({}, kOdd[pick(3)], tn::f64), x.astype(tn::f64));
      else
        x = tn::where(rare == 0, tn::full({}, pick(2) ? 1e30 : -1e30, tn::f64), x.astype(tn::f64));
    }
    return x.astype(dtype);
  }

  std::size_t any() {
    const int all = static_cast<int>(values_.size());
    return values_.size() - 1 -
           static_cast<std::size_t>(pick(pick(4) == 0 ? all : std::min(all, 5)));
  }

  // Sums of up to 64 such products stay below 2^24 in float32; in 16-bit types a value is rounded
  // after every operator, wherever it runs, but sums are not.
  static bool is_exact(const tn::Tensor& x) {
    const double most = x.dtype() == tn::f32 ? 256 : x.dtype() == tn::f64 ? 1e9 : 16;
    for (const double value : x.to_vector<double>())
      if (std::isfinite(value) && (std::abs(value) > most || value != std::floor(value)))
        return false;
    return true;
  }
  static bool is_floating(const tn::Tensor& x) {
    return x.dtype() == tn::f16 || x.dtype() == tn::bf16 || x.dtype() == tn::f32 ||
           x.dtype() == tn::f64;
  }

  void append(Instruction instruction) {
    tn::Tensor value;
    try {
      value = instruction(values_);
    } catch (const tn::UserError&) {
      return;  // not of these types or shapes
    }
    if (value.size() > 20000 || value.rank() > 5) return;
    if (is_floating(value) && !is_exact(value)) return;
    instructions_.push_back(std::move(instruction));
    values_.push_back(std::move(value));
  }

  void grow() {
    switch (pick(7)) {
      case 0:
        return unary();
      case 6:
        return product();
      case 1:
      case 2:
        return binary();
      case 3: {
        const auto& table = exact_functions();
        const Function f = table[static_cast<std::size_t>(pick(static_cast<int>(table.size())))];
        const std::size_t a = any();
        if (!f.fits(values_[a].shape())) return;
        return append([a, f](const std::vector<tn::Tensor>& v) { return f.apply(v[a]); });
      }
      case 4:
        return reduction();
      default: {
        const std::size_t a = any();
        const tn::DType to = any_type();
        return append([a, to](const std::vector<tn::Tensor>& v) { return v[a].astype(to); });
      }
    }
  }

  void unary() {
    using F = tn::Tensor (*)(const tn::Tensor&);
    static const F kFunctions[] = {tn::negative, tn::abs,   tn::sign,        tn::square,
                                   tn::relu,     tn::isnan, tn::logical_not, tn::floor,
                                   tn::ceil,     tn::round, tn::isfinite,    tn::copy};
    const F f = kFunctions[pick(12)];
    const std::size_t a = any();
    if (f == tn::relu && loses_nan(values_[a])) return;
    append([a, f](const std::vector<tn::Tensor>& v) { return f(v[a]); });
  }

  // relu behind a product, if this should be: see docs/differences.md.
  bool loses_nan(const tn::Tensor& x) const {
    return has_product_ && is_floating(x) && tn::any(tn::isnan(x)).item<bool>();
  }

  // A product or convolution of halves between casts of any type, with functions behind it. Its
  // quarters are exact in all three floating types: at most 64 halves of 3 are added.
  void product() {
    constexpr tn::DType kFloats[] = {tn::f32, tn::f16, tn::bf16};
    const tn::DType dtype = kFloats[pick(3)], before = any_type(), behind = any_type();
    const std::size_t a = any();
    const tn::Shape shape = values_[a].shape();
    if (shape.rank() < 2) return;
    // oneDNN's convolutions of an odd number of channels in bf16 let NaN into the next pixel.
    const bool is_conv = shape.rank() == 3 && shape[0] % 2 == 0 && pick(2);
    if ((is_conv ? shape[0] : shape.back()) > 64) return;
    tn::Generator generator(random_());
    const tn::Shape size = is_conv ? tn::Shape{8, shape[0], 1, 1} : tn::Shape{shape.back(), 8};
    const tn::Tensor weight = generator.randint(-1, 2, size).astype(dtype);
    const bool has_cast = pick(2);
    const int function = pick(4);
    append([=, this](const std::vector<tn::Tensor>& v) {
      tn::Tensor x = v[a].astype(tn::f32);
      // Infinity as an integer is too large for exact sums.
      x = tn::where(tn::isfinite(x), tn::remainder(x, 4.0) * 0.5, has_cast ? tn::ones({}) : x);
      if (has_cast) x = x.astype(before);
      x = x.astype(dtype);
      tn::Tensor y = is_conv ? tn::conv2d(x.expand_dims(0), weight) : tn::matmul(x, weight);
      if (function == 1) y = tn::abs(y) * 0.5;
      if (function == 2) y = tn::negative(y) * 0.5;
      if (function == 3) y = y + tn::Tensor(weight.reshape({-1})(0));
      return y.astype(behind).astype(dtype);
    });
    has_product_ = true;
  }

  void binary() {
    using F = tn::Tensor (*)(const tn::Tensor&, const tn::Tensor&);
    static const F kFunctions[] = {
        tn::add,
        tn::subtract,
        tn::multiply,
        tn::divide,
        tn::floor_divide,
        tn::remainder,
        tn::maximum,
        tn::minimum,
        tn::equal,
        tn::not_equal,
        tn::less,
        tn::less_equal,
        tn::greater,
        tn::greater_equal,
        tn::logical_and,
        tn::logical_or,
        tn::logical_xor,
        tn::bitwise_and,
        tn::bitwise_or,
        tn::bitwise_xor,
        tn::left_shift,
        tn::right_shift,
        tn::fmod,
        [](const tn::Tensor& a, const tn::Tensor& b) {
          return tn::power(
              a, tn::remainder(b.astype(tn::i64), tn::full({}, 3, tn::i64)).astype(tn::u8));
        },
        [](const tn::Tensor& a, const tn::Tensor& b) { return tn::where(b > a, a, b); },
        [](const tn::Tensor& a, const tn::Tensor& b) {
          return tn::where(a.astype(tn::boolean), b, b + b);
        }};
    const F f = kFunctions[pick(26)];
    const std::size_t a = any();
    const tn::Shape shape = values_[a].shape();
    for (int tries = 0; tries < 3; ++tries)
      if (const std::size_t b = any(); values_[b].shape() == shape && pick(3))
        return append([a, b, f](const std::vector<tn::Tensor>& v) { return f(v[a], v[b]); });
    if (pick(3) == 0) {
      const double number = pick(7) - 3;
      return append(
          [a, number, f](const std::vector<tn::Tensor>& v) { return f(v[a], tn::Tensor(number)); });
    }
    tn::Shape narrowed;
    for (int axis = pick(shape.rank() + 1); axis < shape.rank(); ++axis)
      narrowed.push_back(pick(3) == 0 ? 1 : shape[axis]);
    const tn::Tensor constant = fresh(narrowed, any_type());
    const bool first = pick(2);
    append([a, constant, first, f](const std::vector<tn::Tensor>& v) {
      return first ? f(constant, v[a]) : f(v[a], constant);
    });
  }

  void reduction() {
    const std::size_t a = any();
    const tn::Shape shape = values_[a].shape();
    if (shape.rank() == 0) return;
    const int axis = pick(shape.rank());
    const bool keep = pick(2);
    switch (pick(5)) {
      case 0:
        return append([=](const std::vector<tn::Tensor>& v) { return tn::sum(v[a], axis, keep); });
      case 1:
        return append([=](const std::vector<tn::Tensor>& v) { return tn::prod(v[a], axis, keep); });
      case 2:
        return append([=](const std::vector<tn::Tensor>& v) {
          return keep ? tn::cumsum(v[a], axis) : tn::cumprod(v[a], axis);
        });
      case 3:
        has_product_ = true;
        return append([=](const std::vector<tn::Tensor>& v) {
          return tn::matmul(v[a], v[a].swapaxes(-1, -2));
        });
      default: {
        const std::size_t b = any();
        return append([=](const std::vector<tn::Tensor>& v) {
          return tn::concatenate({v[a], v[b]}, axis);
        });
      }
    }
  }

  static constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                                    std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity()};

  std::mt19937_64 random_;
  std::vector<tn::Tensor> inputs_, values_;
  std::vector<Instruction> instructions_;
  std::vector<std::size_t> outputs_;
  bool has_product_ = false;
};

}  // namespace random_program
