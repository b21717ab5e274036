// The device text of elementwise operators: compiled by NVRTC, and run on the host against the
// reference kernels.
#include "src/kernels/cuda/generated/expression.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "src/core/storage.h"
#include "src/core/view.h"
#include "src/kernels/cuda/driver/compiler.h"
#include "src/kernels/cuda/templates.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/compiled.h"
#include "tests/temporary_folder.h"

namespace tensor::cuda {
namespace {

constexpr DType kTypes[] = {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

// What templates/numbers.h needs of device/ptx.h, for the host.
constexpr std::string_view kHostPtx = R"(#pragma once
#include <math.h>
namespace tensor::device {
using u16 = unsigned short; using u32 = unsigned; using u64 = unsigned long long;
inline float exp2_approximate(float x) { return exp2f(x); }
inline float reciprocal_approximate(float x) { return 1 / x; }
inline float maximum_of(float a, float b) { return a >= b || a != a ? a : b; }
inline float minimum_of(float a, float b) { return a <= b || a != a ? a : b; }
inline signed char nearest_byte(float x) {
  return static_cast<signed char>(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : rintf(x));
}
inline u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
struct Half {
  u16 bits;
  explicit operator float() const { return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }
  static u32 pair(float low, float high) {
    return __builtin_bit_cast(u16, static_cast<_Float16>(low)) |
           u32{__builtin_bit_cast(u16, static_cast<_Float16>(high))} << 16;
  }
};
struct Bfloat16 {
  u16 bits;
  explicit operator float() const { return __builtin_bit_cast(float, u32{bits} << 16); }
  static u32 rounded(float x) {
    return x != x ? 0x7fc0 : (bits_of(x) + 0x7fff + (bits_of(x) >> 16 & 1)) >> 16;
  }
  static u32 pair(float low, float high) { return rounded(low) | rounded(high) << 16; }
};
}  // namespace tensor::device
)";

// A function that runs one operator on arrays: operands, then the result.
struct OperatorCase {
  Op op;
  DType from, to;
  Graph graph;
  std::string name;
};

// nullopt where the operator is not defined on the type.
std::optional<OperatorCase> make_case(Op op, DType from, DType to) {
  OperatorCase c{op, from, to, {}, {}};
  const int inputs = info(op).min_inputs;
  std::vector<ValueId> ids;
  std::vector<Tensor> ones;
  for (int i = 0; i < inputs; ++i) {
    const DType dtype = op == Op::where && i == 0 ? boolean : from;
    ids.push_back(c.graph.add_input({Shape{1}, dtype}));
    ones.push_back(full({1}, 1, dtype));
  }
  Attrs attrs;
  if (op == Op::astype) attrs.set("dtype", AttrValue(to));
  try {
    apply_op(op, ones, attrs);
  } catch (const Error&) {
    return std::nullopt;
  }
  const ValueId node = c.graph.add(op, ids, attrs);
  c.to = c.graph.type(node).dtype;
  c.graph.set_outputs({node});
  c.name =
      std::string(info(op).name) + "_" + std::string(name(from)) + "_" + std::string(name(c.to));
  return c;
}

std::vector<OperatorCase> all_cases() {
  std::vector<OperatorCase> cases;
  for (const OpInfo& row : pointwise_ops())
    for (const DType from : kTypes)
      for (const DType to : kTypes) {
        if (row.op != Op::astype && to != from) continue;
        if (auto c = make_case(row.op, from, to)) cases.push_back(std::move(*c));
      }
  return cases;
}

// `header` begins the definition, the loop runs over i.
std::string function_text(const OperatorCase& c, const ElementCode& code, const std::string& header,
                          const std::string& loop) {
  std::string text = header + c.name + "(void* const* operands, int count) {\n" + loop;
  for (const auto& load : code.loads) {
    const std::string type(device_type(c.graph.type(load.value).dtype));
    text += "const auto " + load.name + " = value_of(static_cast<const " + type + "*>(operands[" +
            std::to_string(load.value) + "])[i]);\n";
  }
  const ValueId result = c.graph.outputs()[0];
  const std::string type(device_type(c.to));
  return text + code.body + "static_cast<" + type + "*>(operands[" + std::to_string(result) +
         "])[i] = stored<" + type + ">(" + code.results.at(result) + ");\n}\n}\n";
}

std::optional<ElementCode> code_of(const OperatorCase& c) {
  const ValueId node = c.graph.outputs()[0];
  return element_code(c.graph, std::span(&node, 1));
}

bool is_declined(const OperatorCase& c) {
  return c.op == Op::power && !is_floating(c.from) && c.from != u8;
}

TEST(Expressions, EveryElementwiseOperatorHasDeviceText) {
  int count = 0;
  for (const OperatorCase& c : all_cases()) {
    EXPECT_EQ(code_of(c).has_value(), !is_declined(c)) << c.name;
    ++count;
  }
  EXPECT_GT(count, 400);
}

TEST(Expressions, CompileForTheGpu) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::string text = "#include \"numbers.h\"\nusing namespace tensor::device;\n";
  for (const OperatorCase& c : all_cases())
    if (const auto code = code_of(c))
      text += function_text(c, *code, "extern \"C\" __global__ void ",
                            "for (int i = threadIdx.x; i < count; i += blockDim.x) {\n");
  for (const char* architecture : {"sm_75", "sm_90a"}) {
    const Cubin cubin = Compiler::get().compile(
        {"elementwise.cu", text, device_headers(), {"-default-device"}}, architecture);
    EXPECT_FALSE(cubin.code.empty());
    EXPECT_EQ(cubin.log.find("warning"), std::string::npos) << cubin.log;
  }
}

// ---- On the host.

class HostCode {
 public:
  explicit HostCode(const std::string& text) {
    for (const auto& [name, header] : device_headers()) folder_.write(name, header);
    folder_.write("ptx.h", std::string(kHostPtx));
    folder_.write("code.cpp", text);
    const std::string library = folder_ / "code.so";
    const std::string command = "g++ -std=c++20 -w -O1 -ffp-contract=off -shared -fPIC -o " +
                                library + " " + folder_ / "code.cpp";
    if (std::system(command.c_str()) != 0) internal_error("test", command, " failed");
    library_ = ::dlopen(library.c_str(), RTLD_NOW);
    if (!library_) internal_error("test", ::dlerror());
  }
  void run(const std::string& name, const std::vector<void*>& operands, int count) const {
    auto* function = reinterpret_cast<void (*)(void* const*, int)>(::dlsym(library_, name.c_str()));
    if (!function) internal_error("test", ::dlerror());
    function(operands.data(), count);
  }

