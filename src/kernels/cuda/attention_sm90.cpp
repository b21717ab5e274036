#include "src/kernels/cuda/attention_sm90.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/cpu/attention_match.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/product.h"
#include "src/kernels/cuda/wgmma.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kMostColumns = 128;  // of queries, keys and values

struct Match {
  cpu::Attention attention;
  AttentionProblem problem;
  Shape batch;
  DType dtype = f16;
  bool has_middle = false;  // or a scale that is not above 0
  ElementCode middle;
};

std::optional<Match> accepted(const Graph& graph, const Group& group) {
  const auto a = cpu::match_attention(graph, group);
  if (!a) return std::nullopt;
  Match m{*a, {}, graph.type(a->result).shape, graph.type(a->q).dtype, false, {}};
  if (m.dtype != f16 && m.dtype != bf16) return std::nullopt;
  if (graph.type(a->k).dtype != m.dtype || graph.type(a->v).dtype != m.dtype) return std::nullopt;
  AttentionProblem& p = m.problem;
  const int rank = m.batch.rank();
  p.features = m.batch[rank - 1];
  p.queries = m.batch[rank - 2];
  m.batch.erase(rank - 1);
  m.batch.erase(rank - 2);
  p.batches = num_elements(m.batch);
  p.keys = graph.type(a->scores).shape.back();
  p.depth = graph.type(a->q).shape.back();
  if (p.depth > kMostColumns || p.features > kMostColumns || p.features % 8 != 0)
    return std::nullopt;
  if (p.batches * p.queries * std::max(p.keys, p.features) > INT32_MAX) return std::nullopt;
  m.has_middle = !a->middle.nodes.empty() || !(a->scale > 0);
  if (a->middle.nodes.empty()) {
    m.middle.results[a->scores] = "sum";
  } else {
    auto code = element_code(graph, a->middle.nodes, {{a->scores, "sum"}});
    if (!code) return std::nullopt;
    for (const auto& load : code->loads)
      if (num_elements(load.as) != p.batches * p.queries * p.keys) return std::nullopt;
    m.middle = std::move(*code);
    p.operations = 2 * static_cast<double>(a->middle.nodes.size());
  }
  p.staged = item_size(graph.type(a->result).dtype) == 2;
  return m;
}

