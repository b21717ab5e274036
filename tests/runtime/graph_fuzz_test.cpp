// Random graphs: eager against compiled, fused against not, twice the same. Integer-valued ones are
// compared bit for bit; the others within a tolerance. TENSOR_FUZZ_GRAPHS
// sets how many, TENSOR_FUZZ_SEED where to start: several processes with seeds that far apart share
// the work. Graphs of even seeds are integer-valued.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/runtime/random_program.h"

namespace tn = tensor;
using random_program::Program;
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

double worst_difference(const Program& program, const std::vector<std::size_t>& outputs,
                        bool fuse) {
  const auto f = [&](const Tensors& in) { return program.run(in, outputs); };
  const Tensors expected = f(program.inputs());
  const tn::Executable compiled = tn::compile(f, program.inputs(), {.fuse = fuse});
  const Tensors got = compiled(program.inputs()), again = compiled(program.inputs());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, difference(got[i], expected[i]));
    if (difference(again[i], got[i]) != 0) worst = std::numeric_limits<double>::infinity();
  }
  return worst;
}

// The first value of the program that differs, as the smallest graph that shows the fault.
std::string shrunk(const Program& program, bool fuse, double bound) {
  for (std::size_t id = 0; id < program.size(); ++id) {
    if (worst_difference(program, {id}, fuse) <= bound) continue;
    std::vector<tn::TensorType> types;
    for (const Tensor& x : program.inputs()) types.push_back(x.type());
    std::ostringstream text;
    text << tn::trace([&](const Tensors& in) { return program.run(in, {id}); }, types);
    return text.str();
  }
  return "only together with its other outputs";
}

void count_operators(const Program& program, std::set<std::string_view>& covered) {
  std::vector<tn::TensorType> types;
  for (const Tensor& x : program.inputs()) types.push_back(x.type());
  const tn::Graph graph =
      tn::trace([&](const Tensors& in) { return program.run(in, program.outputs()); }, types);
  for (const tn::Node& node : graph.nodes())
    if (node.kind == tn::NodeKind::operation) covered.insert(tn::info(node.op).name);
}

TEST(GraphFuzz, CompiledGraphsEqualEagerOnes) {
  const char* count_text = std::getenv("TENSOR_FUZZ_GRAPHS");
  const char* seed_text = std::getenv("TENSOR_FUZZ_SEED");
  const int count = count_text ? std::atoi(count_text) : 300;
  const std::uint64_t first =
      seed_text ? std::strtoull(seed_text, nullptr, 10) : std::random_device()();
  std::cout << count << " graphs from TENSOR_FUZZ_SEED=" << first << '\n';
  ASSERT_GT(count, 0);
  std::set<std::string_view> covered;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const bool whole = seed % 2 == 0;
    const Program program(seed, whole);
    count_operators(program, covered);
    // Real-valued graphs: a dozen operators of a few ulps each, amplified by sums of up to 64 terms
    // and by exp.
    const double bound = whole ? 0 : 2e-4;
    for (const bool fuse : {true, false}) {
      const double worst = worst_difference(program, program.outputs(), fuse);
      ASSERT_LE(worst, bound) << "TENSOR_FUZZ_SEED=" << seed
                              << (whole ? " (integers, " : " (reals, ")
                              << (fuse ? "fused)\n" : "not fused)\n")
                              << shrunk(program, fuse, bound);
    }
  }
  std::cout << count << " graphs of " << covered.size() << " operators:";
  for (const std::string_view name : covered) std::cout << ' ' << name;
  std::cout << '\n';
}

}  // namespace
