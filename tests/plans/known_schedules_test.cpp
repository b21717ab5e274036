// Sizes that run by kernels of sizes before them: how many kernels are new, and what is lost.
// Planned for an H100 of which nothing was measured.
#include "src/kernels/known_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "src/kernels/cuda/family.h"
#include "src/runtime/target.h"
#include "src/trace/fuse/known_plans.h"
#include "src/trace/parallel.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/seed.h"

namespace tn = tensor;
namespace cuda = tensor::cuda;

namespace {

// A shorter side of 480 to 800 pixels, a longer one of up to twice as many or 1,333.
std::vector<tn::Shape> pictures(std::size_t count, std::mt19937& random) {
  std::vector<tn::Shape> all;
  while (all.size() < count) {
    const std::int64_t shorter = 480 + static_cast<std::int64_t>(random() % 321);
    const std::int64_t room = std::min<std::int64_t>(2 * shorter, 1333) - shorter;
    const std::int64_t longer =
        shorter + static_cast<std::int64_t>(random() % static_cast<unsigned>(room + 1));
    all.push_back(random() % 2 ? tn::Shape{1, 3, shorter, longer}
                               : tn::Shape{1, 3, longer, shorter});
  }
  return all;
}

std::vector<tn::Shape> batches(std::size_t count, std::mt19937& random) {
  std::vector<tn::Shape> all;
  for (int batch = 1; batch <= 32; ++batch) all.push_back({batch, 3, 224, 224});
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

// The sizes of a model one after the other, as compile() plans them with one Sharing.
class Sizes {
 public:
  explicit Sizes(const std::string& model) {
    const auto models = bench::nine_models();
    model_ = *std::find_if(models.begin(), models.end(),
                           [&](const bench::Model& m) { return m.name == model; });
    cuda::Machine machine = cuda::machine_of(cuda::typical_device(90));
    machine.any_extent = true;
    target_ = tn::detail::cuda_target(machine);
  }

  struct Size {
    tn::LaidOutGraph laid;
    tn::Scheduled scheduled;
    double plan_us = 0;
  };
  Size plan(const tn::Shape& pixels, bool in_haste) {
    const tn::Fusible fusible =
        tn::propose_parallel(nine::laid_out(model_, pixels, nine::on_gpu(tn::f16, 90)));
    const auto like = plans_.fused(fusible, "", target_.cost());
    const tn::FusionPlan partition = like ? like->plan : tn::fuse(fusible, target_.cost());
    if (!like) plans_.remember(fusible, "", partition);
    auto [laid, plan] = tn::merge_parallel(fusible.laid, partition);
    Size size{std::move(laid), {}, plan.microseconds};
    size.scheduled =
        tn::scheduled(size.laid, std::move(plan), *target_.offers, known_, "", in_haste);
    return size;
  }
  // Its kernels are there from now on; how many of them were not.
  int add(Size& size) {
    int count = 0;
    for (const tn::KnownSchedules::Made& one : size.scheduled.made)
      for (const std::string& kernel : one.kernels) count += !known_.has(kernel);
    known_.add("", std::move(size.scheduled.made));
    target_.offers->forget();
    return count;
  }

  // Microseconds by the model beyond the best of every group; how many times the least time the
  // worst takes.
  struct Loss {
    double us = 0, worst = 1;
  };
  Loss loss(const Size& size) {
    Loss loss;
    for (const tn::Group& group : size.scheduled.plan.groups) {
      const tn::Space* space = tn::space_of(target_, size.laid, group, group.family);
      if (!space) continue;
      EXPECT_EQ(space->of(group.schedule).text(), group.schedule) << "it has a kernel";
      const double least = space->model_us(space->chosen),
                   us = space->model_us(space->of(group.schedule));
      loss.us += us - least;
      loss.worst = std::max(loss.worst, us / least);
    }
    return loss;
  }

 private:
  bench::Model model_;
  tn::detail::Target target_;
  tn::KnownPlans plans_;
  tn::KnownSchedules known_;
};

constexpr int kFirst = 8;

// After eight sizes, a further one needs at most `most_new` kernels, all of them together
// `most_all`.
void expect_known(const std::string& model, const std::vector<tn::Shape>& pixels, int most_all) {
  SCOPED_TRACE(model);
  Sizes sizes(model);
  int all = 0;
  double lost = 0, whole = 0, most = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    Sizes::Size size = sizes.plan(pixels[i], false);
    const Sizes::Loss loss = sizes.loss(size);
    const int made = sizes.add(size);
    EXPECT_FALSE(size.scheduled.is_hasty);
    if (i < kFirst) {
      EXPECT_LT(loss.worst, 1.05);
      continue;
    }
    EXPECT_LT(loss.worst, 2);
    EXPECT_LE(loss.us, 0.05 * size.plan_us);
    all += made, lost += loss.us, whole += size.plan_us,
        most = std::max(most, loss.us / size.plan_us);
  }
  std::cout << model << ": after " << kFirst << " sizes " << all << " new kernels, "
            << 100 * lost / whole << " % slower by estimates, at most " << 100 * most << " %\n";
  EXPECT_LE(all, most_all);
}

TEST(KnownSchedules, ServeAllSizesAfterEight) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  expect_known("detr-resnet-50-e6", pictures(24, random), 6);
  expect_known("vit-base-patch16-224", batches(20, random), 20);
}

