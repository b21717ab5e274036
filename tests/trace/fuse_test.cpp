// The fusion program against exhaustive search on random graphs.
#include "src/trace/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace tn = tensor;
using tn::Graph;
using tn::Group;
using tn::ValueId;

namespace {

// 2 to 8 operators on 4 x 4 matrices: unary, binary and matmul, now and then a transpose in
// between.
Graph random_graph(std::mt19937& random) {
  Graph graph;
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<ValueId> values = {graph.add_input({{4, 4}, tn::f32}),
                                 graph.add_input({{4, 4}, tn::f32})};
  const int count = 2 + pick(7);
  for (int i = 0; i < count; ++i) {
    const auto any = [&] {
      return values[values.size() - 1 -
                    static_cast<std::size_t>(
                        pick(static_cast<int>(std::min<std::size_t>(values.size(), 4))))];
    };
    ValueId id = -1;
    switch (pick(4)) {
      case 0:
        id = graph.add(tn::Op::exp, {any()});
        break;
      case 1:
        id = graph.add(tn::Op::matmul, {any(), any()});
        break;
      case 2:
        id = graph.add(tn::Op::add, {any(), any()});
        break;
      default:
        id = graph.add(tn::Op::tanh, {any()});
        break;
    }
    if (pick(4) == 0) id = graph.add(tn::Op::transpose, {id}, {{"axes", tn::Ints{1, 0}}});
    values.push_back(id);
  }
  graph.set_outputs({values.back(), values[values.size() - 2]});
  return graph;
}

// What the planner promises to consider: operators reached from the last one through producers
// inside the group, and matmuls that share a non-constant operand with the last one.
bool is_candidate(const Graph& graph, const tn::Wiring& wires, const Group& group) {
  const ValueId top = group.nodes.back();
  int heavy = 0;
  std::vector<ValueId> reached = {top};
  const auto root = [&](ValueId id) { return wires.root[static_cast<std::size_t>(id)]; };
  for (const ValueId id : group.nodes) {
    heavy += graph.is_op(id, tn::Op::matmul);
    if (id == top || !graph.is_op(top, tn::Op::matmul) || !graph.is_op(id, tn::Op::matmul))
      continue;
    bool shares = false;
    for (const ValueId a : graph[id].inputs)
      for (const ValueId b : graph[top].inputs) shares |= root(a) == root(b);
    if (shares) reached.push_back(id);
  }
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const ValueId input : graph[reached[i]].inputs)
      if (std::binary_search(group.nodes.begin(), group.nodes.end(), root(input)) &&
          !std::count(reached.begin(), reached.end(), root(input)))
        reached.push_back(root(input));
  std::sort(reached.begin(), reached.end());
  reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
  return reached.size() == group.nodes.size() && heavy <= 2;
}

// A cost that is random but the same for equal structures; a third of the groups of several
// operators have no kernel.
tn::CostFn random_cost(const tn::Wiring& wires, unsigned seed) {
  return [&wires, seed](const Graph& graph, const Group& group) -> tn::GroupCost {
    std::seed_seq sequence{
        static_cast<unsigned>(std::hash<std::string>()(tn::structure_of(graph, group))), seed};
    std::mt19937 random(sequence);
    const double cost = 1 + static_cast<double>(random() % 1000) / 100;
    if (group.nodes.size() == 1) return {0, cost};
    if (!is_candidate(graph, wires, group) || random() % 3 == 0) return {};
    return {1, cost};
  };
}

// The cheapest partition by trying them all.
double exhaustive(const Graph& graph, const tn::Wiring& wires, const tn::CostFn& cost) {
  std::vector<ValueId> operators;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (tn::is_compute(graph, id)) operators.push_back(id);
  const std::size_t n = operators.size();
  std::vector<unsigned> producers(n, 0);
  for (std::size_t i = 0; i < n; ++i)
    for (const ValueId input : graph[operators[i]].inputs)
      for (std::size_t p = 0; p < i; ++p)
        if (wires.root[static_cast<std::size_t>(input)] == operators[p]) producers[i] |= 1u << p;
  // best[done]: the cheapest way to have run exactly the operators of `done`, each group reading
  // only what is done.
  std::vector<double> best(std::size_t{1} << n, std::numeric_limits<double>::infinity()),
      price(best);
  for (unsigned set = 1; set < best.size(); ++set) {
    std::vector<ValueId> nodes;
    for (std::size_t i = 0; i < n; ++i)
      if (set >> i & 1) nodes.push_back(operators[i]);
    const tn::GroupCost c = cost(graph, tn::make_group(graph, wires, nodes));
    if (c.family >= 0) price[set] = c.microseconds;
  }
  best[0] = 0;
  for (unsigned done = 0; done + 1 < best.size(); ++done) {
    const unsigned rest = static_cast<unsigned>(best.size() - 1) & ~done;
    for (unsigned set = rest; set > 0; set = (set - 1) & rest) {
      bool ready = true;
      for (std::size_t i = 0; i < n; ++i)
        ready &= !(set >> i & 1) || (producers[i] & ~(done | set)) == 0;
      if (ready) best[done | set] = std::min(best[done | set], best[done] + price[set]);
    }
  }
  return best.back();
}

TEST(Fuse, EqualsExhaustiveSearchOnRandomGraphs) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 2500; ++round) {
    const Graph graph = random_graph(random);
    const tn::Wiring wires = tn::wiring(graph);
    const tn::CostFn cost = random_cost(wires, static_cast<unsigned>(round));
    const tn::FusionPlan plan = tn::fuse(graph, cost);
    ASSERT_NEAR(plan.microseconds, exhaustive(graph, wires, cost), 1e-9)
        << "seed " << seed << " round " << round << "\n"
        << graph;
  }
}

TEST(Fuse, PlanRunsEveryOperatorOnceAndInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const Graph graph = random_graph(random);
    const tn::Wiring wires = tn::wiring(graph);
    const tn::CostFn cost = random_cost(wires, 5);
    for (const auto& plan :
         {tn::fuse(graph, cost), tn::greedy_fusion(graph, cost), tn::no_fusion(graph, cost)}) {
      std::vector<bool> done(static_cast<std::size_t>(graph.size()), false);
      for (ValueId id = 0; id < graph.size(); ++id)
        done[static_cast<std::size_t>(id)] = graph[id].kind != tn::NodeKind::operation;
      for (const Group& group : plan.groups) {
        for (const ValueId read : group.reads)
          EXPECT_TRUE(done[static_cast<std::size_t>(wires.root[static_cast<std::size_t>(read)])]);
        for (const ValueId id : group.nodes) {
          EXPECT_FALSE(done[static_cast<std::size_t>(id)]);
          done[static_cast<std::size_t>(id)] = true;
        }
      }
      for (ValueId id = 0; id < graph.size(); ++id)
        EXPECT_TRUE(done[static_cast<std::size_t>(id)] || !tn::is_compute(graph, id));
    }
    EXPECT_LE(tn::fuse(graph, cost).microseconds, tn::no_fusion(graph, cost).microseconds + 1e-9);
    EXPECT_LE(tn::fuse(graph, cost).microseconds,
              tn::greedy_fusion(graph, cost).microseconds + 1e-9);
  }
}

}  // namespace
