// infer refuses what no kernel can run: every operator with attributes, types, shapes and numbers
// of inputs that are wrong in some way. What infer accepts is run.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "src/ops/op.h"
#include "tests/ops/check.h"
#include "tests/seed.h"

namespace tensor {
namespace {

struct Call {
  Op op;
  std::vector<TensorType> inputs;
  Attrs attrs;
};

const Attrs kReduced = {{"axis", Ints{0, 2}}, {"keepdims", false}, {"ddof", 1.0}};
const Attrs kAlong = {{"axis", 1}, {"descending", true}};
const Attrs kImage = {
    {"stride", Ints{1, 1}},   {"padding", Ints{1, 1}}, {"output_padding", Ints{0, 0}},
    {"dilation", Ints{1, 1}}, {"groups", 2},           {"kernel_size", Ints{2, 2}},
    {"tf32", false},          {"ceil_mode", true},     {"count_include_pad", false}};
const Attrs kPadded = {{"before", Ints{0, 1, 2}}, {"after", Ints{1, 0, 0}}};
const Attrs kSliced = {
    {"start", Ints{0, 3, 1}}, {"extent", Ints{2, 2, 2}}, {"step", Ints{1, -2, 3}}};
const Attrs kResized = {
    {"size", Ints{3, 4}}, {"mode", "bicubic"}, {"align_corners", false}, {"antialias", true}};

const Attrs kDivided = {
    {"output_size", Ints{3, 4}}, {"spatial_scale", 0.5}, {"sampling_ratio", 2}, {"aligned", true}};

// A call that is right.
Call good_call(const OpInfo& row) {
  const TensorType x = {{2, 4, 5}, f32}, image = {{1, 4, 3, 3}, f32};
  switch (row.op) {
    case Op::astype:
      return {row.op, {x}, {{"dtype", "i16"}}};
    case Op::where:
      return {row.op, {{{4, 1}, boolean}, x, x}, {}};
    case Op::matmul:
      return {row.op, {x, {{5, 3}, f32}}, {{"tf32", true}}};
    case Op::all_reduce:
      return {row.op, {x}, {}};
    case Op::quantized_matmul:
      return {row.op, {x, {{1, 2, 16, 4}, i8}, {{3}, f32}}, {}};
    case Op::quantized_conv2d:
      return {row.op,
              {image, {{1, 9, 16, 4}, i8}, {{3}, f32}},
              {{"kernel", Ints{3, 3}},
               {"stride", Ints{1, 1}},
               {"padding", Ints{1, 1}},
               {"dilation", Ints{1, 1}}}};
    case Op::layer_norm:
      return {row.op, {x, {{5}, f32}, {{5}, f32}}, {{"eps", 1e-5}}};
    case Op::layer_norm_by_sums:
      return {row.op,
              {{{3, kSummed}, f32}, {{kSummed}, f32}, {{kSummed}, f32}, {{1, 3, 2}, f32}},
              {{"eps", 1e-5}}};
    case Op::row_sums:
      return {row.op, {{{3, 2 * kSummed}, f32}}, {}};
    case Op::conv2d:
      return {row.op, {image, {{6, 2, 3, 3}, f32}, {{6}, f32}}, kImage};
    case Op::conv_transpose2d:
      return {row.op, {image, {{4, 3, 3, 3}, f32}, {{6}, f32}}, kImage};
    case Op::max_pool2d:
    case Op::avg_pool2d:
      return {row.op, {image}, kImage};
    case Op::interpolate:
      return {row.op, {image}, kResized};
    case Op::roi_align:
      return {row.op, {image, {{6, 5}, f32}}, kDivided};
    case Op::reshape:
      return {row.op, {x}, {{"shape", Ints{4, -1}}}};
    case Op::transpose:
      return {row.op, {x}, {{"axes", Ints{2, 0, 1}}}};
    case Op::slice:
      return {row.op, {x}, kSliced};
    case Op::broadcast_to:
      return {row.op, {x}, {{"shape", Ints{3, 2, 4, 5}}}};
    case Op::concatenate:
      return {row.op, {x, x}, kAlong};
    case Op::pad:
      return {row.op, {x, {{}, f32}}, kPadded};
    case Op::take:
      return {row.op, {x, {{3}, i64}}, kAlong};
    case Op::take_along_axis:
      return {row.op, {x, {{2, 3, 5}, i64}}, kAlong};
    case Op::put_along_axis:
      return {row.op, {x, {{2, 3, 5}, i64}, {{2, 1, 5}, f32}}, kAlong};
    default:
      break;
  }
  const bool has_bits = row.promotion == Promotion::bits || row.promotion == Promotion::shifts;
  const TensorType in = {x.shape, row.promotion == Promotion::logical ? boolean
                                  : has_bits                          ? i16
                                                                      : f32};
  return {row.op, std::vector(static_cast<std::size_t>(row.min_inputs), in),
          row.pattern == Pattern::elementwise         ? Attrs()
          : row.op >= Op::sum && row.op <= Op::argmin ? kReduced
                                                      : kAlong};
}

class Spoiler {
 public:
  explicit Spoiler(std::uint64_t seed) : random_(seed) {}

