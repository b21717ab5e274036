#include "src/kernels/cuda/softmax_mma.h"

#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm_mma.h"
#include "src/kernels/cuda/pack_kernel.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

std::int64_t filled(std::int64_t extent) { return round_up(extent, 16); }

bool is_async(const Machine& machine) { return machine.device.capability >= 80; }

// Queries that stay in registers from block to block.
bool keeps_queries(const SoftmaxProblem& p, const SoftmaxSchedule& s) {
  return p.keys > s.block && s.slabs * filled(p.depth) <= 128;
}

struct SoftmaxGroup : ScoresGroup {
  SoftmaxProblem problem;
  Product result;  // the weights and what becomes of them, as a product with the variable `sum`
};

std::optional<SoftmaxGroup> match(const Graph& graph, const Group& group) {
  const auto a = cpu::match_attention_weights(graph, group);
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
  m.result.batches = m.batches, m.result.rows = m.queries, m.result.features = m.keys;
  m.result.elementwise = a->after;
  m.result.code = std::move(*code);
  return m;
}

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine)
      : laid_(laid), group_(group), machine_(machine), m_(*match(laid.graph, group)) {}

  Lowered run(const SoftmaxSchedule* wanted) {
    const SoftmaxProblem& p = m_.problem;
    const SoftmaxSchedule s =
        wanted ? *wanted
        : group_.schedule.empty()
            ? softmax_mma_schedules(p, machine_).front()
            : attention_mma_schedule_of(softmax_mma_space(p, machine_).of(group_.schedule));
    if (const std::string fault = p.fault(s, machine_); !fault.empty())
      internal_error("softmax_mma", s.name(), ": ", fault);
    epilogue_ = epilogue_of(laid_, group_, m_.result, {});
    middle_ = m_.middle_text(laid_, group_);
    queries_ = m_.query_rows(laid_, group_, machine_, lowered_);
    keys_ = m_.key_rows(laid_, group_, machine_, lowered_);
    Call call;
    call.source.text = text_of(s);
    call.launch.grid.x = static_cast<unsigned>(ceil_div(p.queries, s.queries()) * p.batches);
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(p.shared_bytes(s));
    call.launch.overlaps_previous = machine_.device.capability >= 90;
    call.arguments = {queries_.memory, keys_.memory};
    std::string what = "softmax_mma_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
    for (const Epilogue* part : {&middle_, &epilogue_}) {
      call.arguments.insert(call.arguments.end(), part->arguments.begin(), part->arguments.end());
      if (!part->name.empty()) what += "_" + part->name;
    }
    name_kernel(call, machine_, what);
    lowered_.description = description_of(call);
    lowered_.calls.push_back(std::move(call));
    return std::move(lowered_);
  }

 private:
  std::string text_of(const SoftmaxSchedule& s) const {
    const SoftmaxProblem& p = m_.problem;
    const AttentionParameters parameters = attention_parameters(middle_, epilogue_);
    const std::string element(device_type(m_.dtype));
    return "#include \"softmax_mma.h\"\nusing namespace tensor::device;\n" +
           factor_text("QueryFactor", queries_.factor, m_.dtype) +
           factor_text("KeyFactor", keys_.factor, m_.dtype) +
           "struct Schedule {\n  using Element = " + element + ";\n" +
           constant_text("kWarps", s.warps) + constant_text("kSlabs", s.slabs) +
           constant_text("kBlock", s.block) + constant_text("kStages", s.stages) +
           flag_text("kIsAsync", is_async(machine_)) + flag_text("kKept", keeps_queries(p, s)) +
           flag_text("kMiddle", m_.has_middle) + flag_text("kPairs", p.keys % 2 == 0) +
           "};\nstruct Problem {\n  using Queries = QueryFactor;\n  using Keys = KeyFactor;\n" +
           constant_text("kQueries", p.queries) + constant_text("kKeys", p.keys) +
           constant_text("kDepth", p.depth) + constant_text("kBatches", p.batches) +
           "  static constexpr float kScale = " + literal(m_.kernel_scale(), f32) + ";\n};\n" +
           middle_.text + epilogue_.text +
           "using Softmax = SoftmaxMma<Schedule, Problem, Middle, Epilogue>;\n"
           "static_assert(Softmax::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Softmax::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Softmax::kThreads, 1) void KERNEL(\n"
           "    const " +
           element + "* queries, const " + element + "* keys" + parameters.declarations +
           ") {\n  const Middle middle{" + parameters.of_middle + "};\n  const Epilogue epilogue{" +
           parameters.of_epilogue + "};\n  Softmax::run(queries, keys, middle, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  SoftmaxGroup m_;
  Epilogue middle_, epilogue_;
  Source queries_, keys_;
  Lowered lowered_;
};

