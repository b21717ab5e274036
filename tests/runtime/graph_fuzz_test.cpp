// Random graphs: eager against traced, bit for bit, and against compiled for f32 and bf16, fused
// against not, twice the same. Integer-valued ones, of any type, are compared bit for bit; the
// others within a tolerance, that of bf16 measured on the graph. TENSOR_FUZZ_GRAPHS sets how many,
// TENSOR_SEED where to start: several processes with seeds that far apart share the work. Graphs of
// even seeds are integer-valued.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/typed_program.h"
#include "tests/seed.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using random_program::Numbers;
using random_program::Program;
using random_program::TypedProgram;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// The largest difference, relative to the largest magnitude; 0 means bitwise equal values.
double difference(const Tensor& got, const Tensor& expected) {
  if (!(got.type() == expected.type())) return std::numeric_limits<double>::infinity();
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(b[i])) continue;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

// 0 for equal values, NaN among them, otherwise infinite.
double exact_difference(const Tensor& got, const Tensor& expected) {
  constexpr double kDiffers = std::numeric_limits<double>::infinity();
  if (!(got.type() == expected.type())) return kDiffers;
  const bool is_whole = got.dtype() <= tn::i64;
  if (is_whole)
    return got.to_vector<std::int64_t>() == expected.to_vector<std::int64_t>() ? 0 : kDiffers;
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return kDiffers;
  return 0;
}

template <class P>
double worst_difference(const P& program, const std::vector<std::size_t>& outputs,
                        const tn::CompileOptions& options,
                        double (*measure)(const Tensor&, const Tensor&) = difference) {
  const auto f = [&](const Tensors& in) { return program.run(in, outputs); };
  const Tensors expected = f(program.inputs());
  const tn::Executable compiled = tn::compile(f, program.inputs(), options);
  const Tensors got = compiled(program.inputs()), again = compiled(program.inputs());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, measure(got[i], expected[i]));
    if (measure(again[i], got[i]) != 0) worst = std::numeric_limits<double>::infinity();
  }
  return worst;
}

template <class P>
tn::Graph graph_of(const P& program, const std::vector<std::size_t>& outputs) {
  std::vector<tn::TensorType> types;
  for (const Tensor& x : program.inputs()) types.push_back(x.type());
  return tn::trace([&](const Tensors& in) { return program.run(in, outputs); }, types);
}

// Equal in every bit, the sign of zero among them; NaNs are equal.
bool is_same(const Tensor& got, const Tensor& expected) {
  if (exact_difference(got, expected) != 0) return false;
  if (got.dtype() <= tn::i64) return true;
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::signbit(a[i]) != std::signbit(b[i]) && !std::isnan(a[i])) return false;
  return true;
}

// The first value of the program that fails alone, as the smallest graph that shows the fault.
template <class P>
std::string shrunk(const P& program, const std::function<bool(std::size_t)>& fails) {
  for (std::size_t id = 0; id < program.size(); ++id) {
    if (!fails(id)) continue;
    std::ostringstream text;
    text << graph_of(program, {id});
    return text.str();
  }
  return "only together with its other outputs";
}

// The graph that tracing records computes what the eager run does.
template <class P>
void expect_traced(const P& program, std::uint64_t seed) {
  const auto differs = [&](const std::vector<std::size_t>& outputs) {
    const Tensors got = tn::interpret(graph_of(program, outputs), program.inputs());
    const Tensors expected = program.run(program.inputs(), outputs);
    return !std::equal(got.begin(), got.end(), expected.begin(), expected.end(), is_same);
  };
  ASSERT_FALSE(differs(program.outputs()))
      << "TENSOR_SEED=" << seed << " (traced)\n"
      << shrunk(program, [&](std::size_t id) { return differs({id}); });
}

using Covered = std::set<std::string_view>;

template <class P>
void count_operators(const P& program, Covered& covered) {
  const tn::Graph graph = graph_of(program, program.outputs());
  for (const tn::Node& node : graph.nodes())
    if (node.kind == tn::NodeKind::operation) covered.insert(tn::info(node.op).name);
}

