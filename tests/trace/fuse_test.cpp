// The fusion program against exhaustive search on random graphs.
#include "src/trace/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <set>

#include "tensor/creation.h"
#include "tests/seed.h"
#include "tests/trace/greedy_fusion.h"

namespace tn = tensor;
using tn::Graph;
using tn::Group;
using tn::ValueId;

namespace {

// 2 to 8 operators on 4 x 4 matrices: unary, binary and matmul, some of them by constants, now and
// then a transpose in between.
Graph random_graph(std::mt19937& random) {
  Graph graph;
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<ValueId> values = {graph.add_input({{4, 4}, tn::f32}),
                                 graph.add_input({{4, 4}, tn::f32})};
  std::vector<ValueId> weights, vectors;
  for (const int i : {1, 2, 3}) {
    weights.push_back(graph.add_constant(tn::full({4, 4}, i, tn::f32)));
    vectors.push_back(graph.add_constant(tn::full({4}, i, tn::f32)));
  }
  const auto constant = [&](const auto& list) { return list[static_cast<std::size_t>(pick(3))]; };
  const int count = 2 + pick(7);
  for (int i = 0; i < count; ++i) {
    const auto any = [&] {
      return values[values.size() - 1 -
                    static_cast<std::size_t>(
                        pick(static_cast<int>(std::min<std::size_t>(values.size(), 4))))];
    };
    ValueId id = -1;
    switch (pick(6)) {
      case 0:
        id = graph.add(tn::Op::exp, {any()});
        break;
      case 1:
        id = graph.add(tn::Op::matmul, {any(), any()});
        break;
      case 2:
        id = graph.add(tn::Op::add, {any(), any()});
        break;
      case 3: {
        ValueId left = any();
        if (i + 2 < count && pick(2) == 0) {  // two products of what nobody else reads
          left = graph.add(tn::Op::exp, {left});
          values.push_back(graph.add(tn::Op::matmul, {left, constant(weights)}));
          i += 2;
        }
        id = graph.add(tn::Op::matmul, {left, constant(weights)});
        break;
      }
      case 4:
        id = graph.add(tn::Op::add, {any(), constant(vectors)});
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

// What the planner promises to consider: groups in which all operators lead to one of them.
bool is_cone(const Graph& graph, const Group& group) {
  const tn::Wiring wires = tn::wiring(graph);
  int heavy = 0, sinks = 0;
  for (const ValueId id : group.nodes) {
    heavy += graph.is_op(id, tn::Op::matmul);
    const auto& readers = wires.readers[static_cast<std::size_t>(id)];
    sinks += std::none_of(readers.begin(), readers.end(), [&](ValueId reader) {
      return std::binary_search(group.nodes.begin(), group.nodes.end(), reader);
    });
  }
  return sinks == 1 && heavy <= tn::FuseLimits().heavy;
}

// Whether each of these operators, which are none of the products, is computed from one value and
// constants and read by the next alone, the last by all of these products and nothing else.
bool is_lead(const Graph& graph, const tn::Wiring& wires, const std::vector<ValueId>& lead,
             std::vector<ValueId> products) {
  std::sort(products.begin(), products.end());
  for (std::size_t i = 0; i < lead.size(); ++i) {
    const auto at = static_cast<std::size_t>(lead[i]);
    std::set<ValueId> computed;
    for (const ValueId input : graph[lead[i]].inputs)
      if (!graph.is_constant(input)) computed.insert(input);
    const std::vector<ValueId> next = i + 1 < lead.size() ? std::vector{lead[i + 1]} : products;
    if (graph.is_op(lead[i], tn::Op::matmul) || computed.size() != 1 || wires.returned[at] ||
        wires.readers[at] != next)
      return false;
  }
  return true;
}

// And runs of neighbours among parallel products, with up to three operators before all that read
// one value.
tn::ParallelRun as_run(const Graph& graph, const tn::Wiring& wires,
                       const std::vector<tn::Parallel>& all, const Group& group) {
  for (const tn::Parallel& chains : all)
    for (auto begin = chains.begin(); begin != chains.end(); ++begin)
      for (auto end = begin + 1; end != chains.end(); ++end) {
        std::vector<ValueId> nodes, products, lead;
        for (auto chain = begin; chain <= end; ++chain) {
          nodes.insert(nodes.end(), chain->begin(), chain->end());
          products.push_back(chain->front());
        }
        std::sort(nodes.begin(), nodes.end());
        if (!std::includes(group.nodes.begin(), group.nodes.end(), nodes.begin(), nodes.end()))
          continue;
        std::set_difference(group.nodes.begin(), group.nodes.end(), nodes.begin(), nodes.end(),
                            std::back_inserter(lead));
        if (lead.size() <= 3 && is_lead(graph, wires, lead, products))
          return {lead, {begin, end + 1}};
      }
  return {};
}

tn::Fusible random_fusible(std::mt19937& random) {
  return tn::propose_parallel(tn::lay_out(random_graph(random)));
}

// A cost that is random but the same for equal structures; a third of the groups of several
// operators have no kernel.
tn::CostFn random_cost(unsigned seed) {
  return [seed](const tn::LaidOutGraph& laid, const Group& group) -> tn::GroupCost {
    const std::string structure = tn::Structures(laid).of(group);
    std::seed_seq sequence{static_cast<unsigned>(std::hash<std::string>()(structure)), seed};
    std::mt19937 random(sequence);
    const double cost = 1 + static_cast<double>(random() % 1000) / 100;
    if (group.nodes.size() == 1) return {0, cost};
    if (!is_cone(laid.graph, group) || random() % 3 == 0) return {};
    return {1, cost};
  };
}

// The cheapest partition by trying them all.
double exhaustive(const tn::LaidOutGraph& laid, const tn::CostFn& cost) {
  const Graph& graph = laid.graph;
  const tn::Wiring wires = tn::wiring(graph);
  const std::vector<tn::Parallel> parallel = tn::parallel_products(graph, wires);
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
    const Group group = tn::make_group(graph, wires, nodes);
    tn::GroupCost c;
    if (is_cone(graph, group)) {
      c = cost(laid, group);
    } else if (const tn::ParallelRun run = as_run(graph, wires, parallel, group); !run.empty()) {
      const tn::Isolated merged = tn::merged_alone(laid, run);
      c = cost(merged.laid, merged.group);
    }
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
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  int merged = 0, led = 0;
  for (int round = 0; round < 2500; ++round) {
    const tn::Fusible fusible = random_fusible(random);
    const Graph& graph = fusible.laid.graph;
    const tn::CostFn cost = random_cost(static_cast<unsigned>(round));
    const tn::FusionPlan plan = tn::fuse(fusible, cost, {.merging = 0});
    ASSERT_NEAR(plan.microseconds, exhaustive(fusible.laid, cost), 1e-9)
        << "TENSOR_SEED=" << tn::check::seed() << " round " << round << "\n"
        << graph;
    for (const Group& group : plan.groups) {
      const tn::ParallelRun run = tn::run_of(graph, group);
      merged += !run.empty();
      led += !run.lead.empty();
    }
  }
  std::cout << merged << " groups of parallel products, " << led << " with a lead\n";
  EXPECT_GT(merged, 5);  // parallel products were among the graphs
  EXPECT_GT(led, 5);
}

void expect_runs(const Graph& graph, const tn::FusionPlan& plan) {
  const tn::Wiring wires = tn::wiring(graph);
  std::vector<bool> done(static_cast<std::size_t>(graph.size()), false);
  for (ValueId id = 0; id < graph.size(); ++id)
    done[static_cast<std::size_t>(id)] = graph[id].kind != tn::NodeKind::operation;
  double sum = 0;
  for (const Group& group : plan.groups) {
    for (const ValueId read : group.reads)
      EXPECT_TRUE(done[static_cast<std::size_t>(wires.root[static_cast<std::size_t>(read)])]);
    for (const ValueId id : group.nodes) {
      EXPECT_FALSE(done[static_cast<std::size_t>(id)]);
      done[static_cast<std::size_t>(id)] = true;
    }
    sum += group.microseconds;
  }
  for (ValueId id = 0; id < graph.size(); ++id)
    EXPECT_TRUE(done[static_cast<std::size_t>(id)] || !tn::is_compute(graph, id));
  EXPECT_NEAR(plan.microseconds, sum, 1e-9);
}

// Groups that lead to several operators, or whose operators do not even meet, would close circles
// if they were taken as they come.
TEST(Fuse, ElementwiseGroupsJoinWhatTheyRead) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  int joined = 0;
  for (int round = 0; round < 500; ++round) {
    const tn::Fusible fusible = random_fusible(random);
    const Graph& graph = fusible.laid.graph;
    const tn::CostFn cones = random_cost(static_cast<unsigned>(round));
    const tn::CostFn cost = [&](const tn::LaidOutGraph& of, const Group& group) -> tn::GroupCost {
      if (group.nodes.size() == 1 || is_cone(of.graph, group)) return cones(of, group);
      return {2, 1};
    };
    const tn::FusionPlan plan = tn::fuse(fusible, cost, {.merging = 0});
    expect_runs(graph, plan);
    const auto apart = tn::fuse(fusible, cost, {.merging = 0, .joins = false});
    EXPECT_LE(plan.microseconds, apart.microseconds + 1e-9);
    for (const Group& group : apart.groups)
      EXPECT_TRUE(is_cone(graph, group) || !tn::run_of(graph, group).empty());
    for (const Group& group : plan.groups)
      joined += !is_cone(graph, group) && tn::run_of(graph, group).empty();
    if (HasFailure()) FAIL() << "TENSOR_SEED=" << tn::check::seed() << " round " << round << graph;
  }
  EXPECT_GT(joined, 5);
}

TEST(Fuse, PlanRunsEveryOperatorOnceAndInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const tn::Fusible fusible = random_fusible(random);
    const Graph& graph = fusible.laid.graph;
    const tn::CostFn cost = random_cost(5);
    for (const auto& plan : {tn::fuse(fusible, cost), tn::check::greedy_fusion(fusible.laid, cost),
                             tn::no_fusion(fusible.laid, cost)})
      expect_runs(graph, plan);
    EXPECT_LE(tn::fuse(fusible, cost).microseconds,
              tn::no_fusion(fusible.laid, cost).microseconds + 1e-9);
    EXPECT_LE(tn::fuse(fusible, cost).microseconds,
              tn::check::greedy_fusion(fusible.laid, cost).microseconds + 1e-9);
  }
}

// An alternative that turns out faster by the share changes the plan; none is in it already.
TEST(Fuse, AlternativesAreWhatWouldChangeThePlan) {
  constexpr double kShare = 0.3;
  const tn::FuseLimits limits{.merging = 0};  // what counts in the search is what the plan costs
  std::mt19937 random(8);
  std::size_t found = 0;
  for (unsigned round = 0; round < 300; ++round) {
    const tn::Fusible fusible = random_fusible(random);
    const Graph& graph = fusible.laid.graph;
    const tn::CostFn cost = random_cost(round);
    const tn::Structures structures(fusible.laid);
    const auto [plan, alternatives] = tn::fuse_with_alternatives(fusible, cost, kShare, limits);
    EXPECT_EQ(plan.microseconds, tn::fuse(fusible, cost, limits).microseconds);
    found += alternatives.size();
    for (const Group& alternative : alternatives) {
      const std::string structure = structures.of(alternative);
      for (const Group& group : plan.groups) EXPECT_NE(structures.of(group), structure);
      const tn::CostFn faster = [&](const tn::LaidOutGraph& of, const Group& group) {
        tn::GroupCost c = cost(of, group);
        if (&of == &fusible.laid && structures.of(group) == structure)
          c.microseconds *= 1 - 1.01 * kShare;
        return c;
      };
      EXPECT_LT(tn::fuse(fusible, faster, limits).microseconds, plan.microseconds) << graph;
    }
  }
  EXPECT_GT(found, 50u);
}

// A value that many products read, each with a tail of its own: as many orders of taking them as
// there are subsets, of which the planner needs only one.
TEST(Fuse, ManyBranchesArePlanned) {
  Graph graph;
  const ValueId x = graph.add(tn::Op::exp, {graph.add_input({{4, 4}, tn::f32})});
  std::vector<ValueId> outputs;
  for (int i = 0; i < 60; ++i) {
    const ValueId weight = graph.add_constant(tn::full({4, 4}, i, tn::f32)),
                  bias = graph.add_constant(tn::full({4}, i, tn::f32));
    ValueId y = graph.add(tn::Op::add, {graph.add(tn::Op::matmul, {x, weight}), bias});
    if (i % 3 == 0) y = graph.add(tn::Op::tanh, {y});
    outputs.push_back(i % 5 == 0 ? y : graph.add(tn::Op::softmax, {y}, {{"axis", 1}}));
  }
  graph.set_outputs(outputs);
  const tn::Fusible fusible = tn::propose_parallel(tn::lay_out(graph));
  for (const unsigned seed : {1, 2, 3}) {
    const tn::CostFn cost = random_cost(seed);
    const tn::FusionPlan plan = tn::fuse(fusible, cost);
    EXPECT_LE(plan.microseconds, tn::no_fusion(fusible.laid, cost).microseconds);
    EXPECT_LE(plan.microseconds, tn::check::greedy_fusion(fusible.laid, cost).microseconds);
  }
}

// Many branches of one value that are added up once all are there.
Graph sum_of_branches(int count, const std::function<ValueId(Graph&, ValueId, int)>& branch) {
  Graph graph;
  const ValueId x = graph.add_input({{4, 4}, tn::f32});
  std::vector<ValueId> terms;
  for (int i = 0; i < count; ++i) terms.push_back(branch(graph, x, i));
  ValueId sum = terms[0];
  for (int i = 1; i < count; ++i)
    sum = graph.add(tn::Op::add, {sum, terms[static_cast<std::size_t>(i)]});
  graph.set_outputs({sum});
  return graph;
}

ValueId series_term(Graph& graph, ValueId x, int i) {
  const ValueId factor = graph.add_constant(tn::full({4}, i, tn::f32));
  const ValueId scaled = graph.add(tn::Op::multiply, {x, factor});
  return graph.add(tn::Op::multiply,
                   {graph.add(tn::Op::sin, {scaled}), graph.add(tn::Op::exp, {scaled})});
}

ValueId expert(Graph& graph, ValueId x, int i) {
  const ValueId weight = graph.add_constant(tn::full({4, 4}, i, tn::f32));
  return graph.add(tn::Op::tanh, {graph.add(tn::Op::matmul, {x, weight})});
}

// Each operator reads one or two of the `window` values before it.
Graph random_large(int count, int window, std::mt19937& random) {
  Graph graph;
  std::vector<ValueId> values = {graph.add_input({{4, 4}, tn::f32})};
  const auto any = [&] {
    const std::size_t last = std::min(values.size(), static_cast<std::size_t>(window));
    return values[values.size() - 1 - random() % last];
  };
  const ValueId weight = graph.add_constant(tn::full({4, 4}, 1, tn::f32));
  while (static_cast<int>(values.size()) < count) switch (random() % 4) {
      case 0:
        values.push_back(graph.add(tn::Op::tanh, {any()}));
        break;
      case 1:
        values.push_back(graph.add(tn::Op::matmul, {any(), weight}));
        break;
      default:
        values.push_back(graph.add(tn::Op::add, {any(), any()}));
        break;
    }
  graph.set_outputs({values.end() - 20, values.end()});
  return graph;
}

// What a group reads and writes, and something for each kernel.
tn::GroupCost traffic(const tn::LaidOutGraph&, const Group& group) {
  return {0, 10 + static_cast<double>(group.reads.size() + group.writes.size())};
}

// The work is counted, not timed: groups whose cost is asked for.
TEST(Fuse, WorkIsLinearInGraphsOfAnyShape) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  for (const Graph& graph : {sum_of_branches(400, series_term), sum_of_branches(600, expert),
                             random_large(2000, 4, random), random_large(2000, 40, random),
                             random_large(2000, 2000, random)}) {
    const tn::Fusible fusible = tn::propose_parallel(tn::lay_out(graph));
    std::int64_t asked = 0;
    const tn::CostFn cost = [&](const tn::LaidOutGraph& of, const Group& group) {
      ++asked;
      return traffic(of, group);
    };
    const tn::FusionPlan plan = tn::fuse(fusible, cost, {.joins = false});
    expect_runs(graph, plan);
    // Operators alone, their share of groups, those that all may look at, and parallel products.
    EXPECT_LE(asked, 3 * graph.size() + tn::FuseLimits().groups +
                         static_cast<std::int64_t>(fusible.runs.size()));
    EXPECT_LT(plan.microseconds, 0.7 * tn::no_fusion(fusible.laid, cost).microseconds);
  }
}

// Where the limits are far too small for all sets, what is found is nearly as cheap.
TEST(Fuse, FindsNearlyTheCheapestPartOfManyBranches) {
  constexpr tn::FuseLimits kAll{.groups = 1 << 20, .steps = std::int64_t{1} << 40};
  for (const auto& branch : {series_term, expert}) {
    const tn::Fusible fusible = tn::propose_parallel(tn::lay_out(sum_of_branches(5, branch)));
    const double cheapest = tn::fuse(fusible, traffic, kAll).microseconds;
    for (const std::int64_t steps : {1, 1000, 100000})
      EXPECT_LE(tn::fuse(fusible, traffic, {.groups = 500, .steps = steps}).microseconds,
                1.25 * cheapest)
          << steps << " steps";
    EXPECT_LE(tn::fuse(fusible, traffic).microseconds, 1.02 * cheapest);
  }
}

TEST(Fuse, NoGroupCrossesPieces) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  for (int round = 0; round < 20; ++round) {
    const Graph graph = random_large(100, 6, random);
    const tn::Fusible fusible = tn::propose_parallel(tn::lay_out(graph));
    const tn::FusionPlan plan = tn::fuse(fusible, traffic, {.piece = 16});
    expect_runs(graph, plan);
    EXPECT_LE(plan.microseconds, tn::no_fusion(fusible.laid, traffic).microseconds);
  }
}

}  // namespace
