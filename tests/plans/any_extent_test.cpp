// How many kernels a model needs for inputs of many sizes, when kernels take their problem's
// extents as an argument: planned for an H100 of which nothing was measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <utility>

#include "src/kernels/cuda/family.h"
#include "src/kernels/known_schedules.h"
#include "src/runtime/target.h"
#include "src/trace/fuse/known_plans.h"
#include "src/trace/parallel.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/seed.h"

namespace {

namespace tn = tensor;
namespace cuda = tensor::cuda;

struct Pixels {
  std::int64_t batch, height, width;
};

// Texts of one form, whatever model and size they are of.
class KernelTexts {
 public:
  explicit KernelTexts(bool any_extent) : machine_(cuda::machine_of(cuda::typical_device(90))) {
    machine_.any_extent = any_extent;
    offers_ = std::make_shared<cuda::Families>(cuda::cuda_families(), machine_);
  }

  // With schedules that are known already, where these lose little; else with the best.
  void add(const tn::LaidOutGraph& laid, const tn::FusionPlan& plan, bool prefers_known) {
    tn::Scheduled scheduled = prefers_known ? tn::scheduled(laid, plan, *offers_, known_, "device")
                                            : tn::Scheduled{tn::scheduled(laid, plan, *offers_)};
    known_.add("device", std::move(scheduled.made));
    for (const tn::Group& group : scheduled.plan.groups)
      for (const cuda::Call& call : offers_->build(laid, group).calls)
        texts_.insert(call.source.text);
    offers_->forget();
  }
  std::size_t count() const { return texts_.size(); }

 private:
  cuda::Machine machine_;
  std::shared_ptr<cuda::Families> offers_;
  std::set<std::string> texts_;
  tn::KnownSchedules known_;
};

tn::LaidOutGraph model_of(const std::string& name, const Pixels& pixels) {
  for (const bench::Model& model : bench::nine_models()) {
    if (model.name != name) continue;
    const bench::Network net = model.make();
    return nine::laid_out(net.parameters, net.function,
                          {{{pixels.batch, 3, pixels.height, pixels.width}, tn::f32}},
                          nine::on_gpu(tn::f16, 90));
  }
  ADD_FAILURE() << "no model " << name;
  return {};
}

// What DETR makes of pictures of any shape: a shorter side of 800 pixels, a longer one of up to
// 1,333.
std::vector<Pixels> pictures(int count) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  std::vector<Pixels> all;
  for (int i = 0; i < count; ++i) {
    const std::int64_t longer = 800 + static_cast<std::int64_t>(random() % 534);
    all.push_back(i % 2 == 0 ? Pixels{1, 800, longer} : Pixels{1, longer, 800});
  }
  return all;
}
std::vector<Pixels> batches(std::int64_t side) {
  std::vector<Pixels> all;
  for (int batch = 1; batch <= 32; ++batch) all.push_back({batch, side, side});
  std::shuffle(all.begin(), all.end(), std::mt19937(static_cast<unsigned>(tn::check::seed())));
  all.resize(16);
  return all;
}

// Of a model's sizes, in this order, each planned like those before it: at most `most` kernels with
// the best schedules, `most_known` with known ones, and of these so many after the first eight.
void expect_few(const std::string& model, const std::vector<Pixels>& sizes, std::size_t most,
                std::size_t most_known, std::size_t most_late) {
  KernelTexts best(true), known(true);
  tn::KnownPlans plans;
  const tn::CostFn cost = cuda::cuda_cost(cuda::machine_of(cuda::typical_device(90)));
  std::size_t first = 0, eighth = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const tn::Fusible fusible = tn::propose_parallel(model_of(model, sizes[i]));
    const auto like = plans.fused(fusible, "device", cost);
    const tn::FusionPlan partition = like ? like->plan : tn::fuse(fusible, cost);
    plans.remember(fusible, "device", partition);
    const auto [laid, plan] = tn::merge_parallel(fusible.laid, partition);
    best.add(laid, plan, false);
    known.add(laid, plan, true);
    if (i == 0) first = known.count();
    if (i < 8) eighth = known.count();
  }
  std::cout << model << " in " << sizes.size() << " sizes: " << best.count()
            << " kernels with the best schedules, " << known.count() << " with known ones ("
            << first << " for the first size, " << eighth << " for the first eight)\n";
  EXPECT_LE(best.count(), most);
  EXPECT_LE(known.count(), most_known);
  EXPECT_LE(known.count() - eighth, most_late);
}

// Groups of one kind are lowered once: to what each of them is lowered to by itself.
TEST(ManySizes, EqualGroupsShareWhatEachWouldHave) {
  cuda::Machine machine = cuda::machine_of(cuda::typical_device(90));
  machine.any_extent = true;
  const tn::detail::Target target = tn::detail::cuda_target(machine);
  const tn::Fusible fusible = tn::propose_parallel(model_of("detr-resnet-50-e6", {1, 800, 1066}));
  const auto [laid, partition] = tn::merge_parallel(fusible.laid, tn::fuse(fusible, target.cost()));
  tn::KnownSchedules known;
  const tn::FusionPlan plan = tn::scheduled(laid, partition, *target.offers, known, "device").plan;
  tn::FusionPlan apart = plan;
  std::set<int> kinds;
  for (tn::Group& group : apart.groups) kinds.insert(std::exchange(group.kind, -1));
  EXPECT_FALSE(kinds.contains(-1));
  EXPECT_LT(2 * kinds.size(), plan.groups.size());
  const auto shared = target.lower(laid, plan), alone = target.lower(laid, apart);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    EXPECT_EQ(shared->description(g), alone->description(g));
    const auto got = shared->sources(g), want = alone->sources(g);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].text, want[i].text);
  }
}

TEST(ManySizes, OfPicturesNeedFewKernels) {
  expect_few("detr-resnet-50-e6", pictures(24), 200, 90, 6);
}

TEST(ManySizes, OfBatchesNeedFewKernels) {
  expect_few("vit-base-patch16-224", batches(224), 150, 70, 25);
  expect_few("setr-pup", batches(384), 100, 60, 25);
}

}  // namespace