 private:
  const check::TemporaryFolder folder_;
  void* library_ = nullptr;
};

// All pairs of special values, then random ones of many magnitudes.
std::vector<double> values(DType dtype, bool second, int count, std::mt19937& random) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> special = {0, 1, 2, 3, 7, 100};
  if (dtype != boolean && dtype != u8) special.insert(special.end(), {-1, -2, -3, -7, -100});
  if (is_floating(dtype))
    special.insert(special.end(), {-0.0, 0.5, 1.5, 2.5, -0.5, -2.5, 1e-3, 6.0e-8, 6e4, -6e4, kInf,
                                   -kInf, std::nan("")});
  if (dtype == f32 || dtype == bf16 || dtype == f64)
    special.insert(special.end(), {1e30, -1e30, 1e-30, 3e9, -3e9, 1e19, 88.5, -87.0});
  const double most[] = {1, 255, 127, 32767, 2147483647.0, 9007199254740992.0};
  if (!is_floating(dtype)) {
    special.push_back(most[static_cast<int>(dtype)]);
    if (dtype != boolean && dtype != u8) special.push_back(-most[static_cast<int>(dtype)] - 1);
  }
  std::vector<double> result;
  for (const double a : special)
    for (const double b : special) result.push_back(second ? b : a);
  std::normal_distribution<double> normal;
  while (std::ssize(result) < count) {
    double x = normal(random) * std::pow(10.0, static_cast<int>(random() % 5) - 2);
    if (!is_floating(dtype)) x = std::trunc(std::fmod(x * 10, most[static_cast<int>(dtype)] + 1));
    if (dtype == boolean || dtype == u8) x = std::abs(x);
    result.push_back(x);
  }
  result.resize(static_cast<std::size_t>(count));
  return result;
}

