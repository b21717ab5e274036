// A plan for one size serves others: how much longer it takes than one that is searched for.
#include "src/trace/fuse/known_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>

#include "src/kernels/cuda/family.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/seed.h"

namespace tn = tensor;

namespace {

const bench::Model& model_called(const std::string& name) {
  static const std::vector<bench::Model> models = bench::nine_models();
  return *std::find_if(models.begin(), models.end(),
                       [&](const bench::Model& m) { return m.name == name; });
}

// Pictures as DETR resizes them, and batches, in random order.
std::vector<tn::Shape> sizes_of(const std::string& name, std::mt19937& random) {
  std::vector<tn::Shape> sizes;
  if (name.starts_with("detr"))
    for (const auto& [height, width] : {std::pair{800, 1333},
                                        {800, 1066},
                                        {800, 1067},
                                        {1066, 800},
                                        {800, 800},
                                        {750, 1333},
                                        {1333, 612},
                                        {901, 800}})
      sizes.push_back({1, 3, height, width});
  else
    for (const int batch : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32})
      sizes.push_back({batch, 3, 224, 224});
  std::shuffle(sizes.begin(), sizes.end(), random);
  return sizes;
}

void expect_little_lost(const std::string& name, const tn::Precision& precision,
                        const tn::CostFn& cost) {
  SCOPED_TRACE(name);
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  tn::KnownPlans plans;
  double worst = 0, searching = 0, looking = 0;
  int served = 0;
  const auto milliseconds = [](auto&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  for (const tn::Shape& size : sizes_of(name, random)) {
    const tn::Fusible fusible =
        tn::propose_parallel(nine::laid_out(model_called(name), size, precision));
    std::optional<tn::LikeFusion> known;
    const double look = milliseconds([&] { known = plans.fused(fusible, "", cost); });
    tn::FusionPlan best;
    const double search = milliseconds([&] { best = tn::fuse(fusible, cost); });
    if (!known) {
      plans.remember(fusible, "", best);
      continue;
    }
    ++served, looking += look, searching += search;
    worst = std::max(worst, known->plan.microseconds / best.microseconds - 1);
    tn::verify(tn::merge_parallel(fusible.laid, known->plan).first.graph, "test");
  }
  EXPECT_GE(served, 1);  // in any order: some sizes are near others
  EXPECT_LE(worst, 0.05);
  std::cout << name << ": " << served << " sizes by other sizes' plans, at most " << 100 * worst
            << " % slower by estimates; " << looking / served << " ms instead of "
            << searching / served << '\n';
}

TEST(KnownPlans, LittleIsLostOnTheCpu) {
  tn::cpu::Machine machine;
  machine.threads = 2;
  for (const char* name : {"detr-resnet-50-e6", "vit-base-patch16-224"})
    expect_little_lost(name, {}, tn::cpu::cpu_cost(machine));
}

TEST(KnownPlans, LittleIsLostOnHopper) {
  for (const char* name : {"detr-resnet-50-e6", "vit-base-patch16-224"})
    expect_little_lost(name, nine::on_gpu(tn::f16, 90),
                       tn::detail::cuda_target(tn::cuda::typical_device(90)).cost());
}

tn::Graph matrices(std::int64_t rows, bool adds = true) {
  tn::Graph graph;
  const tn::ValueId x = graph.add_input({{rows, 64}, tn::f32}),
                    w = graph.add_constant(tn::ones({64, 64})),
                    product = graph.add(tn::Op::matmul, {x, w}),
                    sum = graph.add(adds ? tn::Op::add : tn::Op::subtract, {product, x});
  graph.set_outputs({sum});
  return graph;
}

TEST(KnownPlans, OutlinesDifferWhereMoreThanExtentsDoes) {
  const auto outline = [](const tn::Graph& graph) { return tn::outline_of(tn::lay_out(graph)); };
  EXPECT_EQ(outline(matrices(10)), outline(matrices(12)));
  EXPECT_NE(outline(matrices(10)), outline(matrices(10, false)));
  EXPECT_NE(outline(matrices(10)), outline(matrices(1)));  // rows of one broadcast
}

TEST(KnownPlans, ServeSizesBetweenOthersAndNearThem) {
  tn::cpu::Machine machine;
  const tn::CostFn cost = tn::cpu::cpu_cost(machine);
  const auto fusible = [](std::int64_t rows) {
    return tn::propose_parallel(tn::lay_out(matrices(rows)));
  };
  tn::KnownPlans plans;
  EXPECT_FALSE(plans.fused(fusible(100), "", cost));
  plans.remember(fusible(100), "", tn::fuse(fusible(100), cost));
  EXPECT_TRUE(plans.fused(fusible(85), "", cost));
  EXPECT_TRUE(plans.fused(fusible(119), "", cost));
  EXPECT_FALSE(plans.fused(fusible(80), "", cost));
  EXPECT_FALSE(plans.fused(fusible(200), "", cost));
  plans.remember(fusible(900), "", tn::fuse(fusible(900), cost));
  EXPECT_TRUE(plans.fused(fusible(200), "", cost));
}

TEST(KnownPlans, ServeWithTheCheapestOfSeveral) {
  tn::cpu::Machine machine;
  const tn::CostFn cost = tn::cpu::cpu_cost(machine);
  const auto fusible = [](std::int64_t rows) {
    return tn::propose_parallel(tn::lay_out(matrices(rows)));
  };
  const auto apart = [&](std::int64_t rows) { return tn::no_fusion(fusible(rows).laid, cost); };
  tn::KnownPlans plans;
  plans.remember(fusible(100), "", apart(100));
  plans.remember(fusible(300), "", tn::fuse(fusible(300), cost));
  plans.remember(fusible(900), "", apart(900));
  // Where two do not agree it is not known which of them is right.
  EXPECT_FALSE(plans.fused(fusible(500), "", cost));
  plans.remember(fusible(2700), "", apart(2700));
  for (const std::int64_t rows : {20, 500, 9000}) {
    const auto like = plans.fused(fusible(rows), "", cost);
    ASSERT_TRUE(like);
    EXPECT_EQ(like->plan.groups.size(), 1u);
    EXPECT_EQ(like->plan.microseconds, tn::fuse(fusible(rows), cost).microseconds);
  }
}

TEST(KnownPlans, DoNotServeWhereAGroupHasNoKernel) {
  tn::cpu::Machine machine;
  const auto fusible = [](std::int64_t rows) {
    return tn::propose_parallel(tn::lay_out(matrices(rows)));
  };
  const tn::CostFn cost = tn::cpu::cpu_cost(machine);
  tn::KnownPlans plans;
  plans.remember(fusible(100), "", tn::fuse(fusible(100), cost));
  EXPECT_FALSE(plans.fused(
      fusible(101), "", [](const tn::LaidOutGraph&, const tn::Group&) { return tn::GroupCost{}; }));
}

}  // namespace
