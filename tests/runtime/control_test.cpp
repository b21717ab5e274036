// cond and loop: run eagerly, traced, and compiled, where only what is chosen runs.
#include <gtest/gtest.h>

#include "src/compile.h"
#include "src/runtime/cpu_engine.h"
#include "src/trace/guards.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using Tensors = std::vector<Tensor>;

namespace {

TEST(Cond, CallsOneBranchWhereTheConditionIsKnown) {
  int calls = 0;
  const auto count = [&] { return ++calls, tn::array({1.0f, 2.0f}); };
  const auto never = []() -> Tensor { throw std::runtime_error("was called"); };
  EXPECT_TRUE(tn::array_equal(tn::cond(tn::array({true}), count, never), tn::array({1.0f, 2.0f})));
  EXPECT_TRUE(tn::array_equal(tn::cond(tn::sum(tn::zeros({3})) > 1, never, count),
                              tn::array({1.0f, 2.0f})));
  EXPECT_EQ(calls, 2);
  // A condition that is known while others are traced is one of the host as well.
  const tn::Executable f = tn::compile(
      [&](const Tensors& in) -> Tensors {
        return {tn::cond(
            tn::array({true}), [&] { return in[0] + 1.0; }, never)};
      },
      Tensors{tn::ones({2})});
  EXPECT_TRUE(tn::array_equal(f({tn::ones({2})})[0], tn::full({2}, 2)));
}

TEST(Cond, RefusesWhatIsNoCondition) {
  const auto x = [] { return tn::ones({2}); };
  EXPECT_EQ(
      error_of([&] { tn::cond(tn::ones({1}), x, x); }),
      "cond: got a condition of f32(1,), need one element of bool: compare it with something");
  EXPECT_EQ(error_of([&] { tn::cond(tn::ones({2}) > 0, x, x); }),
            "cond: got a condition of bool(2,), need one element of bool: reduce it with all() or "
            "any()");
  const auto compiled = [](const std::function<Tensor(const Tensor&)>& f) {
    return error_of([&] {
      tn::compile([&](const Tensors& in) -> Tensors { return {f(in[0])}; }, Tensors{tn::ones({2})});
    });
  };
  EXPECT_EQ(compiled([&](const Tensor& in) { return tn::cond(in > 0, x, x); }),
            "cond: got a condition of bool(2,), need one element of bool: reduce it with all() or "
            "any()");
  EXPECT_EQ(compiled([&](const Tensor& in) {
              return tn::cond(tn::all(in > 0), x, [] { return tn::ones({3}); });
            }),
            "cond: got f32(2,) where the condition is true and f32(3,) where it is false, need "
            "equal types");
  EXPECT_EQ(
      compiled([&](const Tensor& in) {
        return tn::cond(
            tn::all(in > 0), [] { return Tensors{}; }, [&] { return Tensors{in}; })[0];
      }),
      "cond: got 0 tensors where the condition is true and 1 where it is false, need as many");
}

struct Summed {
  Tensor values, sum;
};

// Nested choices, structs, what both sides need, and what one needs that the caller gets as well.
Tensors branches(const Tensors& in) {
  const Tensor &x = in[0], &weight = in[1];
  const Tensor both = tn::tanh(x), shared = tn::matmul(both, weight);
  const Summed chosen = tn::cond(
      tn::sum(x) > 0,
      [&] {
        const Tensor y = tn::matmul(both, weight + 1.0);
        return Summed{
            tn::cond(
                tn::max(y) > 10, [&] { return tn::matmul(y, weight); }, [&] { return y; }),
            tn::sum(y)};
      },
      [&] {
        return Summed{tn::matmul(shared, weight), tn::sum(x * x)};
      });
  return {chosen.values, chosen.sum, shared};
}

TEST(Cond, ComputesWhatTheEagerCallDoes) {
  tn::Generator random(7);
  const Tensor weight = random.normal({16, 16});
  for (const bool fuse : {true, false})
    for (const tn::DType dtype : {tn::f32, tn::bf16}) {
      const Tensor x = random.normal({8, 16});
      const tn::Executable f = tn::compile(branches, {x, weight}, {.dtype = dtype, .fuse = fuse});
      for (const double shift : {-1.0, 0.02, 3.0, -1.0}) {
        const Tensors in = {random.normal({8, 16}) + shift, weight}, got = f(in),
                      want = branches(in);
        // bf16 keeps 8 bits; sums of 16 products, three in a row.
        const double eps = dtype == tn::f32 ? 1e-5 : 0.1;
        for (std::size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(tn::allclose(got[i], want[i], eps, eps * 16)) << dtype << shift << " " << i;
      }
    }
}

TEST(Cond, GuardsAreFoundInOrder) {
  tn::Generator random(7);
  const auto f = [](const Tensors& in) -> Tensors {
    const Tensor flag = tn::sum(in[0]) > 0;
    return {tn::cond(
        flag, [&] { return tn::matmul(in[0], in[1]); },
        [&] {
          const Tensor y = tn::matmul(in[0], tn::matmul(in[1], in[1]));
          return tn::cond(
              tn::max(y) > 0, [&] { return tn::matmul(y, in[1]); }, [&] { return y; });
        })};
  };
  const auto program = tn::detail::compile_until(tn::detail::Until::linked, f,
                                                 {{{8, 16}, tn::f32}, {{16, 16}, tn::f32}}, {},
                                                 tn::detail::target_of("cpu", 1, false, 0), {})
                           .program;
  std::vector<std::size_t> guards;
  const tn::Graph& graph = program->laid.graph;
  const auto found = tn::guards_of(graph, program->plan);
  for (std::size_t g = 0; g < found.size(); ++g)
    for (const tn::ValueId id : program->plan.groups[g].nodes)
      if (graph[id].op == tn::Op::matmul) guards.push_back(found[g].size());
  std::sort(guards.begin(), guards.end());
  EXPECT_EQ(guards, (std::vector<std::size_t>{1, 1, 1, 2}));
}

// In place of a kernel that is not to run.
class Trap : public tn::cpu::Kernel {
 public:
  void run(std::span<std::byte* const>, std::byte*) const override {
    throw std::runtime_error("a kernel that nobody needs runs");
  }
  std::string description() const override { return "trap"; }
};

TEST(Cond, RunsOnlyWhatIsChosen) {
  tn::Generator random(7);
  const Tensor weight = random.normal({16, 16});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::cond(
        tn::sum(in[0]) > 0, [&] { return tn::matmul(in[0], weight); },
        [&] { return in[0] * 2.0; })};
  };
  const auto compilation =
      tn::detail::compile_until(tn::detail::Until::linked, f, {{{8, 16}, tn::f32}}, {},
                                tn::detail::target_of("cpu", 1, false, 0), {});
  auto& engine = dynamic_cast<tn::detail::CpuEngine&>(*compilation.program->engine);
  const auto& plan = compilation.program->plan;
  int planted = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const tn::ValueId id : plan.groups[g].nodes)
      if (compilation.program->laid.graph[id].op == tn::Op::matmul) {
        engine.replace(g, [](auto) { return std::make_unique<Trap>(); });
        ++planted;
      }
  ASSERT_EQ(planted, 1);
  const auto run = [&](const Tensor& x) { return tn::detail::execute(*compilation.program, {x}); };
  EXPECT_TRUE(
      tn::array_equal(run(tn::full({8, 16}, -1, tn::f32))[0], tn::full({8, 16}, -2, tn::f32)));
  // Nor is shown what the passed-over kernel would have read.
  engine.watch({tn::full({8, 16}, -1, tn::f32)}, [&](std::size_t step, auto) {
    EXPECT_NE(engine.steps()[step].description, "trap");
  });
  EXPECT_ANY_THROW(run(tn::ones({8, 16}, tn::f32)));
}