// nullopt when the family does not take the group, or has no schedule for it.
std::optional<SoftmaxProblem> accepted(const Graph& graph, const Group& group,
                                       const Machine& machine) {
  const auto m = match(graph, group);
  if (!m || multiplier_of(m->dtype, false, machine) != Multiplier::mma) return std::nullopt;
  if (softmax_mma_schedules(m->problem, machine).empty()) return std::nullopt;
  return m->problem;
}

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto p = accepted(graph, group, machine);
  if (!p) return std::nullopt;
  const SoftmaxSchedule best = softmax_mma_schedules(*p, machine).front();
  return machine.launch_us + model_softmax_mma(*p, best, machine).total;
}

std::optional<Space> space(const Graph& graph, const Group& group, const Machine& machine) {
  const auto p = accepted(graph, group, machine);
  return p ? std::optional(softmax_mma_space(*p, machine)) : std::nullopt;
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Builder(laid, group, machine).run(nullptr);
}

}  // namespace

std::int64_t SoftmaxProblem::shared_bytes(const SoftmaxSchedule& s) const {
  constexpr std::int64_t kStaged = 16 * 40 * 4;  // of a warp, as in the kernel
  return attention_tile_bytes(s.queries(), depth) +
         s.stages * attention_tile_bytes(s.block, depth) + s.warps * kStaged;
}

