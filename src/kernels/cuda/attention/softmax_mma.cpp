#include "src/kernels/cuda/attention/softmax_mma.h"

#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/mma.h"
#include "src/kernels/cuda/generated/pack_kernel.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

struct SoftmaxGroup : ScoresGroup {
  SoftmaxProblem problem;
  Product result;  // the weights and what becomes of them, as a product with the variable `sum`
};

std::optional<SoftmaxGroup> match(const Graph& graph, const Group& group) {
  const auto a = match_attention_weights(graph, group);
  if (!a) return std::nullopt;
  // Constants, the weights of a dense layer, are packed by families of products.
  if (graph.is_constant(root_of(graph, a->q)) || graph.is_constant(root_of(graph, a->k)))
    return std::nullopt;
  auto scores = scores_group(graph, *a);
  if (!scores) return std::nullopt;
  auto code = element_code(graph, a->after, {{a->weights, "sum"}});
  if (!code) return std::nullopt;
  const std::int64_t elements = scores->batches * scores->queries * scores->keys;
  for (const ValueId id : group.writes)
    if (num_elements(graph.type(id).shape) != elements) return std::nullopt;
  for (const auto& load : code->loads)
    if (num_elements(load.as) != elements) return std::nullopt;
  SoftmaxGroup m{std::move(*scores), {}, {}};
  m.problem = {m.batches,
               m.queries,
               m.keys,
               m.depth,
               epilogue_work(graph, {}, m.middle, m.nodes, elements),
               epilogue_work(graph, group, *code, a->after, elements)};
  m.problem.before.operations = m.operations();
  m.result.batches = m.batches, m.result.m = m.queries, m.result.n = m.keys;
  m.result.elementwise = a->after;
  m.result.code = std::move(*code);
  return m;
}

class SoftmaxMmaBuilder {
 public:
  SoftmaxMmaBuilder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                    SoftmaxGroup match)
      : laid_(laid),
        group_(group),
        machine_(machine),
        m_(std::move(match)),
        numbers_(machine.any_extent) {}

  Lowered run(const SoftmaxSchedule* wanted) {
    const SoftmaxProblem& p = m_.problem;
    const SoftmaxSchedule s =
        wanted ? *wanted
        : group_.schedule.empty()
            ? softmax_mma_schedules(p, machine_).front()
            : attention_mma_schedule_of(softmax_mma_space(p, machine_).of(group_.schedule));
    if (const std::string fault = p.fault(s, machine_); !fault.empty())
      internal_error("softmax_mma", s.name(), ": ", fault);
    epilogue_ = epilogue_of(laid_, group_, m_.result, {}, numbers_);
    middle_ = m_.middle_text(laid_, group_, numbers_);
    queries_ = m_.query_rows(laid_, group_, machine_, lowered_);
    keys_ = m_.key_rows(laid_, group_, machine_, lowered_);
    Call call;
    call.source.text = text_of(s);
    call.launch.grid.x = static_cast<unsigned>(ceil_div(p.queries, s.queries()) * p.batches);
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(p.shared_bytes(s));
    call.launch.overlaps_previous = machine_.overlaps_launches;
    call.arguments = {queries_.memory, keys_.memory};
    std::string what = "softmax_mma_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
    for (const Epilogue* part : {&middle_, &epilogue_}) {
      call.arguments.insert(call.arguments.end(), part->arguments.begin(), part->arguments.end());
      if (!part->name.empty()) what += "_" + part->name;
    }
    numbers_.add_argument(call.arguments);
    for (const Extents& numbers : factors()) numbers.add_argument(call.arguments);
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
            factor(keys_, "KeyFactor", "key_factor")};
  }

  void add_problem(const SoftmaxSchedule& s) {
    const auto& p = m_.problem;
    numbers_.text("using Queries = QueryFactor;");
    numbers_.text("using Keys = KeyFactor;");
    numbers_.constant("kDepth", p.depth);
    numbers_.flag("kWholeQueries", !machine_.any_extent && p.queries % s.queries() == 0);
    numbers_.flag("kWholeKeys", !machine_.any_extent && p.keys % s.block == 0);
    numbers_.number("kKeys", p.keys);
    numbers_.text("static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";");
    add_blocks(numbers_, p.queries, p.keys, s.block);
    numbers_.divisor("kTiles", ceil_div(p.queries, s.queries()));
  }

  std::string schedule_text(const SoftmaxSchedule& s) const {
    const auto& p = m_.problem;
    return "struct Schedule {\n  using Element = " + std::string(device_type(m_.dtype)) + ";\n" +
           constant_text("kWarps", s.warps) + constant_text("kSlabs", s.slabs) +
           constant_text("kBlock", s.block) + flag_text("kWhole", p.keys <= s.block) +
           constant_text("kLeastLeft", least_left(p.keys, s.block, machine_)) +
           constant_text("kStages", s.stages) + flag_text("kIsAsync", machine_.copies_async) +
           flag_text("kKept", keeps_queries(p, s)) + flag_text("kMiddle", m_.has_middle) +
           flag_text("kPairs", p.keys % 2 == 0) + "};\n";
  }

  std::string text_of(const SoftmaxSchedule& s) {
    const auto& p = m_.problem;
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_, numbers_);
    const std::string element(device_type(m_.dtype));
    add_problem(s);
    const ExtentsTexts of_factors = texts_of(factors());
    return "#include \"softmax_mma.h\"\nusing namespace tensor::device;\n" + of_factors.structs +
           schedule_text(s) + numbers_.struct_text() + middle_.text + epilogue_.text +
           "using Softmax = SoftmaxMma<Schedule, Problem, Middle, Epilogue>;\n"
           "static_assert(Softmax::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Softmax::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Softmax::kThreads, 1) void KERNEL(\n"
           "    const " +
           element + "* queries, const " + element + "* keys" + parameters.declarations +
           numbers_.last_parameter() + of_factors.parameters + ") {\n" + numbers_.object_text() +
           of_factors.objects + parameters.objects +
           "  Softmax::run(problem, {query_factor, queries}, {key_factor, keys}, "
           "middle, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  SoftmaxGroup m_;
  Extents numbers_;
  Epilogue middle_, epilogue_;
  Source queries_, keys_;
  Lowered lowered_;
};

std::optional<Implementation> consider_softmax_mma(const Isolated& alone, const Machine& machine) {
  const auto m = match(alone.laid.graph, alone.group);
  if (!m || multiplier_of(m->dtype, false, machine) != Multiplier::mma) return std::nullopt;
  const auto schedules = softmax_mma_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return Implementation{
      machine.launch_us + model_softmax_mma(m->problem, schedules.front(), machine).total,
      [=](const Isolated& group) {
        return SoftmaxMmaBuilder(group.laid, group.group, machine, *m).run(nullptr);
      },
      [=] { return softmax_mma_space(m->problem, machine); }};
}

}  // namespace

std::optional<SoftmaxProblem> softmax_problem(const Graph& graph, const Group& group) {
  const auto m = match(graph, group);
  return m ? std::optional(m->problem) : std::nullopt;
}

Lowered lower_softmax_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                          const SoftmaxSchedule& schedule) {
  return SoftmaxMmaBuilder(laid, group, machine, *match(laid.graph, group)).run(&schedule);
}

const Family kSoftmaxMma = {"softmax_mma", consider_softmax_mma};

}  // namespace tensor::cuda
