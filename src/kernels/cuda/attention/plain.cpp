#include "src/kernels/cuda/attention/plain.h"

#include "src/kernels/cuda/attention/builder.h"
#include "src/kernels/cuda/families.h"

namespace tensor::cuda {
namespace {

struct AttentionPlainWay {
  using Schedule = AttentionPlainSchedule;
  static constexpr const char *kName = "attention_plain", *kTemplate = "AttentionPlain";

  static std::vector<Schedule> schedules(const AttentionProblem& p, const Machine& machine) {
    return attention_plain_schedules(p, machine);
  }
  static Schedule schedule_of(const AttentionProblem& p, const Machine& machine,
                              const std::string& text) {
    return attention_plain_schedule_of(attention_plain_space(p, machine).of(text));
  }
  static int block(const Schedule& s) { return s.block(); }
  static std::int64_t resident(const AttentionProblem& p, const Schedule& s,
                               const Machine& machine) {
    return resident_blocks(p, s, machine);
  }
  static std::string text(const AttentionGroup& m, const Schedule& s, const Machine& machine) {
    return "struct Schedule {\n" + constant_text("kWarps", s.warps) +
           constant_text("kRows", s.rows) + constant_text("kSlices", s.slices) +
           constant_text("kKeys", s.keys) + constant_text("kBlock", s.block()) +
           flag_text("kWhole", m.problem.keys <= s.block()) + constant_text("kStages", s.stages) +
           flag_text("kIsAsync", machine.copies_async) + flag_text("kMiddle", m.has_middle) +
           "};\n";
  }
};

std::optional<Implementation> consider_attention_plain(const Isolated& alone,
                                                       const Machine& machine) {
  const auto m = match_attention_group(alone.laid.graph, alone.group);
  if (!m || m->dtype != f32) return std::nullopt;
  const auto schedules = attention_plain_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return Implementation{
      machine.launch_us + model_attention_plain(m->problem, schedules.front(), machine).total,
      [=](const Isolated& group) {
        return AttentionBuilder<AttentionPlainWay>(group.laid, group.group, machine, *m)
            .run(nullptr);
      },
      [=] { return attention_plain_space(m->problem, machine); }};
}

}  // namespace

Lowered lower_attention_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                              const AttentionPlainSchedule& schedule) {
  return AttentionBuilder<AttentionPlainWay>(laid, group, machine,
                                             *match_attention_group(laid.graph, group))
      .run(&schedule);
}

const Family kAttentionPlain = {"attention_plain", consider_attention_plain};

}  // namespace tensor::cuda