// In haste next to nothing is compiled once there are kernels for every group, and whether others
// are worth being waited for is known.
// The sizes are always the same: how many kernels some of them want is a matter of the draw.
TEST(KnownSchedules, InHasteTakeWhatThereIs) {
  std::mt19937 random(1);
  for (const char* model : {"detr-resnet-50-e6", "vit-base-patch16-224"}) {
    SCOPED_TRACE(model);
    Sizes sizes(model);
    const auto pixels = model[0] == 'd' ? pictures(14, random) : batches(14, random);
    int made = 0, hasty = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      Sizes::Size patient = sizes.plan(pixels[i], false), quick = sizes.plan(pixels[i], true);
      const auto schedules = [](const Sizes::Size& size) {
        std::vector<std::string> all;
        for (const tn::Group& group : size.scheduled.plan.groups) all.push_back(group.schedule);
        return all;
      };
      EXPECT_FALSE(i == 0 && quick.scheduled.is_hasty) << "nothing is there";
      EXPECT_EQ(quick.scheduled.is_hasty, schedules(quick) != schedules(patient));
      EXPECT_LT(sizes.loss(quick).worst, 2);
      hasty += quick.scheduled.is_hasty;
      const int of_quick = sizes.add(quick);
      if (i >= kFirst) made += of_quick;
      // What comes in the background.
      if (quick.scheduled.is_hasty) sizes.add(patient);
    }
    EXPECT_LE(made, 3) << "of groups for which no kernel is half as fast as the best";
    EXPECT_GT(hasty, 0);
  }
}

TEST(KnownSchedules, SameSizesInTheSameOrderRunAlike) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  const auto pixels = batches(12, random);
  Sizes one("vit-base-patch16-224"), other("vit-base-patch16-224");
  for (const tn::Shape& shape : pixels) {
    Sizes::Size a = one.plan(shape, false), b = other.plan(shape, false);
    ASSERT_EQ(a.scheduled.plan.groups.size(), b.scheduled.plan.groups.size());
    for (std::size_t g = 0; g < a.scheduled.plan.groups.size(); ++g)
      EXPECT_EQ(a.scheduled.plan.groups[g].schedule, b.scheduled.plan.groups[g].schedule);
    one.add(a), other.add(b);
  }
}

// ---- By themselves: a family of one sketch, whose kernels are named after their schedules.

struct OneFamily final : tn::Offers {
  std::vector<tn::Offer> of(const tn::Isolated&) override {
    tn::Offer offer{0, "one", 1};
    offer.lazy = std::make_shared<tn::Offer::LazySpace>();
    offer.lazy->make = [this] {
      tn::Space space;
      space.sketches = {{"s", {{"tile", {best}, true}}}};
      space.fault = [](const tn::Schedule&) { return std::string(); };
      space.model_us = [this](const tn::Schedule& s) {
        return 100 + std::abs(*s.value("tile") - best);
      };
      space.chosen = {"s", {{"tile", best}}};
      return space;
    };
    return {offer};
  }
  int families() const override { return 1; }
  std::string_view name(int) const override { return "one"; }
  std::vector<std::string> kernels(const tn::LaidOutGraph&, const tn::Group& group) override {
    return {group.schedule};
  }
  void forget() override {}
  int best = 0;
};

TEST(KnownSchedules, LoseATwentiethAtFirstAndOfPlansLater) {
  tn::Graph graph;
  const tn::ValueId x = graph.add_input({{64, 64}, tn::f32}), y = graph.add(tn::Op::exp, {x});
  graph.set_outputs({y});
  const tn::LaidOutGraph laid = tn::lay_out(graph);
  OneFamily offers;
  tn::KnownSchedules known;
  // What a size runs by whose best tile is this; the rest of its plan takes `others`.
  const auto tile = [&](int best, double others, const std::string& measured = {},
                        bool hurry = false) {
    offers.best = best;
    tn::FusionPlan plan;
    plan.groups = {tn::make_group(graph, tn::wiring(graph), {y})};
    plan.groups[0].family = 0, plan.groups[0].microseconds = 100;
    plan.groups[0].schedule = measured, plan.groups[0].is_measured = !measured.empty();
    plan.microseconds = 100 + others;
    tn::Scheduled scheduled = tn::scheduled(laid, plan, offers, known, "", hurry);
    known.add("", std::move(scheduled.made));
    return scheduled.plan.groups[0].schedule + (scheduled.is_hasty ? " in haste" : "");
  };
  EXPECT_EQ(tile(100, 0), "s tile=100");
  EXPECT_EQ(tile(104, 0), "s tile=100");
  EXPECT_EQ(tile(106, 1e6), "s tile=106") << "of the first sizes groups count";
  EXPECT_EQ(tile(150, 0, "", true), "s tile=106 in haste");
  EXPECT_EQ(tile(300, 0, "", true), "s tile=300") << "too slow";
  EXPECT_EQ(tile(102, 0, "s tile=108"), "s tile=108") << "what was measured comes first";
  EXPECT_EQ(tile(102, 0, "s tile=109", true), "s tile=100 in haste");
  EXPECT_EQ(tile(101, 0), "s tile=100");
  EXPECT_EQ(tile(150, 0), "s tile=150") << "the whole plan would lose two fifths";
  EXPECT_EQ(tile(190, 1000), "s tile=150") << "the whole plan loses little";
  EXPECT_EQ(tile(190, 0), "s tile=190");
}

}  // namespace