// Newton's method until x^2 is near enough, with the steps that it took.
Summed square_root(const Tensor& x) {
  return tn::loop(20, Summed{x, tn::zeros({})}, [&](const Summed& state) {
    const Tensor next = (state.values + x / state.values) * 0.5;
    return std::pair(tn::max(tn::abs(next * next - x)) > 1e-5, Summed{next, state.sum + 1.0});
  });
}

TEST(Loop, EndsWhenItsConditionSays) {
  const Tensor x = tn::array({2.0, 9.0, 100.0});
  const Summed eager = square_root(x);
  EXPECT_TRUE(tn::allclose(eager.values, tn::sqrt(x), 1e-6, 1e-6));
  EXPECT_EQ(eager.sum.item<float>(), 7);  // from 100 to 10 within 1e-5
  const tn::Executable f = tn::compile(
      [](const Tensors& in) -> Tensors {
        const Summed root = square_root(in[0]);
        return {root.values, root.sum};
      },
      Tensors{x});
  for (const Tensor& in : {x, tn::ones({3}, tn::f64), tn::array({1.0, 1.5, 1e4})}) {
    const Tensors got = f({in});
    const Summed want = square_root(in);
    EXPECT_TRUE(tn::allclose(got[0], want.values, 1e-12, 1e-12));
    EXPECT_TRUE(tn::array_equal(got[1], want.sum));
  }
  EXPECT_TRUE(tn::array_equal(
      tn::loop(0, x, [](const Tensor& y) { return std::pair(tn::array({true}), y); }), x));
}

}  // namespace
