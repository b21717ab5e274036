// The text and launch of attention in one kernel, by tiles of queries, on GPUs that load with
// threads: what its ways of multiplying have in common.
#pragma once

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/match.h"
#include "tensor/error.h"

namespace tensor::cuda {

/// Way names the kernel's template (kTemplate, in the file kName.h), and has its Schedule: which
/// one a text tells (schedule_of) or is best (schedules), its struct in the kernel's text (text),
/// how many keys are a block, and how many blocks a multiprocessor should hold (resident).
template <class Way>
class AttentionBuilder {
 public:
  using Schedule = typename Way::Schedule;

  AttentionBuilder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                   AttentionGroup match)
      : laid_(laid),
        group_(group),
        machine_(machine),
        m_(std::move(match)),
        numbers_(machine.any_extent) {}

  Lowered run(const Schedule* wanted) {
    const AttentionProblem& p = m_.problem;
    const Schedule s = wanted                    ? *wanted
                       : group_.schedule.empty() ? Way::schedules(p, machine_).front()
                                                 : Way::schedule_of(p, machine_, group_.schedule);
    if (const std::string fault = p.fault(s, machine_); !fault.empty())
      internal_error(Way::kName, s.name(), ": ", fault);
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
    std::string what =
        std::string(Way::kName) + "_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
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

  void add_problem(const Schedule& s) {
    const auto& p = m_.problem;
    numbers_.text("using Queries = QueryFactor;");
    numbers_.text("using Keys = KeyFactor;");
    numbers_.text("using Values = ValueFactor;");
    numbers_.constant("kDepth", p.depth);
    numbers_.constant("kFeatures", p.features);
    numbers_.text("static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";");
    add_blocks(numbers_, p.queries, p.keys, Way::block(s));
    numbers_.divisor("kTiles", ceil_div(p.queries, s.queries()));
  }

  std::string text_of(const Schedule& s) {
    const auto& p = m_.problem;
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_, numbers_);
    const std::string element(device_type(m_.dtype));
    add_problem(s);
    const ExtentsTexts of_factors = texts_of(factors());
    return "#include \"" + std::string(Way::kName) + ".h\"\nusing namespace tensor::device;\n" +
           of_factors.structs + Way::text(m_, s, machine_) + numbers_.struct_text() + middle_.text +
           epilogue_.text + "using Attention = " + Way::kTemplate +
           "<Schedule, Problem, Middle, Epilogue>;\n"
           "static_assert(Attention::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Attention::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Attention::kThreads, " +
           std::to_string(Way::resident(p, s, machine_)) +
           ") void KERNEL(\n"
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

}  // namespace tensor::cuda
