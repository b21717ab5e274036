// The program that fits the constants of the time models (bench/fit.h): it finds constants again
// from what they make, and the shipped ones agree with the shipped logs.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "bench/fit.h"
#include "bench/wanted_problems.h"
#include "src/tune/tuned_cost.h"
#include "tests/plans/nine_models.h"

namespace tensor {
namespace {

constexpr const char* kFitted = "NVIDIA H200";

cuda::DeviceInfo h200() {
  cuda::DeviceInfo info = cuda::typical_device(90);
  info.name = kFitted;
  return info;
}

class FitTimes : public ::testing::Test {
 protected:
  // One model of each kind, with one image.
  static void SetUpTestSuite() {
    for (const auto& [name, text] : shipped_logs())
      for (Measurement& m : parse_log(text, name).measurements) lines().push_back(std::move(m));
    std::set<std::string> problems;
    for (const Measurement& m : lines()) problems.insert(m.problem);
    bench::WantedProblems wanted(std::move(problems), detail::cuda_target(h200()));
    const auto models = nine::nine_models(nine::on_gpu(f16, 90), 1);
    for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3", "setr-pup"})
      wanted.add_model(models.at(name)());
    found() = wanted.found();
  }
  static void TearDownTestSuite() { found().clear(), lines().clear(); }

  static std::vector<bench::TimedProblem> timed(std::string_view part) {
    return bench::timed_problems(lines(), found(), part);
  }
  static std::vector<Measurement>& lines() {
    static std::vector<Measurement> all;
    return all;
  }
  static std::map<std::string, Isolated>& found() {
    static std::map<std::string, Isolated> all;
    return all;
  }
};

// The logs that the constants were fitted to had many schedules of a problem; those that ship have
// the fastest. Bounds are what was found, and a fifth of it: who changes a constant sees here what
// it costs.
TEST_F(FitTimes, ShippedConstantsAgreeWithTheShippedLogs) {
  struct Row {
    std::string_view part;
    std::size_t problems;
    double spread;
  };
  for (const Row& row : {Row{"gemm_sm90", 20, 0.38}, Row{"attention_sm90", 5, 0.24},
                         Row{"conv_sm90", 30, 0.165}, Row{"generated", 30, 0.4}}) {
    const auto problems = timed(row.part);
    const double found = bench::spread(problems, h200(), cuda::time_model_of(kFitted));
    std::cout << row.part << ": " << problems.size() << " problems, spread " << found << '\n';
    EXPECT_GE(problems.size(), row.problems) << row.part;
    EXPECT_LE(found, row.spread) << row.part;
  }
}

// What a GPU would take whose constants are others: the fit begins at the shipped ones and ends at
// those of the GPU, or at others that say the same of all that was measured.
TEST_F(FitTimes, ConstantsAreFoundAgainFromWhatTheyMake) {
  for (const auto& [part, changes] :
       std::map<std::string, std::vector<std::pair<std::string, double>>>{
           {"gemm_sm90", {{"gemm_sm90.stage_clocks", 2500}, {"gemm_sm90.fill_us", 1.2}}},
           {"conv_sm90", {{"conv_sm90.ahead_us", 0.3}, {"conv_sm90.round_us", 0.7}}}}) {
    const cuda::TimeModel shipped = cuda::time_model_of(kFitted);
    cuda::TimeModel other = shipped;
    for (const cuda::TimeParameter& parameter : cuda::time_parameters())
      for (const auto& [name, value] : changes)
        if (parameter.name == name) parameter.of(other) = value;
    auto problems = timed(part);
    const auto made = bench::modelled(problems, h200(), other);
    for (std::size_t p = 0; p < problems.size(); ++p)
      for (std::size_t i = 0; i < made[p].size(); ++i)
        if (made[p][i] > 0) problems[p].microseconds[i].second = made[p][i];
    const double before = bench::spread(problems, h200(), shipped);
    cuda::TimeModel again = bench::fitted(problems, h200(), shipped, part);
    const double after = bench::spread(problems, h200(), again);
    std::cout << part << ": spread " << before << ", fitted " << after << '\n';
    EXPECT_GT(before, 0.02) << part;
    EXPECT_LT(after, before / 5) << part;
    // Other parts are not touched.
    cuda::TimeModel rest = shipped;
    for (const cuda::TimeParameter& parameter : cuda::time_parameters())
      EXPECT_TRUE(parameter.name.starts_with(part) || parameter.of(again) == parameter.of(rest))
          << parameter.name;
  }
}

}  // namespace
}  // namespace tensor