// Rounding steps of the larger of operand and result that an approximation may be off.
double allowed(const OperatorCase& c, double operand, double expected) {
  const double unit = c.from == f64 ? 0x1p-52 : 0x1p-23;
  const double own = c.to == f16 ? 0x1p-10 : c.to == bf16 ? 0x1p-7 : 0;
  const double result = std::abs(expected), scale = std::max(std::abs(operand), result);
  // Where the result is subnormal, the approximate reciprocal is 0.
  const double least = c.to == f16 ? 0x1p-24 : c.from == f64 ? 0 : 0x1.8p-126;
  switch (c.op) {
    case Op::sigmoid:
    case Op::silu:
      return result * (4 * unit + own) + least * std::max(1.0, std::abs(operand));
    case Op::gelu:  // the series, and what the reference loses in 1 + erf
    case Op::gelu_tanh:
      return scale * 4 * unit + result * own + least;
    case Op::astype:  // f64 becomes f32 before it becomes 16 bits, which rounds twice
      return c.from == f64 ? result * own + (own > 0 ? least : 0) : 0;
    default:
      return 0;
  }
}

void check(const OperatorCase& c, const HostCode& host, std::mt19937& random) {
  constexpr int kCount = 4000;
  std::vector<Tensor> inputs;
  std::vector<void*> operands;
  for (std::size_t i = 0; i < c.graph.inputs().size(); ++i) {
    const DType dtype = c.graph.type(c.graph.inputs()[i]).dtype;
    inputs.push_back(array(values(dtype, i > 0, kCount, random)).astype(dtype));
    operands.push_back(detail::stored(inputs.back()).first());
  }
  const Attrs& attrs = c.graph[c.graph.outputs()[0]].attrs;
  const Tensor expected = apply_op(c.op, inputs, attrs);
  Tensor got = empty({kCount}, c.to);
  std::memset(detail::stored(got).first(), 0xff,
              static_cast<std::size_t>(kCount * item_size(c.to)));
  operands.push_back(detail::stored(got).first());
  host.run(c.name, operands, kCount);
  const auto x = inputs[0].to_vector<double>(), g = got.to_vector<double>(),
             e = expected.to_vector<double>();
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(g[i]) && std::isnan(e[i])) continue;
    if (g[i] == e[i] && std::signbit(g[i]) == std::signbit(e[i])) continue;
    ASSERT_LE(std::abs(g[i] - e[i]), allowed(c, x[i], e[i]))
        << c.name << " of " << x[i] << ", "
        << (inputs.size() > 1 ? inputs[1].to_vector<double>()[i] : 0) << ": got " << g[i]
        << ", need " << e[i];
  }
}

TEST(Expressions, AgreeWithTheReference) {
  std::string text = "#include \"numbers.h\"\nusing namespace tensor::device;\n";
  std::vector<OperatorCase> cases = all_cases();
  for (const OperatorCase& c : cases)
    if (const auto code = code_of(c))
      text += function_text(c, *code, "extern \"C\" void ", "for (int i = 0; i < count; ++i) {\n");
  const HostCode host(text);
  std::mt19937 random(1);
  for (const OperatorCase& c : cases)
    if (!is_declined(c)) check(c, host, random);
}

// ---- Groups.

TEST(Expressions, LoadWhatIsBroadcastAndMakeLiterals) {
  Graph g;
  const ValueId x = g.add_input({Shape{2, 3, 4}, f16}), scale = g.add_input({Shape{4}, f32});
  const ValueId two = g.add_constant(full(Shape{}, 2, f32)),
                half = g.add_constant(full(Shape{}, 0.1, f32));
  const ValueId wide = g.add(Op::astype, {x}, {{"dtype", AttrValue(f32)}});
  const ValueId doubled = g.add(Op::multiply, {scale, two});  // of shape (4), used at all of x
  const ValueId scaled = g.add(Op::multiply, {wide, doubled});
  const ValueId flat = g.add(Op::reshape, {scaled}, {{"shape", AttrValue(Dims{6, 4})}});
  const ValueId sum = g.add(Op::add, {flat, half});
  const std::vector<ValueId> nodes = {wide, doubled, scaled, sum};
  const auto code = element_code(g, nodes);
  ASSERT_TRUE(code);
  ASSERT_EQ(code->loads.size(), 2u);
  for (const auto& load : code->loads) EXPECT_EQ(load.as, (Shape{2, 3, 4}));
  EXPECT_EQ(code->body,
            "const float v0 = convert<float>(x0);\n"
            "const float v1 = times(x1, 2.0f);\n"
            "const float v2 = times(v0, v1);\n"
            "const float v3 = plus(v2, 0.1f);\n");
  EXPECT_EQ(code->shapes.at(doubled), (Shape{2, 3, 4}));
  EXPECT_EQ(code->results.at(sum), "v3");
}

