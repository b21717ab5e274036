// How many kernels a model needs for inputs of many sizes, when kernels take their problem's
// extents as an argument: planned for an H100 of which nothing was measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>

#include "src/kernels/cuda/family.h"
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

  // With schedules that were seen already, where those take less than a twentieth longer by the
  // models; else with the best.
  void add(const tn::LaidOutGraph& laid, const tn::FusionPlan& plan, bool prefers_seen) {
    for (tn::Group group : plan.groups) {
      if (prefers_seen) choose(laid, group);
      for (const cuda::Call& call : offers_->build(laid, group).calls)
        texts_.insert(call.source.text);
    }
    offers_->forget();
  }
  std::size_t count() const { return texts_.size(); }

 private:
  void choose(const tn::LaidOutGraph& laid, tn::Group& group) {
    constexpr double kNear = 1.05;
    const tn::Isolated alone = tn::isolate(laid, group);
    for (const tn::Offer& offer : offers_->of(alone)) {
      const tn::Space* space = offer.family == group.family ? offer.space() : nullptr;
      if (!space) continue;
      // Of one sequence of operators, whatever their extents.
      std::string operators;
      for (const tn::ValueId id : group.nodes)
        operators += std::string(tn::info(laid.graph[id].op).name) + ' ';
      std::vector<tn::Schedule>& seen = seen_[operators + std::to_string(group.family)];
      tn::Schedule best = space->chosen;
      double least = kNear * space->model_us(best);
      bool is_new = true;
      for (const tn::Schedule& schedule : seen)
        if (space->has(schedule) && space->model_us(schedule) <= least) {
          best = schedule, least = space->model_us(schedule);
          is_new = false;
        }
      if (is_new) seen.push_back(best);
      group.schedule = best.text();
    }
  }

  cuda::Machine machine_;
  std::shared_ptr<cuda::Families> offers_;
  std::set<std::string> texts_;
  std::map<std::string, std::vector<tn::Schedule>> seen_;
};

tn::LaidOutGraph model_of(const std::string& name, const Pixels& pixels) {
  for (const bench::PaperModel& model : bench::nine_models()) {
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
std::vector<Pixels> batches(int count, std::int64_t side) {
  std::vector<Pixels> all;
  for (int batch = 1; batch <= count; ++batch) all.push_back({batch, side, side});
  return all;
}

// At most so many texts, of which `most_seen` where schedules are preferred that were seen.
void expect_few(const std::string& model, const std::vector<Pixels>& sizes, std::size_t most,
                std::size_t most_seen) {
  KernelTexts fixed(false), any(true), seen(true);
  std::size_t first = 0;
  for (const Pixels& pixels : sizes) {
    const tn::LaidOutGraph graph = model_of(model, pixels);
    const auto [laid, plan] = tn::merge_parallel(
        graph, tn::fuse(tn::propose_parallel(graph),
                        cuda::cuda_cost(cuda::machine_of(cuda::typical_device(90)))));
    fixed.add(laid, plan, false);
    any.add(laid, plan, false);
    seen.add(laid, plan, true);
    if (first == 0) first = any.count();
  }
  std::cout << model << " in " << sizes.size() << " sizes: " << fixed.count()
            << " kernels that know their extents, " << any.count() << " that take any (" << first
            << " of them for the first size), " << seen.count() << " with schedules seen before\n";
  EXPECT_LE(any.count(), most);
  EXPECT_LE(seen.count(), most_seen);
}

TEST(ManySizes, OfPicturesNeedFewKernels) {
  expect_few("detr-resnet-50-e6", pictures(50), 400, 200);
}

TEST(ManySizes, OfBatchesNeedFewKernels) {
  expect_few("vit-base-patch16-224", batches(32, 224), 200, 100);
  expect_few("setr-pup", batches(32, 384), 100, 90);
}

}  // namespace