// Calls check(seed, covered) for so many seeds.
void for_seeds(int usual, const std::function<void(std::uint64_t, Covered&)>& check) {
  const char* count_text = std::getenv("TENSOR_FUZZ_GRAPHS");
  const int count = count_text ? std::atoi(count_text) : usual;
  const std::uint64_t first = tn::check::seed();
  ASSERT_GT(count, 0);
  Covered covered;
  for (int i = 0; i < count; ++i) {
    check(first + static_cast<std::uint64_t>(i), covered);
    if (testing::Test::HasFatalFailure()) return;
  }
  std::cout << count << " graphs of " << covered.size() << " operators:";
  for (const std::string_view name : covered) std::cout << ' ' << name;
  std::cout << '\n';
}

TEST(GraphFuzz, CompiledGraphsEqualEagerOnes) {
  for_seeds(300, [](std::uint64_t seed, Covered& covered) {
    const bool whole = seed % 2 == 0;
    const Program program(seed, whole ? Numbers::whole : Numbers::real);
    count_operators(program, covered);
    ASSERT_NO_FATAL_FAILURE(expect_traced(program, seed));
    // Real-valued graphs: a dozen operators of a few ulps each, amplified by sums of up to 64 terms
    // and by exp.
    const double bound = whole ? 0 : 2e-4;
    for (const bool fuse : {true, false}) {
      const double worst = worst_difference(program, program.outputs(), {.fuse = fuse});
      ASSERT_LE(worst, bound) << "TENSOR_SEED=" << seed << (whole ? " (integers, " : " (reals, ")
                              << (fuse ? "fused)\n" : "not fused)\n")
                              << shrunk(program, [&](std::size_t id) {
                                   return worst_difference(program, {id}, {.fuse = fuse}) > bound;
                                 });
    }
  });
}

// Compiled both ways, fused and not; in bf16 only where that is exact.
template <class P>
void expect_equal_bits(const P& program, std::uint64_t seed, tn::DType dtype) {
  ASSERT_NO_FATAL_FAILURE(expect_traced(program, seed));
  for (const bool fuse : {true, false}) {
    const tn::CompileOptions options{.dtype = dtype, .fuse = fuse};
    ASSERT_EQ(worst_difference(program, program.outputs(), options, exact_difference), 0)
        << "TENSOR_SEED=" << seed << " (" << dtype << (fuse ? ", fused)\n" : ", not fused)\n")
        << shrunk(program, [&](std::size_t id) {
             return worst_difference(program, {id}, options, exact_difference) != 0;
           });
  }
}

// Whether rounding to bf16 what compile() may round changes nothing: operands and results of
// products, before a bias as well, and images.
template <class P>
bool is_exact_in_bf16(const P& program) {
  tn::Graph graph = graph_of(program, program.outputs());
  std::set<tn::ValueId> rounded;
  for (tn::ValueId id = 0, size = graph.size(); id < size; ++id) {
    const tn::Node node = graph[id];
    const bool is_convolution = node.op == tn::Op::conv2d || node.op == tn::Op::conv_transpose2d;
    if (node.kind == tn::NodeKind::operation && (is_convolution || node.op == tn::Op::matmul))
      rounded.insert({node.inputs[0], node.inputs[1],
                      graph.add(node.op, {node.inputs[0], node.inputs[1]}, node.attrs)});
    if (node.type.shape.rank() == 4) rounded.insert(id);
  }
  std::erase_if(rounded, [&](tn::ValueId id) { return graph.type(id).dtype != tn::f32; });
  graph.set_outputs({rounded.begin(), rounded.end()});
  const Tensors values = tn::interpret(graph, program.inputs());
  return std::all_of(values.begin(), values.end(), random_program::fits_bf16);
}

// The same whole numbers in f32 and bf16, which holds those up to 256 and some above.
template <class P>
void expect_equal_bits_in_bf16(int usual, const std::function<P(std::uint64_t)>& make) {
  int skipped = 0, compared = 0;
  for_seeds(usual, [&](std::uint64_t seed, Covered& covered) {
    const P program = make(seed);
    const bool is_exact = is_exact_in_bf16(program);
    ++(is_exact ? compared : skipped);
    if (!is_exact) return;
    count_operators(program, covered);
    expect_equal_bits(program, seed, tn::bf16);
  });
  std::cout << compared << " of them are exact in bf16\n";
  EXPECT_LT(skipped, compared);
}

TEST(GraphFuzz, GraphsOfAllTypesAreEqualInEveryBit) {
  for_seeds(300, [](std::uint64_t seed, Covered& covered) {
    const TypedProgram program(seed);
    count_operators(program, covered);
    expect_equal_bits(program, seed, tn::f32);
  });
}

