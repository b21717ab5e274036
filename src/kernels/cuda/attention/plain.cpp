#include "src/kernels/cuda/attention/plain.h"

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

class AttentionPlainBuilder {
 public:
  AttentionPlainBuilder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                        AttentionGroup match)
      : laid_(laid),
        group_(group),
        machine_(machine),
        m_(std::move(match)),
        numbers_(machine.any_extent) {}

  Lowered run(const AttentionPlainSchedule* wanted) {
    const AttentionProblem& p = m_.problem;
    const AttentionPlainSchedule s =
        wanted ? *wanted
        : group_.schedule.empty()
            ? attention_plain_schedules(p, machine_).front()
            : attention_plain_schedule_of(attention_plain_space(p, machine_).of(group_.schedule));
    if (const std::string fault = p.fault(s, machine_); !fault.empty())
      internal_error("attention_plain", s.name(), ": ", fault);
    epilogue_ = epilogue_of(laid_, group_, m_.result(), {}, numbers_);
    middle_ = m_.middle_text(laid_, group_, numbers_);
    queries_ = m_.query_rows(laid_, group_, machine_, lowered_);
    keys_ = m_.key_rows(laid_, group_, machine_, lowered_);
    values_ = m_.value_rows(laid_, group_, machine_, lowered_);
    Call call;
    call.source.text = text_of(s);
    call.launch.grid.x = static_cast<unsigned>(ceil_div(p.queries, s.queries()) * p.batches);
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(p.shared_bytes(s));
    call.launch.overlaps_previous = machine_.overlaps_launches;
    call.arguments = {queries_.memory, keys_.memory, values_.memory};
    for (const Epilogue* part : {&middle_, &epilogue_})
      call.arguments.insert(call.arguments.end(), part->arguments.begin(), part->arguments.end());
    numbers_.add_argument(call.arguments);
    for (const Extents& numbers : factors()) numbers.add_argument(call.arguments);
    std::string what = "attention_plain_f32_f32_" + s.name();
    if (!middle_.name.empty()) what += "_" + middle_.name;
    name_kernel(call, machine_, what);
    lowered_.description = description_of(call);
    lowered_.calls.push_back(std::move(call));
    return std::move(lowered_);
  }

 private:
  Extents factor(const Source& source, const char* type, const char* object) const {
    return factor_numbers(source.factor, m_.dtype, machine_.any_extent, type, object);
  }
  // They come in the order of the kernel's parameters.
  std::vector<Extents> factors() const {
    return {factor(queries_, "QueryFactor", "query_factor"),
            factor(keys_, "KeyFactor", "key_factor"),
            factor(values_, "ValueFactor", "value_factor")};
  }

  void add_problem(const AttentionPlainSchedule& s) {
    const auto& p = m_.problem;
    numbers_.text("using Queries = QueryFactor;");
    numbers_.text("using Keys = KeyFactor;");
    numbers_.text("using Values = ValueFactor;");
    numbers_.constant("kDepth", p.depth);
    numbers_.constant("kFeatures", p.features);
    numbers_.text("static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";");
    add_blocks(numbers_, p.queries, p.keys, s.block());
    numbers_.divisor("kTiles", ceil_div(p.queries, s.queries()));
  }

  std::string schedule_text(const AttentionPlainSchedule& s) const {
    return "struct Schedule {\n" + constant_text("kWarps", s.warps) +
           constant_text("kRows", s.rows) + constant_text("kSlices", s.slices) +
           constant_text("kKeys", s.keys) + constant_text("kBlock", s.block()) +
           flag_text("kWhole", m_.problem.keys <= s.block()) + constant_text("kStages", s.stages) +
           flag_text("kIsAsync", machine_.copies_async) + flag_text("kMiddle", m_.has_middle) +
           "};\n";
  }

  std::string text_of(const AttentionPlainSchedule& s) {
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_, numbers_);
    add_problem(s);
    const ExtentsTexts of_factors = texts_of(factors());
    return "#include \"attention_plain.h\"\nusing namespace tensor::device;\n" +
           of_factors.structs + schedule_text(s) + numbers_.struct_text() + middle_.text +
           epilogue_.text +
           "using Attention = AttentionPlain<Schedule, Problem, Middle, Epilogue>;\n"
           "static_assert(Attention::kSharedBytes == " +
           std::to_string(m_.problem.shared_bytes(s)) +
           " && Attention::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Attention::kThreads, " +
           std::to_string(resident_blocks(m_.problem, s, machine_)) +
           ") void KERNEL(\n"
           "    const float* queries, const float* keys, const float* values" +
           parameters.declarations + numbers_.last_parameter() + of_factors.parameters + ") {\n" +
           numbers_.object_text() + of_factors.objects + parameters.objects +
           "  Attention::run(problem, {query_factor, queries}, {key_factor, keys}, "
           "{value_factor, values}, middle, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  AttentionGroup m_;
  Extents numbers_;
  Epilogue middle_, epilogue_;
  Source queries_, keys_, values_;
  Lowered lowered_;
};

// Where factors may be rounded to tf32 it is exact all the same, if it is faster so.
std::optional<Implementation> consider_attention_plain(const Isolated& alone,
                                                       const Machine& machine) {
  const auto m = match_attention_group(alone.laid.graph, alone.group);
  if (!m || m->dtype != f32) return std::nullopt;
  const auto schedules = attention_plain_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return Implementation{
      machine.launch_us + model_attention_plain(m->problem, schedules.front(), machine).total,
      [=](const Isolated& group) {
        return AttentionPlainBuilder(group.laid, group.group, machine, *m).run(nullptr);
      },
      [=] { return attention_plain_space(m->problem, machine); }};
}

}  // namespace

Lowered lower_attention_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                              const AttentionPlainSchedule& schedule) {
  return AttentionPlainBuilder(laid, group, machine, *match_attention_group(laid.graph, group))
      .run(&schedule);
}

const Family kAttentionPlain = {"attention_plain", consider_attention_plain};

}  // namespace tensor::cuda
