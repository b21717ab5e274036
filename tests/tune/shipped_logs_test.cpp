// The logs that ship with the library have measurements of the nine models, as docs/tuning.md says.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "src/kernels/cuda/family.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "src/tune/tuned_cost.h"
#include "tests/plans/nine_models.h"

namespace tensor {
namespace {

// Of how much of the estimated time of a plan there are measurements.
std::string extent_of(double share) {
  return share > 0.99 ? "all" : share < 0.01 ? "none" : "part";
}

struct Row {
  std::string model;
  std::map<int, std::string> measured;  // by batch
};

const std::vector<Row> kRows = {
    {"vit-base-patch16-224", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"vit-large-patch16-224", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"vit-huge-patch14-224", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"detr-resnet-50-e3", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"detr-resnet-50-e6", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"detr-resnet-50-e12", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"setr-naive-base", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"setr-naive", {{1, "all"}, {8, "all"}, {64, "all"}}},
    {"setr-pup", {{1, "all"}, {8, "all"}, {64, "all"}}},
};

class ShippedCoverage : public ::testing::TestWithParam<int> {};

// In float16 measurements of its own; in bfloat16 the same ones, which count there, too.
TEST_P(ShippedCoverage, IsWhatTheNotesSay) {
  const int batch = GetParam();
  detail::Target target = detail::cuda_target(cuda::typical_device(90));
  target.tuned_as = "NVIDIA H200";
  ASSERT_TRUE(target.bf16_is_like_f16);
  std::vector<Measurement> shipped;
  for (const auto& [name, text] : shipped_logs()) {
    const LogContents log = parse_log(text, name);
    EXPECT_EQ(log.damaged, 0) << name;
    shipped.insert(shipped.end(), log.measurements.begin(), log.measurements.end());
  }
  const auto table = std::make_shared<const Table>(shipped, target.kernels);
  const auto is_known = [&](const std::string& problem) {
    return table->find(target.tuned_as, problem).has_value();
  };
  const auto models = nine::nine_models(nine::on_gpu(f16, 90), batch);
  ASSERT_EQ(models.size(), kRows.size());
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.model);
    const LaidOutGraph laid = models.at(row.model)();
    const auto [merged, plan] =
        merge_parallel(laid, tuned_fusion(propose_parallel(laid), target, table));
    double total = 0, in_f16 = 0, in_bf16 = 0, by_twin = 0;
    for (const Group& group : plan.groups) {
      const std::string text = problem_text(merged.graph, group), twin = twin_text(text);
      total += group.microseconds;
      if (is_known(text)) in_f16 += group.microseconds;
      if (twin != text && is_known(twin)) in_bf16 += group.microseconds;
      if (is_known(twin) || is_known(text)) by_twin += group.microseconds;
    }
    EXPECT_EQ(extent_of(in_f16 / total), row.measured.at(batch)) << in_f16 / total;
    EXPECT_EQ(extent_of(by_twin / total), row.measured.at(batch)) << by_twin / total;
    EXPECT_EQ(in_bf16, 0) << "docs/tuning.md should say that bfloat16 was measured";
  }
}

INSTANTIATE_TEST_SUITE_P(Batch, ShippedCoverage, ::testing::Values(1, 8, 64));

}  // namespace
}  // namespace tensor