TEST(GraphFuzz, GraphsOfAllTypesAreEqualInEveryBitInBf16) {
  expect_equal_bits_in_bf16<TypedProgram>(100,
                                          [](std::uint64_t seed) { return TypedProgram(seed); });
}

TEST(GraphFuzz, GraphsOfSmallNumbersAreEqualInEveryBitInBf16) {
  expect_equal_bits_in_bf16<Program>(
      150, [](std::uint64_t seed) { return Program(seed, Numbers::narrow); });
}

// ---- Programs compiled for bf16. What they may lose depends on the graph: a difference of large
// products loses more than a sigmoid does. So the bound is measured on the graph itself, by the
// method of Monte Carlo arithmetic (Parker, 1997): in float64, everything that compile() rounds to
// bf16 is moved by as much as rounding can move it, 2^-8, up or down at random, several times over.

class Disturbed {
 public:
  Disturbed(const tn::Graph& from, std::uint64_t seed, double amount)
      : generator_(seed), amount_(amount) {
    std::vector<tn::ValueId> map;
    std::vector<bool> is_from_conv;  // images, which are stored in bf16 between convolutions
    for (const tn::Node& node : from.nodes()) {
      is_from_conv.push_back(false);
      if (node.kind == tn::NodeKind::input) {
        map.push_back(graph_.add_input({node.type.shape, wide(node.type.dtype)}));
      } else if (node.kind == tn::NodeKind::constant) {
        map.push_back(graph_.add_constant(node.constant.astype(wide(node.type.dtype))));
      } else {
        std::vector<tn::ValueId> inputs;
        for (const tn::ValueId id : node.inputs)
          inputs.push_back(map[static_cast<std::size_t>(id)]);
        const bool is_product = node.op == tn::Op::matmul || node.op == tn::Op::conv2d;
        const bool is_image = makes_image(from, node, is_from_conv);
        is_from_conv.back() = is_image;
        if (is_product) inputs[0] = moved(inputs[0]), inputs[1] = moved(inputs[1]);
        tn::Attrs attrs = node.attrs;
        if (node.op == tn::Op::astype) attrs.set("dtype", wide(node.type.dtype));
        const tn::ValueId result = graph_.add(node.op, inputs, attrs);
        map.push_back(is_product || is_image ? moved(result) : result);
      }
    }
    std::vector<tn::ValueId> outputs;
    for (const tn::ValueId id : from.outputs())
      outputs.push_back(map[static_cast<std::size_t>(id)]);
    graph_.set_outputs(outputs);
  }

  std::vector<std::vector<double>> run(const Tensors& inputs) const {
    Tensors wide_inputs;
    for (const Tensor& x : inputs) wide_inputs.push_back(x.astype(wide(x.dtype())));
    std::vector<std::vector<double>> results;
    for (const Tensor& x : tn::interpret(graph_, wide_inputs))
      results.push_back(x.to_vector<double>());
    return results;
  }

 private:
  static tn::DType wide(tn::DType dtype) { return dtype == tn::f32 ? tn::f64 : dtype; }

  static bool makes_image(const tn::Graph& from, const tn::Node& node,
                          const std::vector<bool>& is_from_conv) {
    if (node.op == tn::Op::conv2d || node.op == tn::Op::conv_transpose2d) return true;
    return node.type.shape.rank() == 4 && node.type.dtype == tn::f32 &&
           tn::info(node.op).pattern != tn::Pattern::view &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](tn::ValueId id) {
             return from.type(id).shape.rank() == 4 && is_from_conv[static_cast<std::size_t>(id)];
           });
  }

  tn::ValueId moved(tn::ValueId id) {
    if (amount_ == 0) return id;
    const Tensor sign = generator_.randint(0, 2, graph_.type(id).shape).astype(tn::f64) * 2.0 - 1.0;
    return graph_.add(tn::Op::multiply, {id, graph_.add_constant(sign * amount_ + 1.0)});
  }

  tn::Generator generator_;
  const double amount_;
  tn::Graph graph_;
};

double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]);
    if (!(distance <= most)) most = distance;  // NaN stays
  }
  return most;
}

