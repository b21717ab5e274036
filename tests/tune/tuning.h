// The whole loop of tuning without a GPU: on the plans of an H200 as its data sheet describes it,
// measured by a table of made-up times.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "src/runtime/describe.h"
#include "src/tune/tuned_cost.h"
#include "src/tune/tuner.h"
#include "tests/plans/nine_models.h"
#include "tests/temporary_folder.h"

namespace tensor {

// A number from 0 to 1 that looks random and is the same for the same text.
inline double chance(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 29;
  return static_cast<double>(hash * 0x9e3779b97f4a7c15u >> 11) * 0x1p-53;
}

// Every schedule takes 0.6 to 1.6 times as long as the model of its family says; one of twelve
// fails.
inline Measured made_up(const Problem& problem, const Schedule& schedule) {
  const double luck = chance(problem.text() + schedule.text());
  if (luck < 1.0 / 12) return {{}, "wrong result"};
  const double time = problem.space().model_us(schedule) * (0.6 + luck);
  return {{time * 0.99, time, time * 1.02}, ""};
}

class FakeGpu : public Measurer {
 public:
  using Answer = std::function<Measured(const Problem&, const Schedule&)>;

  FakeGpu(const std::deque<Problem>& problems, Answer answer)
      : problems_(problems), answer_(std::move(answer)) {}
  std::vector<Measured> measure(std::span<const Candidate> candidates) override {
    std::vector<Measured> result;
    for (const Candidate& c : candidates)
      result.push_back(answer_(problems_.at(static_cast<std::size_t>(c.task)), c.schedule));
    return result;
  }

 private:
  const std::deque<Problem>& problems_;
  Answer answer_;
};

class Tuning : public ::testing::Test {
 protected:
  static detail::Target h200() { return detail::cuda_target(cuda::typical_device(90)); }
  // ViT-B with three of its twelve layers.
  static LaidOutGraph vit_in(DType dtype) {
    using models::vit::Vit;
    models::vit::VitConfig config;
    config.layers = kLayers;
    return nine::laid_out<Vit>(
        Vit::sized(config), {1, 3, 224, 224}, nine::on_gpu(dtype, 80),
        [](const Vit& m, const Tensor& x) { return std::vector{m(x).logits}; });
  }
  static const LaidOutGraph& vit() {
    static const LaidOutGraph laid = vit_in(f16);
    return laid;
  }
  static constexpr int kLayers = 3;

  TuneSummary tune(TuneOptions options, const FakeGpu::Answer& answer = made_up,
                   std::vector<Measurement> known = {}, const LaidOutGraph& laid = vit()) {
    return tune_with(options, known, laid, [&](const auto& problems, auto) {
      return std::make_unique<FakeGpu>(problems, answer);
    });
  }
  // Whole models take what `time` says.
  TuneSummary tune_timed(TuneOptions options, const TimePlans& time) {
    return tune_with(
        options, {}, vit(),
        [](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, made_up); },
        [&](const Partitions&, auto) { return time; });
  }
  TuneSummary tune_with(TuneOptions options, std::vector<Measurement> known,
                        const LaidOutGraph& laid, const Tuner::MakeMeasurer& make,
                        const Tuner::MakeTimer& make_timer = nullptr) {
    if (options.seconds == TuneOptions().seconds) options.seconds = 0;
    if (options.trials == 0) options.trials = 500;
    Log log(path_);
    std::vector<Measurement> own = read_log(path_).measurements;
    known.insert(known.end(), own.begin(), own.end());
    detail::Target target = h200();
    if (!device_.empty()) target.tuned_as = device_;
    return Tuner(propose_parallel(laid), std::move(target), options,
                 {.first = 3,
                  .slot = 4,
                  .side_by_side = 2,
                  .overlap = overlap_,
                  .ablation = ablation_,
                  .record = record_},
                 known, log, {make, make_timer})
        .run();
  }
  std::vector<Measurement> lines() const { return read_log(path_).measurements; }
  static std::string plan_of(const LaidOutGraph& laid, const std::vector<Measurement>& known) {
    const auto table =
        known.empty() ? nullptr : std::make_shared<const Table>(known, h200().kernels);
    const FusionPlan plan = tuned_fusion(propose_parallel(laid), h200(), table);
    std::string text = detail::plan_text(laid, plan, h200());
    for (const Group& group : plan.groups) text += std::to_string(group.nodes[0]) + group.schedule;
    return text;
  }

  const check::TemporaryFolder folder_;
  const std::string path_ = folder_ / "log.jsonl";
  bool overlap_ = true;
  Ablation ablation_;
  RecordOptions record_;
  std::string device_;  // another name than the data sheet's
};

}  // namespace tensor
