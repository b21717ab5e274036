// Logs with features as this version of the library calculates them: what was measured outlives the
// analytic models, of which features are made, and can teach a cost model again.
#include <iostream>
#include <map>
#include <set>

#include "bench/main.h"
#include "bench/nine_models.h"
#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "src/tune/problem.h"
#include "src/tune/search.h"
#include "src/tune/table.h"
#include "src/tune/tuned_cost.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr const char* kHelp =
    "usage: renew_features LOG... > RENEWED\n"
    "Prints the lines of logs of an NVIDIA H200 with today's features. They are calculated for\n"
    "the subgraphs of the nine models with one, eight and 64 images, and for those that other\n"
    "partitions of these models have; lines of other subgraphs, and of schedules that do not\n"
    "exist any more, are left out and counted.\n";

constexpr int kBatches[] = {1, 8, 64};
// How much less groups would have to take for the plans that are looked at to have them.
constexpr double kShare = 0.5;

class Renewal {
 public:
  explicit Renewal(std::set<std::string> wanted) : wanted_(std::move(wanted)) {
    target_.tuned_as = "NVIDIA H200";
    std::vector<Measurement> shipped = known_measurements(std::nullopt, target_.tuned_as);
    table_ = std::make_shared<const Table>(shipped, target_.kernels);
  }

  void add_model(const LaidOutGraph& laid) {
    for (const CostFn& cost : {target_.cost(), tuned_cost(target_, table_)}) {
      const Fusion fusion = fuse_with_alternatives(propose_parallel(laid), cost, kShare);
      for (const Group& group : fusion.alternatives) add(laid, group);
      add_plan(laid, fusion.plan);
    }
    add_plan(laid, tuned_fusion(propose_parallel(laid), target_, table_));
  }
  const detail::Target& target() const { return target_; }

  /// The same measurement with other features; false where there is no such kernel.
  bool renew(Measurement& m) const {
    const auto known = known_.find(m.problem);
    if (known == known_.end()) return false;
    const Schedule schedule = Schedule::parse(Problem::joined(m.family, m.schedule));
    if (!known->second.problem->space().has(schedule)) return false;
    m.features = known->second.search->features(schedule);
    return true;
  }

 private:
  void add_plan(const LaidOutGraph& laid, const FusionPlan& plan) {
    for (const Group& group : plan.groups) add(laid, group);
    const auto [merged, groups] = merge_parallel(laid, plan);
    for (const Group& group : groups.groups) add(merged, group);
  }

  void add(const LaidOutGraph& laid, const Group& group) {
    const std::string text = problem_text(laid.graph, group);
    if (wanted_.erase(text) == 0) return;
    Isolated alone = isolate(laid, group);
    std::vector<Offer> offers = offers_of(target_, alone);
    if (offers.empty()) return;
    Known& known = known_[text];
    known.problem = std::make_unique<Problem>(text, std::move(alone), std::move(offers));
    known.search = std::make_unique<Search>(text, "", known.problem->space());
  }

  // As a tuner has them.
  struct Known {
    std::unique_ptr<Problem> problem;
    std::unique_ptr<Search> search;
  };
  std::set<std::string> wanted_;  // problems that were not met yet
  detail::Target target_ = detail::cuda_target(cuda::typical_device(90));
  std::shared_ptr<const Table> table_;
  std::map<std::string, Known> known_;
};

void run(int argc, char** argv) {
  const std::vector<std::string> logs = bench::take_options(argc, argv, {}, kHelp);
  if (logs.empty()) fail("renew_features", "got no log\n", kHelp);
  const std::vector<Measurement> lines = read_logs(logs).measurements;
  std::set<std::string> problems;
  for (const Measurement& m : lines) problems.insert(m.problem);
  Renewal renewal(std::move(problems));
  for (const int batch : kBatches)
    for (const bench::Case& model : bench::nine_cases(batch)) {
      const bench::Workload work = model.make(f16);
      renewal.add_model(detail::prepare(work.function, {work.inputs[0].type()},
                                        {.device = "cuda", .dtype = f16}, renewal.target())
                            .laid);
      std::cerr << model.name << " with " << batch << " images\n";
    }
  std::size_t renewed = 0, left_out = 0;
  for (Measurement m : lines) {
    if (m.features.empty()) continue;  // a choice, or all that a family knows
    const bool is_known = renewal.renew(m);
    ++(is_known ? renewed : left_out);
    if (is_known) std::cout << log_line(m);
  }
  std::cerr << renewed << " lines renewed, " << left_out << " left out\n";
}

}  // namespace
}  // namespace tensor

int main(int argc, char** argv) {
  return bench::run_main(argc, argv, tensor::kHelp, [&] { tensor::run(argc, argv); });
}