std::string number(const char* name, std::int64_t value) {
  return std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
}
std::string flag(const char* name, bool value) {
  return std::string("  static constexpr bool ") + name + " = " + (value ? "true" : "false") +
         ";\n";
}

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine, Match match)
      : laid_(laid), group_(group), machine_(machine), m_(std::move(match)) {}

  Lowered run(const AttentionSchedule* wanted) {
    AttentionProblem& p = m_.problem;
    const Product result = seen_as(p.features, {{m_.attention.result, "sum"}}, {});
    const int staged = boxed_write(laid_, group_, result);
    p.staged = staged >= 0;
    const AttentionSchedule schedule =
        wanted ? *wanted : attention_sm90_schedules(p, machine_).front();
    if (const std::string fault = p.fault(schedule, machine_.device.shared_block_bytes);
        !fault.empty())
      internal_error("attention_sm90", schedule.name(), ": ", fault);
    epilogue_ = epilogue_of(laid_, group_, result, staged);
    middle_ = middle_text();
    queries_ = source(m_.attention.q, false);
    keys_ = source(m_.attention.k, true);
    values_ = source(m_.attention.v, false);
    results_ = queries_;
    if (p.staged)
      results_ = {rows_of_features(laid_, m_.attention.result, result)->settled(),
                  {Pointer::Base::operand, static_cast<int>(group_.reads.size()), 0}};
    add_kernel(schedule);
    return std::move(lowered_);
  }

 private:
  // The result, or the scores, as those of a product.
  Product seen_as(std::int64_t columns, std::map<ValueId, std::string> results,
                  std::vector<ValueId> nodes) const {
    Product product;
    product.elementwise = std::move(nodes);
    product.code.results = std::move(results);
    product.batches = m_.problem.batches;
    product.rows = m_.problem.queries;
    product.features = columns;
    return product;
  }

  Epilogue middle_text() const {
    const cpu::Attention& a = m_.attention;
    Product scores = seen_as(m_.problem.keys, {}, a.middle.nodes);
    scores.code = m_.middle;
    Group group = group_;
    group.writes = {a.middle.nodes.empty() ? a.scores : a.middle.nodes.back()};
    return epilogue_of(laid_, group, scores, 0, "Middle");
  }

  Source source(ValueId id, bool is_turned) {
    const auto& reads = group_.reads;
    const Pointer memory{
        Pointer::Base::operand,
        static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin()), 0};
    const Factor f =
        Factor::of(laid_.layouts[static_cast<std::size_t>(id)], id, m_.batch, is_turned).settled();
    if (f.fits_boxes()) return {f, memory};
    return copied(f, memory, m_.problem.batches, m_.dtype, machine_, lowered_);
  }

  void add_kernel(const AttentionSchedule& s) {
    const AttentionProblem& p = m_.problem;
    const DType output = p.staged ? laid_.graph.type(m_.attention.result).dtype : m_.dtype;
    Call call;
    call.source.text = text_of(s, output);
    const std::int64_t tiles = (p.queries + 63) / 64;
    const std::int64_t work = (tiles + s.tiles - 1) / s.tiles * p.batches;
    const bool two_fit =
        s.groups == 1 && 2 * (p.shared_bytes(s) + 2048) <= machine_.device.shared_bytes;
    call.launch.grid.x = static_cast<unsigned>(
        std::min<std::int64_t>(work, machine_.device.multiprocessors * (two_fit ? 2 : 1)));
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(p.shared_bytes(s));
    call.launch.overlaps_previous = true;
    call.arguments = {queries_.map(m_.dtype, 64), keys_.map(m_.dtype, half_of(s)),
                      values_.map(m_.dtype, half_of(s)), results_.map(output, 64)};
    for (const Epilogue* part : {&middle_, &epilogue_})
      call.arguments.insert(call.arguments.end(), part->arguments.begin(), part->arguments.end());
    std::string what = "attention_" + std::string(name(m_.dtype)) + "_f32_" + s.name();
    if (!middle_.name.empty()) what += "_" + middle_.name;
    name_kernel(call, machine_, what);
    lowered_.description = call.entry.substr(0, call.entry.find("__"));
    lowered_.calls.push_back(std::move(call));
  }

  // Boxes have 256 rows at most.
  static int half_of(const AttentionSchedule& s) { return s.block > 256 ? s.block / 2 : s.block; }

  std::string text_of(const AttentionSchedule& s, DType output) const {
    const AttentionProblem& p = m_.problem;
    std::string parameters;
    const auto members = [&](const Epilogue& part, const std::string& prefix) {
      std::string names;
      for (const std::string& parameter : part.parameters) {
        const std::size_t space = parameter.rfind(' ') + 1;
        const std::string name = prefix + parameter.substr(space);
        parameters += ",\n    " + parameter.substr(0, space) + name;
        names += (names.empty() ? "" : ", ") + name;
      }
      return names;
    };
    const std::string of_middle = members(middle_, "middle_"),
                      of_epilogue = members(epilogue_, "result_");
    const auto first = static_cast<int>(std::min<std::int64_t>(p.features, 64));
    const int rest = p.features > 64 ? static_cast<int>(p.features) - 64 : 8;
    // Scores are multiplied by the scale, and by log2(e) for powers of two.
    const double scale = m_.attention.scale * (m_.has_middle ? 1 : std::log2(std::exp(1.0)));
    return "#include \"attention_sm90.h\"\nusing namespace tensor::device;\nstruct Schedule {\n"
           "  using Element = " +
           std::string(device_type(m_.dtype)) +
           ";\n  using Output = " + std::string(device_type(output)) + ";\n" +
           number("kGroups", s.groups) + number("kTiles", s.tiles) + number("kBlock", s.block) +
           number("kHalves", s.block / half_of(s)) + number("kStages", s.stages) +
           flag("kMiddle", m_.has_middle) + flag("kStaged", p.staged) + "};\nstruct Problem {\n" +
           number("kQueries", p.queries) + number("kKeys", p.keys) + number("kDepth", p.depth) +
           number("kFeatures", p.features) + number("kBatches", p.batches) +
           "  static constexpr float kScale = " + literal(scale, f32) + ";\n" +
           queries_.corner_text("queries") + keys_.corner_text("keys") +
           values_.corner_text("values") + results_.corner_text("results") + "};\n" +
           wgmma_text("Scores", {half_of(s), m_.dtype}) +
           wgmma_text("Values", {first, m_.dtype, true, false, true}) +
           wgmma_text("ValuesRest", {rest, m_.dtype, true, false, true}) + middle_.text +
           epilogue_.text +
           "using Attention = AttentionSm90<Schedule, Problem, Scores, Values, ValuesRest, Middle, "
           "Epilogue>;\nstatic_assert(Attention::kSharedBytes == " +
           std::to_string(p.shared_bytes(s)) +
           " && Attention::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Attention::kThreads, 1) void KERNEL(\n"
           "    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap "
           "keys,\n    const __grid_constant__ TensorMap values, const __grid_constant__ "
           "TensorMap results" +
           parameters + ") {\n  const Middle middle{" + of_middle +
           "};\n  const Epilogue epilogue{" + of_epilogue +
           "};\n  Attention::run(queries, keys, values, results, middle, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  Match m_;
  Epilogue middle_, epilogue_;
  Source queries_, keys_, values_, results_;
  Lowered lowered_;
};

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  if (machine.device.capability != 90) return std::nullopt;
  const auto m = accepted(graph, group);
  if (!m) return std::nullopt;
  const auto schedules = attention_sm90_schedules(m->problem, machine);
  if (schedules.empty()) return std::nullopt;
  return machine.launch_us + model_attention_sm90(m->problem, schedules.front(), machine);
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Builder(laid, group, machine, *accepted(laid.graph, group)).run(nullptr);
}