std::string SoftmaxProblem::fault(const SoftmaxSchedule& s, const Machine& machine) const {
  if (std::string fault = s.fault(keys, machine); !fault.empty()) return fault;
  // Scores, and queries that stay. What compiles without spills for every GPU.
  std::int64_t registers = s.slabs * s.block / 2;
  if (keeps_queries(*this, s)) registers += s.slabs * filled(depth) / 4;
  if (registers > (passes(s) == 1 ? 144 : s.slabs > 1 ? 112 : 136)) return "too few registers";
  const std::int64_t needed = shared_bytes(s), most = machine.device.shared_block_bytes;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

std::optional<SoftmaxProblem> softmax_problem(const Graph& graph, const Group& group) {
  const auto m = match(graph, group);
  return m ? std::optional(m->problem) : std::nullopt;
}

double resident_blocks(const SoftmaxProblem& p, const SoftmaxSchedule& s, const Machine& machine) {
  const double queries = static_cast<double>(keeps_queries(p, s) ? filled(p.depth) / 4 : 4);
  const double registers = s.slabs * (s.block / 2. + queries) + 72;
  return resident_blocks(s, registers, p.shared_bytes(s), machine.device);
}

TimeParts model_softmax_mma(const SoftmaxProblem& p, const SoftmaxSchedule& s,
                            const Machine& machine) {
  const DeviceInfo& device = machine.device;
  const double clock_mhz = 0.9e3 * device.clock_ghz, processors = device.multiprocessors;
  const auto a_clock = [&](double tera) { return tera * 1e6 / clock_mhz / processors; };
  const double blocks = static_cast<double>(ceil_div(p.keys, s.block));
  const double work = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  const double resident =
      std::clamp(std::ceil(work / processors), 1.0, resident_blocks(p, s, machine));
  const double rounds = std::ceil(work / (processors * resident));
  // Clocks of a multiprocessor for a block of keys, as in model_attention_mma, but that no results
  // grow and nothing is packed: a score takes 6 operations and an exponential.
  const double width = static_cast<double>(filled(p.depth));
  const double scores = static_cast<double>(s.queries()) * s.block;
  const double simple = a_clock(machine.f32_tflops) / 2;  // operations
  const double multiply = 2 * scores * width / a_clock(mma_tflops(Multiplier::mma, machine));
  const double operands = s.warps * s.block * width * 2 / 128;
  // Barriers, addresses and what lanes of a row tell each other, for each slab four at a time.
  constexpr double kSlab = 100;
  const double others = s.warps * s.slabs * kSlab / 4 +
                        scores * ((6 + p.before.operations) / simple +
                                  1 / a_clock(machine.special_tops) + p.before.read_bytes / 24);
  const double arrival = s.block * width * 2 / (device.capability >= 90 ? 48 : 32);
  // One warp alone has a quarter of the multiprocessor, and waits between the steps.
  const double alone = std::max(1.0, 4.0 / s.warps);
  constexpr double kBetween = 500, kStart = 1500;
  const double chain = kBetween + alone * (std::max(multiply, operands) + others) +
                       (s.stages == 1 && blocks > 1 ? 800 + arrival : 0);
  const double bound =
      resident * std::max({multiply + others / 2, operands + others / 2, others, arrival});
  // Weights go through shared memory, 8 bytes each, and are stored as results of products are.
  const double finish = resident * scores *
                        ((4 + p.after.operations) / simple + 8. / 128 +
                         (p.after.read_bytes + p.after.written_bytes) / 24);
  const double clocks = rounds * (kStart + arrival * resident +
                                  blocks * (p.passes(s) * std::max(chain, bound) + finish));
  const double batches = static_cast<double>(p.batches);
  const double factors = 2 * batches * static_cast<double>((p.queries + p.keys) * p.depth);
  const double results = batches * static_cast<double>(p.queries * p.keys) *
                         (p.before.read_bytes + p.after.read_bytes + p.after.written_bytes);
  const double memory = (factors + results) / machine.memory_gbps / 1e3;
  // Rows that are not made of chunks of 16 bytes are copied by two kernels before.
  const double copies =
      p.depth % kChunk == 0 ? 0 : 2 * machine.launch_us + 2 * moving_us(machine, factors);
  const double all = rounds * blocks * resident / clock_mhz;  // microseconds a clock of a block
  return {std::max(clocks / clock_mhz, memory) + copies, p.passes(s) * all * multiply,
          all * (p.passes(s) * others + finish / resident), memory, p.passes(s) * all * arrival};
}

std::vector<SoftmaxSchedule> softmax_mma_schedules(const SoftmaxProblem& p,
                                                   const Machine& machine) {
  std::vector<SoftmaxSchedule> candidates;
  for (const int limit : {272, 192, 128, 96, 64, 48, 32, 16}) {
    const std::int64_t blocks = ceil_div(p.keys, limit);
    const auto block = static_cast<int>(filled(ceil_div(p.keys, blocks)));
    for (const int stages : {1, 2, 3})
      for (const int warps : {1, 2, 4, 8})
        for (const int slabs : {1, 2}) {
          const SoftmaxSchedule s{warps, slabs, block, stages};
          const bool is_filled = warps * slabs == 1 || 8 * warps * slabs < p.queries + 16;
          if (is_filled && p.fault(s, machine).empty()) candidates.push_back(s);
        }
  }
  return cheapest_first(
      candidates, [&](const SoftmaxSchedule& s) { return model_softmax_mma(p, s, machine).total; });
}

Lowered lower_softmax_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                          const SoftmaxSchedule& schedule) {
  return Builder(laid, group, machine).run(&schedule);
}

const Family kSoftmaxMma = {"softmax_mma", estimate, lower, space};

}  // namespace tensor::cuda
