#include "src/kernels/cuda/attention/sm90.h"

#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/wgmma.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

class AttentionSm90Builder {
 public:
  AttentionSm90Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                       AttentionGroup match)
      : laid_(laid),
        group_(group),
        machine_(machine),
        m_(std::move(match)),
        numbers_(machine.any_extent) {}

  Lowered run(const AttentionSchedule* wanted) {
    AttentionProblem& p = m_.problem;
    const Product result = m_.result();
    int staged = boxed_write(laid_, group_, result);
    p.staged = staged >= 0;
    const AttentionSchedule schedule =
        wanted ? *wanted
        : group_.schedule.empty()
            ? attention_sm90_schedules(p, machine_).front()
            : attention_schedule_of(attention_sm90_space(p, machine_).of(group_.schedule));
    if (const std::string fault = p.fault(schedule, machine_.device.shared_block_bytes);
        !fault.empty())
      internal_error("attention_sm90", schedule.name(), ": ", fault);
    if (schedule.parts > 1) p.staged = false, staged = -1;  // what is joined is stored by threads
    epilogue_ = epilogue_of(laid_, group_, result, {.write = staged}, numbers_);
    middle_ = m_.middle_text(laid_, group_, numbers_);
    queries_ = m_.query_rows(laid_, group_, machine_, lowered_);
    keys_ = m_.key_rows(laid_, group_, machine_, lowered_);
    values_ = m_.value_rows(laid_, group_, machine_, lowered_);
    results_ = queries_;
    if (p.staged)
      results_ = {rows_of_features(laid_, m_.attended, result)->settled(),
                  {Pointer::Base::operand, static_cast<int>(group_.reads.size()), 0}};
    add_kernel(schedule);
    return std::move(lowered_);
  }

 private:
  void add_kernel(const AttentionSchedule& s) {
    const AttentionProblem& p = m_.problem;
    const DType output = p.staged ? laid_.graph.type(m_.attended).dtype : m_.dtype;
    Call call;
    call.source.text = text_of(s, output);
    const std::int64_t tiles = ceil_div(p.queries, 64);
    const std::int64_t work = ceil_div(tiles, s.tiles) * p.batches;
    call.launch.grid.x = static_cast<unsigned>(
        s.parts > 1 ? work * s.parts
                    : std::min<std::int64_t>(
                          work, machine_.device.multiprocessors * p.resident(s, machine_.device)));
    call.launch.cluster = static_cast<unsigned>(s.parts);
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(p.shared_bytes(s));
    call.launch.overlaps_previous = true;
    call.arguments = {queries_.map(m_.dtype, 64), keys_.map(m_.dtype, half_of(s)),
                      values_.map(m_.dtype, half_of(s)), results_.map(output, 64)};
    for (const Epilogue* part : {&middle_, &epilogue_})
      call.arguments.insert(call.arguments.end(), part->arguments.begin(), part->arguments.end());
    numbers_.add_argument(call.arguments);
    std::string what = "attention_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
    if (!middle_.name.empty()) what += "_" + middle_.name;
    name_kernel(call, machine_, what);
    lowered_.description = description_of(call);
    lowered_.calls.push_back(std::move(call));
  }

  // Boxes have 256 rows at most.
  static int half_of(const AttentionSchedule& s) { return s.block > 256 ? s.block / 2 : s.block; }

  void add_problem(const AttentionSchedule& s) {
    const AttentionProblem& p = m_.problem;
    const std::int64_t units = ceil_div(p.queries, 64 * s.tiles);
    numbers_.constant("kDepth", p.depth);
    numbers_.constant("kFeatures", p.features);
    numbers_.text("static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";");
    add_blocks(numbers_, p.queries, p.keys, s.block);
    numbers_.divisor("kUnitsOfBatch", units);
    numbers_.number("kWork", units * p.batches);
    queries_.add_corner(numbers_, "queries");
    keys_.add_corner(numbers_, "keys");
    values_.add_corner(numbers_, "values");
    results_.add_corner(numbers_, "results");
  }

  std::string text_of(const AttentionSchedule& s, DType output) {
    const AttentionProblem& p = m_.problem;
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_, numbers_);
    const auto first = static_cast<int>(std::min<std::int64_t>(p.features, 64));
    const int rest = p.features > 64 ? static_cast<int>(p.features) - 64 : 8;
    add_problem(s);
    return "#include \"attention_sm90.h\"\nusing namespace tensor::device;\nstruct Schedule {\n"
           "  using Element = " +
           std::string(device_type(m_.dtype)) +
           ";\n  using Output = " + std::string(device_type(output)) + ";\n" +
           constant_text("kGroups", s.groups) + constant_text("kTiles", s.tiles) +
           constant_text("kBlock", s.block) + flag_text("kWhole", p.keys <= s.block) +
           constant_text("kLeastLeft", least_left(p.keys, s.block, machine_)) +
           constant_text("kHalves", s.block / half_of(s)) + constant_text("kStages", s.stages) +
           constant_text("kParts", s.parts) + flag_text("kMiddle", m_.has_middle) +
           flag_text("kStaged", p.staged) + "};\n" + numbers_.struct_text() +
           wgmma_text("Scores", {half_of(s), m_.dtype}) +
           wgmma_text("Values", {first, m_.dtype, true, false, true}) +
           wgmma_text("ValuesRest", {rest, m_.dtype, true, false, true}) + middle_.text +
           epilogue_.text +
           "using Attention = AttentionSm90<Schedule, Problem, Scores, Values, ValuesRest, Middle, "
           "Epilogue>;\nstatic_assert(Attention::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Attention::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Attention::kThreads, " +
           std::to_string(p.resident(s, machine_.device)) +
           ") void KERNEL(\n"
           "    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap "
           "keys,\n    const __grid_constant__ TensorMap values, const __grid_constant__ "
           "TensorMap results" +
           parameters.declarations + numbers_.last_parameter() + ") {\n" + numbers_.object_text() +
           parameters.objects +
           "  Attention::run(problem, queries, keys, values, results, middle, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  AttentionGroup m_;
  Extents numbers_;
  Epilogue middle_, epilogue_;
  Source queries_, keys_, values_, results_;
  Lowered lowered_;
};

std::optional<Implementation> consider_attention_sm90(const Isolated& alone,
                                                      const Machine& machine) {
  if (!machine.has_wgmma) return std::nullopt;
  const auto m = match_attention_group(alone.laid.graph, alone.group);
  if (!m || m->dtype == f32) return std::nullopt;
  const auto schedules = attention_sm90_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return Implementation{
      machine.launch_us + model_attention_sm90(m->problem, schedules.front(), machine).total,
      [=](const Isolated& group) {
        return AttentionSm90Builder(group.laid, group.group, machine, *m).run(nullptr);
      },
      [=] { return attention_sm90_space(m->problem, machine); }};
}

}  // namespace

Lowered lower_attention_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                             const AttentionSchedule& schedule) {
  return AttentionSm90Builder(laid, group, machine, *match_attention_group(laid.graph, group))
      .run(&schedule);
}

const Family kAttentionSm90 = {"attention_sm90", consider_attention_sm90};

}  // namespace tensor::cuda