std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

std::string AttentionSchedule::name() const {
  return std::to_string(64 * tiles) + "x" + std::to_string(block) + "_s" + std::to_string(stages) +
         (groups > 1 ? "_g" + std::to_string(groups) : "");
}

std::int64_t AttentionProblem::shared_bytes(const AttentionSchedule& s) const {
  const std::int64_t depth_panels = tiles_of(depth, 64), feature_panels = tiles_of(features, 64);
  return 128 * (64 * s.groups * (depth_panels + (staged ? feature_panels : 0)) +
                std::int64_t{s.stages} * s.block * (depth_panels + feature_panels));
}

std::string AttentionProblem::fault(const AttentionSchedule& s, std::int64_t most) const {
  if (s.groups < 1 || s.groups > 3 || s.tiles < s.groups) return "groups from 1 to 3, each a tile";
  if (s.block % 16 != 0 || s.block < 16 || s.block > 272) return "blocks of 16 to 272 keys";
  if (keys > s.block && s.tiles != s.groups) return "keys in several blocks are seen by each once";
  // Sums of the scores, whose registers their exponentials take over, and of the results, which one
  // block alone does not have yet.
  const std::int64_t registers = s.block / 2 + (keys > s.block ? features / 2 : 0);
  if (registers > (s.groups == 3 ? 80 : 180)) return "too few registers";
  if (s.stages < 1) return "at least one stage";
  const std::int64_t needed = shared_bytes(s) + 1024;
  if (needed > most)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(most);
  return {};
}

