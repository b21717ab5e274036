// Convolutions, pools and resizing of random parameters: compiled against eager, bit for bit, since
// all numbers are small integers, and where an operator divides, within rounding.
// TENSOR_FUZZ_IMAGES sets how many, TENSOR_SEED where to start: each case has a seed of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Pair;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// An image operator of random parameters with what may follow it.
class ImageCase {
 public:
  explicit ImageCase(std::uint64_t seed) : random_(seed), numbers_(seed) {
    groups_ = below(3) == 0 ? 1 + below(4) : 1;
    x_ = image({1 + below(2), groups_ * (1 + below(below(4) == 0 ? 20 : 4)), 1 + below(12),
                1 + below(12)});
    const int kind = below(6);
    if (kind < 2)
      conv2d();
    else if (kind < 4)
      conv_transpose2d();
    else if (kind == 4)
      pool();
    else
      interpolate();
  }

  // Throws UserError where the parameters do not fit the image.
  Tensors operator()(const Tensors& in) const {
    Tensor y = run_(in);
    for (const auto& follow : follow_) y = follow(y);
    return {y};
  }
  const Tensors& inputs() const { return inputs_; }
  const std::string& name() const { return name_; }
  bool is_exact() const { return is_exact_; }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  Pair pair(int least, int count) {
    const int h = least + below(count);
    return below(2) == 0 ? Pair(h) : Pair{h, least + below(count)};
  }
  Tensor image(const tn::Shape& shape) {
    Tensor x = numbers_.randint(-3, 4, shape).astype(tn::f32);
    if (below(4) == 0) x = tn::copy(x.transpose({0, 2, 3, 1})).transpose({0, 3, 1, 2});
    if (below(8) == 0) x = tn::flip(x, {2});
    inputs_ = {x};
    return x;
  }
  // A constant or an input, which may lie in any order and repeat itself.
  std::function<Tensor(const Tensors&)> weights(const tn::Shape& shape) {
    Tensor w = numbers_.randint(-2, 3, shape).astype(tn::f32);
    if (below(4) == 0) w = tn::copy(w.transpose()).transpose();
    if (below(10) == 0) w = tn::broadcast_to(w(tn::slice(0, 1)), shape);
    if (below(4) != 0) return [w](const Tensors&) { return w; };
    const std::size_t place = inputs_.size();
    inputs_.push_back(below(2) == 0 ? w : tn::copy(w));
    if (below(4) != 0) return [place](const Tensors& in) { return in[place]; };
    inputs_.back() = inputs_.back()(tn::slice(0, 1));
    return [place, shape](const Tensors& in) { return tn::broadcast_to(in[place], shape); };
  }
  Tensor bias(std::int64_t channels) {
    return below(2) == 0 ? Tensor() : numbers_.randint(-4, 5, {channels}).astype(tn::f32);
  }
  void follow(std::int64_t channels) {
    if (below(3) == 0) follow_.push_back([](const Tensor& y) { return tn::relu(y); });
    if (below(4) == 0) {
      const Tensor scale = numbers_.randint(1, 3, {channels, 1, 1}).astype(tn::f32);
      follow_.push_back([scale](const Tensor& y) { return y * scale; });
    }
    if (below(4) == 0) follow_.push_back([](const Tensor& y) { return y + tn::flip(y, {0, 3}); });
    for (int more = below(12) == 0 ? 40 : 0; more > 0; --more) {
      const Tensor shift = numbers_.randint(-1, 2, {channels, 1, 1}).astype(tn::f32);
      follow_.push_back([shift](const Tensor& y) { return y + shift; });
    }
  }
  void tell(const char* name, std::initializer_list<Pair> pairs) {
    std::ostringstream text;
    text << name << " of " << x_.shape() << " groups " << groups_ << ":";
    for (const Pair& p : pairs) text << " (" << p.h << ", " << p.w << ")";
    name_ = text.str();
  }

