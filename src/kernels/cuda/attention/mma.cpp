#include "src/kernels/cuda/attention/mma.h"

#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/mma.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

class AttentionMmaBuilder {
 public:
  AttentionMmaBuilder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                      AttentionGroup match)
      : laid_(laid),
        group_(group),
        machine_(machine),
        m_(std::move(match)),
        numbers_(machine.any_extent) {}

  Lowered run(const AttentionMmaSchedule* wanted) {
    const AttentionProblem& p = m_.problem;
    const AttentionMmaSchedule s =
        wanted ? *wanted
        : group_.schedule.empty()
            ? attention_mma_schedules(p, machine_).front()
            : attention_mma_schedule_of(attention_mma_space(p, machine_).of(group_.schedule));
    if (const std::string fault = p.fault(s, machine_); !fault.empty())
      internal_error("attention_mma", s.name(), ": ", fault);
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
    std::string what = "attention_mma_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
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

  void add_problem(const AttentionMmaSchedule& s) {
    const auto& p = m_.problem;
    numbers_.text("using Queries = QueryFactor;");
    numbers_.text("using Keys = KeyFactor;");
    numbers_.text("using Values = ValueFactor;");
    numbers_.constant("kDepth", p.depth);
    numbers_.constant("kFeatures", p.features);
    numbers_.text("static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";");
    add_blocks(numbers_, p.queries, p.keys, s.block);
    numbers_.divisor("kTiles", ceil_div(p.queries, s.queries()));
  }

  std::string schedule_text(const AttentionMmaSchedule& s) const {
    const auto& p = m_.problem;
    return "struct Schedule {\n  using Element = " + std::string(device_type(m_.dtype)) + ";\n" +
           constant_text("kWarps", s.warps) + constant_text("kSlabs", s.slabs) +
           constant_text("kBlock", s.block) + flag_text("kWhole", p.keys <= s.block) +
           constant_text("kLeastLeft", least_left(p.keys, s.block, machine_)) +
           constant_text("kStages", s.stages) + flag_text("kIsAsync", machine_.copies_async) +
           flag_text("kKept", keeps_queries(p, s)) + flag_text("kMiddle", m_.has_middle) + "};\n";
  }

  std::string text_of(const AttentionMmaSchedule& s) {
    const auto& p = m_.problem;
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_, numbers_);
    const std::string element(device_type(m_.dtype));
    add_problem(s);
    const ExtentsTexts of_factors = texts_of(factors());
    return "#include \"attention_mma.h\"\nusing namespace tensor::device;\n" + of_factors.structs +
           schedule_text(s) + numbers_.struct_text() + middle_.text + epilogue_.text +
           "using Attention = AttentionMma<Schedule, Problem, Middle, Epilogue>;\n"
           "static_assert(Attention::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Attention::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Attention::kThreads, 1) void KERNEL(\n"
           "    const " +
           element + "* queries, const " + element + "* keys, const " + element + "* values" +
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
        return AttentionMmaBuilder(group.laid, group.group, machine, *m).run(nullptr);
      },
      [=] { return attention_mma_space(m->problem, machine); }};
}

}  // namespace

Lowered lower_attention_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                            const AttentionMmaSchedule& schedule) {
  return AttentionMmaBuilder(laid, group, machine, *match_attention_group(laid.graph, group))
      .run(&schedule);
}

const Family kAttentionMma = {"attention_mma", consider_attention_mma};

}  // namespace tensor::cuda