double model_attention_sm90(const AttentionProblem& p, const AttentionSchedule& s,
                            const Machine& machine) {
  const double clock_mhz = 0.9e3 * machine.device.clock_ghz;
  const auto blocks = static_cast<double>(tiles_of(p.keys, s.block));
  const double scores = 64.0 * s.block;  // of a tile and a block
  // Clocks of one multiprocessor for a block (measured on an H200): wgmma multiplies 2,048 pairs of
  // numbers a clock, beside which some 12 operations a score run, 128 a clock.
  const double multiply = scores *
                          (static_cast<double>(tiles_of(p.depth, 16) * 16) +
                           std::max(32.0, static_cast<double>(p.features))) /
                          2048;
  const double others = scores * (12 + p.operations) / 128;
  // One after the other, with what passes between them; of several groups in part side by side.
  constexpr double kBetween = 550, kFinish = 300;
  const double chain = kFinish + blocks * (kBetween + multiply + others);
  const double bound = blocks * (50 + others + multiply / 2);
  const std::int64_t work = tiles_of(tiles_of(p.queries, 64), s.tiles) * p.batches;
  const std::int64_t processors = machine.device.multiprocessors;
  const bool two_fit =
      s.groups == 1 && 2 * (p.shared_bytes(s) + 2048) <= machine.device.shared_bytes;
  const double resident = two_fit && work > processors ? 2 : 1;
  const double rounds = static_cast<double>(tiles_of(work, two_fit ? 2 * processors : processors));
  const double key_bytes = 2.0 * static_cast<double>(p.depth) * s.block;
  const double block_bytes = key_bytes + 2.0 * static_cast<double>(p.features) * s.block;
  constexpr double kArrival = 56;  // bytes a clock
  const double arrival = resident * blocks * block_bytes / kArrival;
  const double turns = static_cast<double>(tiles_of(s.tiles, s.groups));
  // The only stage of keys is filled again after the last tile needs them.
  const double exposed = s.stages == 1 ? block_bytes / kArrival / 2 : 0;
  // What is copied costs a little even where something else takes longer.
  const double clocks =
      std::max({turns * chain + exposed, resident * s.tiles * bound, arrival}) + 0.02 * arrival;
  constexpr double kFill = 1.0;
  return kFill + (rounds * clocks - exposed + key_bytes / kArrival) / clock_mhz;
}

std::vector<AttentionSchedule> attention_sm90_schedules(const AttentionProblem& p,
                                                        const Machine& machine) {
  std::vector<AttentionSchedule> candidates;
  const std::int64_t most = machine.device.shared_block_bytes;
  const auto tiles = static_cast<int>(tiles_of(p.queries, 64));
  const auto add = [&](AttentionSchedule s) {
    if (p.fault(s, most).empty()) candidates.push_back(s);
  };
  for (const int limit : {272, 192, 176, 128, 96, 64, 16}) {
    const std::int64_t blocks = tiles_of(p.keys, limit);
    const auto block = static_cast<int>(tiles_of(tiles_of(p.keys, blocks), 16) * 16);
    for (const int stages : {1, 2, 3})
      for (const int groups : {1, 2, 3}) {
        if (blocks > 1) {
          if (stages > 1) add({groups, groups, block, stages});
          continue;
        }
        for (int more = groups; more <= std::max(tiles, groups); more += groups)
          add({groups, more, block, stages});
      }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const AttentionSchedule& a, const AttentionSchedule& b) {
                     return model_attention_sm90(p, a, machine) <
                            model_attention_sm90(p, b, machine);
                   });
  return candidates;
}

Lowered lower_attention_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                             const AttentionSchedule& schedule) {
  return Builder(laid, group, machine, *accepted(laid.graph, group)).run(&schedule);
}

std::optional<AttentionProblem> attention_problem(const Graph& graph, const Group& group) {
  const auto m = accepted(graph, group);
  return m ? std::optional(m->problem) : std::nullopt;
}

const Family kAttentionSm90 = {"attention_sm90", estimate, lower};

}  // namespace tensor::cuda
