// Which indices are known to be within bounds by what makes them, and that ranges hold.
#include "src/trace/passes/known_indices.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/trace/passes/clean.h"
#include "src/trace/ranges.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Op;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

struct KnownCase {
  std::string name;
  bool is_known;
  std::function<Tensor(const Tensors&)> function;  // of x f32 [5, 7] and indices i64 [3]
};

std::vector<KnownCase> known_cases() {
  using In = const Tensors&;
  const Tensor limit = tn::full({}, 5, tn::i64);
  return {
      {"what is given", false, [](In in) { return tn::take(in[0], in[1], 0); }},
      {"argsort", true, [](In in) { return tn::take_along_axis(in[0], tn::argsort(in[0], 1), 1); }},
      {"argsort of a longer axis", false,
       [](In in) { return tn::take(in[0], tn::argsort(in[0], 1), 0); }},
      {"topk", true, [](In in) { return tn::topk(in[0], 2, 0).first; }},
      {"argmax", true, [](In in) { return tn::take(in[0], tn::argmax(in[0], 0), 0); }},
      {"argmax of all", false, [](In in) { return tn::take(in[0], tn::argmax(in[0]), 0); }},
      {"clipped", true, [](In in) { return tn::take(in[0], tn::clip(in[1], -5, 4), 0); }},
      {"clipped too wide", false, [](In in) { return tn::take(in[0], tn::clip(in[1], -5, 5), 0); }},
      {"numbers between", true,
       [](In in) { return tn::take(in[0], tn::floor(tn::clip(in[0], 0, 4.5)).to(tn::i64), 0); }},
      {"rest", true, [=](In in) { return tn::take(in[0], in[1] % limit, 0); }},
      {"rows and columns", true,
       [](In in) {
         const Tensor place = tn::clip(in[1], 0, 4) * 7 + tn::clip(in[1], 0, 6);
         return tn::take(in[0].reshape({35}), place, 0);
       }},
      {"one beyond", false,
       [](In in) {
         const Tensor place = tn::clip(in[1], 0, 4) * 7 + tn::clip(in[1], 0, 7);
         return tn::take(in[0].reshape({35}), place, 0);
       }},
      {"counted from the end where negative", true,
       [=](In in) {
         const Tensor place = tn::argmax(in[0], 0);
         return tn::take(in[0], tn::where(place < 0, place + limit, place), 0);
       }},
      {"of several axes", true,
       [](In in) {
         return tn::gather_nd(in[0], tn::argsort(in[0], 0)[":, :1"].reshape({5, 1}));
       }},
      {"moved", true, [](In in) { return tn::take(in[0], tn::argmax(in[0], 0) - 5, 0); }},
      {"moved out", false, [](In in) { return tn::take(in[0], tn::argmax(in[0], 0) - 6, 0); }},
      {"joined and shaped", true,
       [](In in) {
         const Tensor both = tn::concatenate({tn::argmax(in[0], 0), tn::argmin(in[0], 0)});
         return tn::take(in[0], both.reshape({7, 2}).transpose(), 0);
       }},
      {"narrow", false,  // 8 bits hold no 200, so nothing is known of what becomes of it
       [](In in) {
         return tn::take(in[0], (tn::clip(in[1], 200, 203).to(tn::i8)).to(tn::i64), 0);
       }},
  };
}

bool is_clipped(const Graph& graph) {
  int takes = 0, clipped = 0;
  for (const tn::Node& node : graph.nodes()) {
    if (node.kind != tn::NodeKind::operation) continue;
    if (node.op != Op::take && node.op != Op::take_along_axis) continue;
    ++takes, clipped += node.attrs.flag("clip", false);
  }
  EXPECT_GT(takes, 0);
  return clipped == takes;
}