// By how many times its bound the worst output misses; nullopt where float32 is not enough.
std::optional<double> narrow_excess(const Program& program, const std::vector<std::size_t>& outputs,
                                    bool fuse) {
  constexpr int kRuns = 8;
  constexpr double kSafety = 4;  // one number may be luckier eight times than it is compiled
  const tn::Graph graph = graph_of(program, outputs);
  const auto exact = Disturbed(graph, 0, 0).run(program.inputs());
  std::vector<double> bound;
  for (const auto& values : exact) {
    double largest = 1;
    for (const double x : values) {
      if (!(std::abs(x) < 1e18)) return std::nullopt;
      largest = std::max(largest, std::abs(x));
    }
    bound.push_back(2e-4 * largest);  // as for float32
  }
  for (int run = 1; run <= kRuns; ++run) {
    const auto other =
        Disturbed(graph, static_cast<std::uint64_t>(run), 0x1p-8).run(program.inputs());
    for (std::size_t i = 0; i < bound.size(); ++i)
      bound[i] = std::max(bound[i], kSafety * largest_distance(other[i], exact[i]));
  }
  const auto f = [&](const Tensors& in) { return program.run(in, outputs); };
  const tn::Executable compiled =
      tn::compile(f, program.inputs(), {.dtype = tn::bf16, .fuse = fuse});
  const Tensors got = compiled(program.inputs()), again = compiled(program.inputs());
  double excess = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double distance = largest_distance(got[i].to_vector<double>(), exact[i]);
    if (exact_difference(got[i], again[i]) != 0 || std::isnan(distance))
      return std::numeric_limits<double>::infinity();
    excess = std::max(excess, distance / bound[i]);
  }
  return excess;
}

TEST(GraphFuzz, GraphsInBf16LoseNoMoreThanTheirProducts) {
  int skipped = 0, compared = 0;
  for_seeds(60, [&](std::uint64_t seed, Covered& covered) {
    const Program program(seed, Numbers::steady);
    count_operators(program, covered);
    ASSERT_NO_FATAL_FAILURE(expect_traced(program, seed));
    for (const bool fuse : {true, false}) {
      const auto excess = narrow_excess(program, program.outputs(), fuse);
      ++(excess ? compared : skipped);
      ASSERT_LE(excess.value_or(0), 1)
          << "TENSOR_SEED=" << seed << (fuse ? " (fused)\n" : " (not fused)\n")
          << shrunk(program, [&](std::size_t id) {
               return narrow_excess(program, {id}, fuse).value_or(0) > 1;
             });
    }
  });
  EXPECT_LT(skipped, compared);
}

// What save() writes load_executable() reads: the same groups, which compute the same.
template <class P>
void expect_round_trip(const P& program, double bound) {
  const auto f = [&](const Tensors& in) { return program.run(in, program.outputs()); };
  const tn::Executable compiled = tn::compile(f, program.inputs());
  const tn::check::TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  compiled.save(path);
  try {
    const tn::Executable loaded = tn::load_executable(path);
    ASSERT_EQ(loaded.group_count(), compiled.group_count());
    const Tensors got = loaded(program.inputs()), expected = compiled(program.inputs());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(difference(got[i], expected[i]), bound) << "output " << i;
  } catch (const tn::UserError& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(GraphFuzz, PlansAreReadAsTheyWereWritten) {
  for_seeds(100, [](std::uint64_t seed, Covered& covered) {
    SCOPED_TRACE("TENSOR_SEED=" + std::to_string(seed));
    const Program program(seed, seed % 2 == 0 ? Numbers::whole : Numbers::real);
    count_operators(program, covered);
    // Another plan's memory may be cut and added up otherwise: as above.
    expect_round_trip(program, seed % 2 == 0 ? 0 : 2e-4);
    expect_round_trip(TypedProgram(seed), 0);
    if (testing::Test::HasFailure()) FAIL() << graph_of(program, program.outputs());
  });
}

// Operators that the generators never make would not be tested. Every row of the table can be
// traced: what depends on values (masks as indices, item()) is no operator.
TEST(GraphFuzz, EveryOperatorIsGenerated) {
  Covered covered;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    count_operators(Program(seed, seed % 2 == 0 ? Numbers::whole : Numbers::real), covered);
    count_operators(Program(seed, Numbers::steady), covered);
    count_operators(TypedProgram(seed), covered);
  }
  // These are made by compile() alone.
  covered.insert(
      {"all_reduce", "row_sums", "layer_norm_by_sums", "quantized_matmul", "quantized_conv2d"});
  for (const tn::OpInfo& row : tn::op_table()) EXPECT_TRUE(covered.contains(row.name)) << row.name;
}

}  // namespace