  void conv2d() {
    const Pair kernel = pair(1, below(3) == 0 ? 7 : 3);
    const tn::Conv2dOptions options{pair(1, 4), pair(0, 5), pair(1, 3), groups_};
    const std::int64_t outputs = groups_ * (1 + below(5));
    const auto w = weights({outputs, x_.shape(1) / groups_, kernel.h, kernel.w});
    tell("conv2d", {kernel, options.stride, options.padding, options.dilation});
    run_ = [=, b = bias(outputs)](const Tensors& in) {
      return tn::conv2d(in[0], w(in), b, options);
    };
    follow(outputs);
  }
  void conv_transpose2d() {
    const Pair kernel = pair(1, below(3) == 0 ? 7 : 3);
    tn::ConvTranspose2dOptions options{pair(1, 4), pair(0, 3), 0, pair(1, 4), groups_};
    options.output_padding = {below(std::max<int>(int(options.stride.h), int(options.dilation.h))),
                              below(std::max<int>(int(options.stride.w), int(options.dilation.w)))};
    const std::int64_t each = 1 + below(5);
    const auto w = weights({x_.shape(1), each, kernel.h, kernel.w});
    tell("conv_transpose2d",
         {kernel, options.stride, options.padding, options.output_padding, options.dilation});
    run_ = [=, b = bias(groups_ * each)](const Tensors& in) {
      return tn::conv_transpose2d(in[0], w(in), b, options);
    };
    follow(groups_ * each);
  }
  void pool() {
    const Pair kernel = pair(1, 6), stride = pair(0, 4), padding = pair(0, 4);
    const bool is_average = below(2) == 0;
    is_exact_ = !is_average;
    const bool rounds_up = below(3) == 0, counts_padding = below(2) == 0;
    tell(is_average ? "avg_pool2d" : "max_pool2d",
         {kernel, stride, padding, {rounds_up, counts_padding}});
    run_ = [=](const Tensors& in) {
      return is_average ? tn::avg_pool2d(in[0], kernel, stride, padding, rounds_up, counts_padding)
                        : tn::max_pool2d(in[0], kernel, stride, padding, rounds_up);
    };
    follow(x_.shape(1));
  }
  void interpolate() {
    const Pair size = pair(1, 20);
    const tn::Interpolation modes[] = {tn::Interpolation::nearest, tn::Interpolation::bilinear,
                                       tn::Interpolation::bicubic};
    tn::InterpolateOptions options{modes[below(3)]};
    if (options.mode != tn::Interpolation::nearest) {
      options.align_corners = below(2) == 0;
      options.antialias = !options.align_corners && below(2) == 0;
    }
    is_exact_ = false;
    tell("interpolate",
         {size, {static_cast<int>(options.mode), 0}, {options.align_corners, options.antialias}});
    run_ = [=](const Tensors& in) { return tn::interpolate(in[0], size, options); };
    follow(x_.shape(1));
  }

  std::mt19937_64 random_;
  tn::Generator numbers_;
  std::int64_t groups_ = 1;
  Tensor x_;
  Tensors inputs_;
  std::function<Tensor(const Tensors&)> run_;
  std::vector<std::function<Tensor(const Tensor&)>> follow_;
  std::string name_;
  bool is_exact_ = true;
};

// Nothing, or what is wrong. bf16 rounds factors and sums: integers of up to 256 stay exact in it,
// larger results do not.
std::string fault(const ImageCase& one, tn::DType dtype) {
  Tensor expected, got;
  try {
    expected = one(one.inputs())[0];
  } catch (const tn::UserError&) {
    return "skipped";
  }
  try {
    got = tn::compile(one, one.inputs(), {.dtype = dtype})(one.inputs())[0];
  } catch (const std::exception& error) {
    return std::string("throws ") + error.what();
  }
  if (got.type() != expected.type()) return "is of another type or shape";
  if (expected.size() == 0) return "";
  const double error = tn::max(tn::abs(got - expected)).item(),
               largest = std::max(1.0, tn::max(tn::abs(expected)).item());
  const double bound = dtype == tn::bf16 ? 8 * 0x1p-8 : one.is_exact() ? 0 : 64 * 0x1p-24;
  return error <= bound * largest ? "" : "is off by " + std::to_string(error);
}

TEST(ImageFuzz, CompiledEqualsEager) {
  const char* text = std::getenv("TENSOR_FUZZ_IMAGES");
  const int count = text ? std::atoi(text) : 300;
  int skipped = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = tn::check::seed() + static_cast<std::uint64_t>(i);
    const ImageCase one(seed);
    const std::string wrong = fault(one, seed % 4 == 3 ? tn::bf16 : tn::f32);
    skipped += wrong == "skipped";
    if (wrong == "skipped") continue;
    EXPECT_EQ(wrong, "") << "TENSOR_SEED=" << seed << " TENSOR_FUZZ_IMAGES=1: " << one.name();
  }
  EXPECT_LT(skipped, count / 2 + 2);
}

}  // namespace