  Call spoiled(Call call) {
    for (std::size_t i = 0, count = 1 + below(2); i < count; ++i) spoil(call);
    return call;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::int64_t number() {
    static constexpr std::int64_t kNumbers[] = {-1,
                                                0,
                                                1,
                                                2,
                                                3,
                                                5,
                                                17,
                                                -17,
                                                100'000'000,
                                                std::int64_t{1} << 31,
                                                std::int64_t{1} << 62,
                                                std::numeric_limits<std::int64_t>::max(),
                                                std::numeric_limits<std::int64_t>::min()};
    return kNumbers[below(std::size(kNumbers))];
  }

  AttrValue value() {
    const double doubles[] = {0.5, -1e300, std::nan(""), HUGE_VAL};
    switch (below(6)) {
      case 0:
        return {};
      case 1:
        return below(2) == 0;
      case 2:
        return doubles[below(4)];
      case 3:
        return below(2) == 0 ? "f64" : "nearest";
      case 4:
        return number();
      default:
        Ints list;
        for (std::size_t i = 0, count = below(20); i < count; ++i) list.push_back(number());
        return list;
    }
  }

  void spoil_attribute(Attrs& attrs) {
    if (attrs.entries().empty()) return attrs.set("axis", value());
    const auto& [name, old] = attrs.entries()[below(attrs.entries().size())];
    const auto* list = std::get_if<Ints>(&old.get());
    if (!list || list->empty() || below(3) == 0) return attrs.set(name, value());
    Ints changed = *list;
    changed[below(changed.size())] = number();
    attrs.set(name, changed);
  }

  void spoil(Call& call) {
    TensorType& input = call.inputs[below(call.inputs.size())];
    switch (below(6)) {
      case 0:
        input.dtype = static_cast<DType>(below(static_cast<std::size_t>(DType::f64) + 1));
        break;
      case 1:
        if (!input.shape.empty())
          input.shape[static_cast<int>(below(static_cast<std::size_t>(input.shape.rank())))] =
              std::max<std::int64_t>(number(), 0);  // tensors have no others
        break;
      case 2:
        if (below(2) == 0 && input.shape.rank() < kMaxRank)
          input.shape.push_back(1);
        else if (!input.shape.empty())
          input.shape.erase(0);
        break;
      case 3:
        below(2) == 0 ? call.inputs.pop_back() : call.inputs.push_back(input);
        if (call.inputs.empty()) call.inputs.push_back({{}, f32});
        break;
      default:
        spoil_attribute(call.attrs);
    }
  }

  std::mt19937_64 random_;
};

bool is_small(const TensorType& type) {
  double elements = 1;
  for (const auto extent : type.shape) elements *= static_cast<double>(extent);
  return elements <= 4096;
}

// Whether infer accepted it; what it accepts of small tensors is run.
bool is_accepted(const Call& call) {
  try {
    for (const TensorType& input : call.inputs) num_elements(input.shape);
    const TensorType type = infer(call.op, call.inputs, call.attrs);
    if (!is_small(type) || !std::all_of(call.inputs.begin(), call.inputs.end(), is_small))
      return true;
    std::vector<Tensor> inputs;
    for (const TensorType& input : call.inputs)
      inputs.push_back(
          (arange(num_elements(input.shape)) % 3).astype(input.dtype).reshape(input.shape));
    const Tensor result = apply_op(call.op, inputs, call.attrs);
    EXPECT_EQ(result.type(), type);
    static_cast<void>(result.copy());
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(Infer, EveryOperatorAnswersOrRefuses) {
  Spoiler spoiler(check::seed());
  for (const OpInfo& row : op_table()) {
    SCOPED_TRACE(row.name);
    const Call good = good_call(row);
    ASSERT_TRUE(is_accepted(good));
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      const Call call = spoiler.spoiled(good);
      try {
        refused += !is_accepted(call);
      } catch (const std::exception& error) {
        FAIL() << call.inputs[0] << " ... " << call.attrs << ": " << error.what();
      }
    }
    EXPECT_GT(refused, 0);
  }
}

std::string refusal(Op op, const std::vector<TensorType>& inputs, const Attrs& attrs) {
  return check::error_of([&] { infer(op, inputs, attrs); });
}

TEST(Infer, NamesWhatIsWrong) {
  const TensorType x = {{2, 4}, f32};
  EXPECT_EQ(refusal(Op::cumsum, {x}, {{"axis", 17}}),
            "cumsum: got the axis 17 for a tensor of rank 2, need one from 0 on");
  EXPECT_EQ(refusal(Op::softmax, {x}, {{"axis", -1}}),
            "softmax: got the axis -1 for a tensor of rank 2, need one from 0 on");
  EXPECT_EQ(refusal(Op::sort, {{{}, f32}}, {{"axis", 0}}),
            "sort: got the axis 0 for a tensor of rank 0, need one from 0 on (it has none)");
  EXPECT_EQ(refusal(Op::argsort, {x}, {{"axis", 0}}),
            "attribute: descending is missing and has no default");
  EXPECT_EQ(refusal(Op::argsort, {x}, {{"axis", 1}, {"descending", true}, {"count", 5}}),
            "argsort: got count=5 along axis 1 of the shape (2, 4)");
  EXPECT_EQ(refusal(Op::max, {x}, {{"axis", 100'000'000}, {"keepdims", false}}),
            "reduction: got the axes (100000000,) for the shape (2, 4), need them from 0 on, in "
            "rising order");
  EXPECT_EQ(refusal(Op::sum, {x}, {{"axis", Ints{1, 1}}, {"keepdims", false}}),
            "reduction: got the axes (1, 1) for the shape (2, 4), need them from 0 on, in rising "
            "order");
  EXPECT_EQ(refusal(Op::softmax, {{{2}, i32}}, {{"axis", 0}}),
            "softmax: got a tensor of i32, need a floating type: convert it with astype(f32)");
  EXPECT_EQ(refusal(Op::exp, {{{2}, i32}}, {}),
            "exp: got i32(2,), which it is not defined on: convert it with astype");
  EXPECT_EQ(refusal(Op::add, {x, {{2, 4}, f64}}, {}),
            "add: got f32(2, 4) and f64(2, 4), need equal types");
  EXPECT_EQ(refusal(Op::add, {x}, {}), "add: got 1 tensors, need 2");
  EXPECT_EQ(refusal(Op::take, {x, {{2}, i32}}, {{"axis", 0}}),
            "take: got indices of i32, need i64");
  EXPECT_EQ(refusal(Op::broadcast_to, {x}, {{"shape", Ints{std::int64_t{1} << 59, 2, 4}}}),
            "broadcast_to: the result would be f32(576460752303423488, 2, 4), which takes more "
            "than 2^63 bytes");
  EXPECT_EQ(refusal(Op::broadcast_to, {{{1}, f32}}, {{"shape", Ints{-5}}}),
            "shape: got (-5,), need extents of at least 0");
}

}  // namespace
}  // namespace tensor
