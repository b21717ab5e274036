// Logs with features as this version of the library calculates them: what was measured outlives the
// analytic models, of which features are made, and can teach a cost model again.
#include <iostream>
#include <map>
#include <set>

#include "bench/main.h"
#include "bench/nine_models.h"
#include "bench/wanted_problems.h"
#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/tune/problem.h"
#include "src/tune/search.h"
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
class Renewal {
 public:
  explicit Renewal(const bench::WantedProblems& problems) {
    for (const auto& [text, alone] : problems.found()) {
      std::vector<Offer> offers = offers_of(problems.target(), alone);
      if (offers.empty()) continue;
      Known& known = known_[text];
      known.problem = std::make_unique<Problem>(text, alone, std::move(offers));
      known.search = std::make_unique<Search>(text, "", known.problem->space());
    }
  }

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
  // As a tuner has them.
  struct Known {
    std::unique_ptr<Problem> problem;
    std::unique_ptr<Search> search;
  };
  std::map<std::string, Known> known_;
};

void run(int argc, char** argv) {
  const std::vector<std::string> logs = bench::take_options(argc, argv, {}, kHelp);
  if (logs.empty()) fail("renew_features", "got no log\n", kHelp);
  const std::vector<Measurement> lines = read_logs(logs).measurements;
  std::set<std::string> problems;
  for (const Measurement& m : lines) problems.insert(m.problem);
  detail::Target target = detail::cuda_target(cuda::typical_device(90));
  target.tuned_as = "NVIDIA H200";
  bench::WantedProblems wanted(std::move(problems), target);
  for (const int batch : kBatches)
    for (const bench::Case& model : bench::cases(bench::nine_models(), batch)) {
      const bench::Workload work = model.make(f16);
      wanted.add_model(detail::prepare(work.function, {work.inputs[0].type()},
                                       {.device = "cuda", .dtype = f16}, target)
                           .laid);
      std::cerr << model.name << " with " << batch << " images\n";
    }
  const Renewal renewal(wanted);
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