TEST(KnownIndices, AreThoseThatCannotBeOutOfBounds) {
  tn::Generator random(tn::check::seed());
  const Tensors inputs = {random.normal({5, 7}), tn::array({-4, 0, 3}).to(tn::i64)};
  for (const KnownCase& c : known_cases()) {
    SCOPED_TRACE(c.name);
    const Graph graph = tn::trace([&](const Tensors& in) { return Tensors{c.function(in)}; },
                                  {{{5, 7}, tn::f32}, {{3}, tn::i64}});
    const Graph after = tn::known_indices(graph);
    EXPECT_EQ(is_clipped(after), c.is_known);
    if (c.name == "narrow" || c.name == "argmax of all" || c.name == "moved out" ||
        c.name == "argsort of a longer axis")
      continue;  // may be out of bounds
    expect_same(graph, after, inputs, 0);
  }
}

// The results are the same, and a flag for each list of indices tells whether one is beyond.
TEST(CheckedIndices, AreToldByFlags) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {tn::take(in[0], in[1], 0), tn::take(in[0], in[1], 1), tn::take(in[0] * 2, in[1], 0),
            tn::take(in[0], tn::argmax(in[0], 0), 0)};
  };
  const Graph graph = tn::known_indices(tn::trace(function, {{{5, 7}, tn::f32}, {{3}, tn::i64}}));
  const Graph checked = tn::checked_indices(graph);
  EXPECT_TRUE(is_clipped(checked));
  ASSERT_EQ(checked.checks().size(), 2u);  // of five rows, and of seven columns
  EXPECT_EQ(checked.checks()[0], "take: an index is out of range, need -5 to 4");
  ASSERT_EQ(checked.outputs().size(), 6u);
  EXPECT_EQ(tn::drop_dead(checked).checks(), checked.checks());
  tn::Generator random(tn::check::seed());
  const Tensor x = random.normal({5, 7});
  const auto flags = [&](std::vector<int> indices) {
    const Tensors got =
        tn::interpret(checked, {x, tn::array(std::span<const int>(indices)).to(tn::i64)});
    return std::pair(got[4].item<bool>(), got[5].item<bool>());
  };
  EXPECT_EQ(flags({-5, 0, 4}), std::pair(false, false));
  EXPECT_EQ(flags({-5, 0, 5}), std::pair(true, false));
  EXPECT_EQ(flags({-8, 0, 4}), std::pair(true, true));
  const Tensors in = {x, tn::array({-5, 0, 4}).to(tn::i64)}, got = tn::interpret(checked, in);
  const Tensors want = tn::interpret(graph, in);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(tn::array_equal(got[i], want[i]));
}

// Every element of every value lies within its range.
TEST(Ranges, HoldWhateverTheInputs) {
  tn::Generator random(tn::check::seed());
  for (int round = 0; round < 20; ++round)
    for (const KnownCase& c : known_cases()) {
      SCOPED_TRACE(c.name);
      Graph graph = tn::trace([&](const Tensors& in) { return Tensors{c.function(in)}; },
                              {{{5, 7}, tn::f32}, {{3}, tn::i64}});
      std::vector<tn::ValueId> indices;
      for (tn::ValueId id = 0; id < graph.size(); ++id)
        if (graph[id].kind == tn::NodeKind::operation && graph[id].op != Op::take &&
            graph[id].op != Op::take_along_axis)
          indices.push_back(id);
      const std::vector<tn::Range> ranges = tn::ranges_of(graph);
      graph.set_outputs(indices);
      const Tensors inputs = {random.normal({5, 7}) * 3, (random.normal({3}) * 100).to(tn::i64)};
      const Tensors values = tn::interpret(tn::drop_dead(graph), inputs);
      for (std::size_t i = 0; i < indices.size(); ++i)
        for (const double x : values[i].to_vector<double>()) {
          EXPECT_GE(x, ranges[tn::at(indices[i])].least) << graph[indices[i]].type;
          EXPECT_LE(x, ranges[tn::at(indices[i])].most);
        }
    }
}

}  // namespace