TEST(Expressions, TakeGivenValues) {
  Graph g;
  const ValueId a = g.add_input({Shape{5, 6}, bf16}), b = g.add_input({Shape{6, 7}, bf16});
  const ValueId product = g.add(Op::matmul, {a, b});
  const ValueId wide = g.add(Op::astype, {product}, {{"dtype", AttrValue(f32)}});
  const ValueId bias = g.add_input({Shape{7}, f32});
  const ValueId sum = g.add(Op::add, {wide, bias});
  const std::vector<ValueId> nodes = {wide, sum};
  const auto code = element_code(g, nodes, {{product, "sum"}});
  ASSERT_TRUE(code);
  ASSERT_EQ(code->loads.size(), 1u);
  EXPECT_EQ(code->loads[0].value, bias);
  EXPECT_EQ(code->loads[0].as, (Shape{5, 7}));
  EXPECT_EQ(code->body, "const float v0 = convert<float>(sum);\nconst float v1 = plus(v0, x0);\n");
}

// A composed operator becomes those of its formula; what they compute is rounded at the end only.
TEST(Expressions, ComposedOperators) {
  Graph g;
  const ValueId x = g.add_input({Shape{4}, f16}), y = g.add_input({Shape{4}, f16});
  const ValueId product = g.add(Op::multiply, {x, y});
  const ValueId result = g.add(Op::softplus, {product});
  const std::vector<ValueId> nodes = {product, result};
  const auto code = element_code(g, nodes);
  ASSERT_TRUE(code);
  // The C++ compiler chooses which operand of a sum it evaluates first.
  EXPECT_EQ(std::count(code->body.begin(), code->body.end(), '\n'), 7) << code->body;
  for (const char* part :
       {"const float v0 = times(x0, x1);\n", " = maximum(v0, 0.0f);\n", " = absolute(v0);\n",
        " = negative(v", " = exponential(v", " = logarithm_of_1_plus(v", "const float v6 = plus(v"})
    EXPECT_NE(code->body.find(part), std::string::npos) << part << " in\n" << code->body;
  EXPECT_EQ(code->results.at(result), "v6");
}

TEST(Expressions, DeclineWhatNeedsAnotherElement) {
  Graph g;
  const ValueId x = g.add_input({Shape{4, 4}, f32});
  const ValueId y = g.add(Op::exp, {x});
  const ValueId turned = g.add(Op::transpose, {y}, {{"axes", AttrValue(Dims{1, 0})}});
  const ValueId sum = g.add(Op::add, {y, turned});
  const std::vector<ValueId> nodes = {y, sum};
  EXPECT_FALSE(element_code(g, nodes));
  const ValueId total = g.add(Op::sum, {x}, {{"axis", AttrValue(Dims{1})}, {"keepdims", true}});
  EXPECT_FALSE(element_code(g, std::span(&total, 1)));
}

TEST(Offsets, FollowStrides) {
  EXPECT_EQ(offset_text({4, 5, 6}, {30, 6, 1}, "i"), "i");
  EXPECT_EQ(offset_text({4, 1, 6}, {6, 77, 1}, "i"), "i");
  EXPECT_EQ(offset_text({4, 5, 6}, {0, 0, 0}, "i"), "0");
  EXPECT_EQ(offset_text({4, 5, 6}, {0, 0, 1}, "i"), "int(unsigned(i) % 6u)");
  EXPECT_EQ(offset_text({4, 5, 6}, {1, 0, 0}, "i"), "int(unsigned(i) / 30u)");
  EXPECT_EQ(offset_text({4, 5, 6}, {60, 12, 2}, "i"), "i * 2");
  EXPECT_EQ(offset_text({4, 5, 6}, {1, 24, 4}, "i"),
            "int(unsigned(i) / 30u) + int(unsigned(i) % 30u) * 4");
  EXPECT_EQ(offset_text({3, 2}, {1ll << 32, 1}, "i"),
            "i64(int(unsigned(i) / 2u)) * 4294967296 + i64(int(unsigned(i) % 2u))");
}

}  // namespace
}  // namespace tensor::cuda
