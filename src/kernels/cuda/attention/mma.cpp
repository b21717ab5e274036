#include "src/kernels/cuda/attention/mma.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/cuda/attention/builder.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/mma.h"

namespace tensor::cuda {
namespace {

struct AttentionMmaWay {
  using Schedule = AttentionMmaSchedule;
  static constexpr const char *kName = "attention_mma", *kTemplate = "AttentionMma";

  static std::vector<Schedule> schedules(const AttentionProblem& p, const Machine& machine) {
    return attention_mma_schedules(p, machine);
  }
  static Schedule schedule_of(const AttentionProblem& p, const Machine& machine,
                              const std::string& text) {
    return attention_mma_schedule_of(attention_mma_space(p, machine).of(text));
  }
  static int block(const Schedule& s) { return s.block; }
  static std::int64_t resident(const AttentionProblem&, const Schedule&, const Machine&) {
    return 1;
  }
  static std::string text(const AttentionGroup& m, const Schedule& s, const Machine& machine) {
    const auto& p = m.problem;
    return "struct Schedule {\n  using Element = " + std::string(device_type(m.dtype)) + ";\n" +
           constant_text("kWarps", s.warps) + constant_text("kSlabs", s.slabs) +
           constant_text("kBlock", s.block) + flag_text("kWhole", p.keys <= s.block) +
           constant_text("kLeastLeft", least_left(p.keys, s.block, machine)) +
           constant_text("kStages", s.stages) + flag_text("kIsAsync", machine.copies_async) +
           flag_text("kKept", keeps_queries(p, s)) + flag_text("kMiddle", m.has_middle) + "};\n";
  }
};

std::optional<Implementation> consider_attention_mma(const Isolated& alone,
                                                     const Machine& machine) {
  if (machine.has_wgmma) return std::nullopt;
  const auto m = match_attention_group(alone.laid.graph, alone.group);
  if (!m || multiplier_of(m->dtype, false, machine) != Multiplier::mma) return std::nullopt;
  const auto schedules = attention_mma_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return Implementation{
      machine.launch_us + model_attention_mma(m->problem, schedules.front(), machine).total,
      [=](const Isolated& group) {
        return AttentionBuilder<AttentionMmaWay>(group.laid, group.group, machine, *m).run(nullptr);
      },
      [=] { return attention_mma_space(m->problem, machine); }};
}

}  // namespace

Lowered lower_attention_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                            const AttentionMmaSchedule& schedule) {
  return AttentionBuilder<AttentionMmaWay>(laid, group, machine,
                                           *match_attention_group(laid.graph, group))
      .run(&schedule);
}

const Family kAttentionMma = {"attention_mma", consider_attention_mma};

}  // namespace tensor::cuda
