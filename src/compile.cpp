// The compiler: every stage once, in order, in compile_until().
#include "tensor/compile.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <tuple>
#include <utility>

#include "src/compile.h"
#include "src/core/checksum.h"
#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "src/core/types_of.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/host/weights.h"
#include "src/runtime/program.h"
#include "src/stages.h"
#include "src/trace/trace.h"
#include "src/tune/tuned_cost.h"
#include "tensor/creation.h"
#include "tensor/log.h"

namespace tensor {
namespace {

// What the options ask for, on a target that can do so. UserError where it cannot.
Precision precision_of(const CompileOptions& options, const detail::Target& target) {
  const bool on_gpu = target.device.is_cuda();
  const bool is_known = options.dtype == f32 || options.dtype == bf16 || options.dtype == i8 ||
                        (on_gpu && options.dtype == f16);
  if (!is_known)
    fail("compile", "got dtype ", options.dtype, " on ", target.device,
         on_gpu ? ", need f32, bf16, f16 or i8" : ", need f32, bf16 or i8");
  if (options.dtype != i8 && !options.exclude.empty())
    fail("compile", "got exclude with dtype ", options.dtype, ", but it says what stays wide in ",
         "eight bits: need dtype i8, or leave exclude out");
  if (options.dtype != i8 && !options.scales.empty())
    fail("compile", "got scales with dtype ", options.dtype, ", but they are of activations in ",
         "eight bits: need dtype i8, or leave scales out");
  if (options.tf32 && !on_gpu)
    fail("compile", "got tf32 on ", target.device, ", which has float32 only: leave tf32 out, or ",
         "compile for \"cuda\"");
  if (options.tf32 && options.dtype != f32)
    fail("compile", "got tf32 with dtype ", options.dtype, ", but tf32 is how f32 is multiplied");
  if (options.narrow_residuals && (options.dtype == f32 || options.dtype == i8))
    fail("compile", "got narrow_residuals with dtype ", options.dtype,
         ", but they are stored as dtype says: need ", on_gpu ? "f16 or bf16" : "bf16",
         ", or leave narrow_residuals out");
  const bool is_wide = options.dtype == bf16 && !target.multiplies_bf16;
  // What stays wide in eight bits.
  const DType beside_bytes = on_gpu ? f16 : target.multiplies_bf16 ? bf16 : f32;
  return {.dtype = is_wide               ? f32
                   : options.dtype == i8 ? beside_bytes
                                         : options.dtype,
          .tf32 = options.tf32,
          .narrow_images = on_gpu,
          .narrow_residuals = options.narrow_residuals,
          .folds_norms = target.folds_norms && options.fuse,
          .checks_apart = on_gpu,
          .eight_bits = options.dtype == i8,
          .wide = options.exclude,
          .scales = options.scales,
          .rounds_rows = on_gpu,
          .byte_channels = target.byte_channels};
}

// Constants of plans that were loaded take the place of equal ones, whose forms for kernels are
// there already.
LaidOutGraph with_known_constants(LaidOutGraph laid, const detail::Contents& contents) {
  for (ValueId id = 0; id < laid.graph.size(); ++id)
    if (laid.graph.is_constant(id))
      laid.graph.set_constant(id, contents.known(laid.graph[id].constant));
  return laid;
}

// The operators of a plan for a GPU that no kernel of it runs: refused, or told.
void check_host_steps(const Graph& graph, const FusionPlan& plan, const detail::Target& target,
                      bool are_allowed) {
  constexpr int kMostNamed = 5;
  std::string operators;
  int count = 0;
  for (const Group& group : plan.groups) {
    if (target.offers->name(group.family) != "host" || count++ >= kMostNamed) continue;
    const Node& node = graph[group.nodes.front()];
    TextWriter out;
    out << (operators.empty() ? "" : ", ") << info(node.op).name << " : " << node.type;
    if (!node.where.empty()) out << " @ " << node.where;
    operators += out.str();
  }
  if (count > kMostNamed) operators += " and " + std::to_string(count - kMostNamed) + " more";
  if (count == 0) return;
  if (!are_allowed)
    fail("compile", "got operators that no kernel of ", target.device, " runs: ", operators,
         ", need others where host_steps is false: set it, or take them out of the function");
  log(LogLevel::warning, "compile: ", target.device, " waits for the host, which runs ", operators);
}

// Whether graphs differ in the elements of their constants at most.
bool are_alike(const LaidOutGraph& a, const LaidOutGraph& b) {
  const auto is_same = [](const Node& one, const Node& other) {
    return one.kind == other.kind && one.op == other.op && one.inputs == other.inputs &&
           one.attrs == other.attrs && one.type == other.type;
  };
  const auto lies_so = [](const Layout& one, const Layout& other) {
    return one.strides == other.strides && one.offset == other.offset;
  };
  return std::ranges::equal(a.graph.nodes(), b.graph.nodes(), is_same) &&
         std::ranges::equal(a.layouts, b.layouts, lies_so) &&
         a.graph.outputs() == b.graph.outputs();
}

void check_divided(const std::vector<ProductChain>& chains, int count) {
  if (std::any_of(chains.begin(), chains.end(), [](const auto& one) { return one.is_divided; }))
    return;
  TextWriter whole;
  for (const ProductChain& chain : chains)
    whole << (whole.str().empty() ? " (" : ", ") << chain.extent
          << (chain.where.empty() ? "" : " @ ") << chain.where;
  fail("compile", "got a function without products that ", count, " devices can divide",
       whole.str(), whole.str().empty() ? "" : " are no multiples)",
       ", need two by constant weights of which the second multiplies the first one's columns, or ",
       "heads: divide the batch, or compile for one device");
}

}  // namespace

std::string detail::computes_of(const CompileOptions& options) {
  std::string text(options.tf32 ? "tf32" : name(options.dtype));
  for (const std::string& pattern : options.exclude)
    text += (&pattern == options.exclude.data() ? " without " : ", ") + pattern;
  std::uint64_t scales = kHashStart;
  for (const auto& [name, scale] : options.scales)
    scales = mixed(hash_of(name, scales), std::bit_cast<std::uint32_t>(scale));
  if (!options.scales.empty()) text += " by the scales " + hexadecimal(scales, 16);
  return text + (options.narrow_residuals ? " with narrow residuals" : "");
}

std::string detail::types_text(const std::vector<TensorType>& types) {
  TextWriter text;
  for (std::size_t i = 0; i < types.size(); ++i) text << (i == 0 ? "" : ", ") << types[i];
  return text.str();
}

detail::Compilation detail::compile_until(Until until, const TensorFunction& function,
                                          const std::vector<TensorType>& inputs,
                                          const CompileOptions& options, Target target,
                                          const std::function<bool()>& make_room, bool in_haste,
                                          const Compilation* like) {
  if (options.divide == Divide::products && options.devices.empty())
    fail("compile", "got divide products on ", target.device,
         " alone: name the GPUs in devices, or leave divide out");
  const Precision precision = precision_of(options, target);
  if (options.dtype == bf16 && precision.dtype == f32)
    log(LogLevel::warning, "compile: this CPU does not multiply bf16, so that f32 is computed");
  const auto start = std::chrono::steady_clock::now();
  const int threads = cpu::threads_within(options.threads);
  const auto convert = [threads](const Tensor& x, DType to) {
    return cpu::converted(x, to, threads);
  };
  const auto quantize = [](const float* from, std::int64_t count, std::int8_t* to) {
    std::int32_t sum;
    return simd::table().quantize(to, from, count, &sum);
  };
  const Stages stages(target.device.is_cuda());
  const auto common = options.sharing ? options.sharing->common() : nullptr;
  const auto derived = common ? common->derived() : std::make_shared<DerivedConstants>();

  const Share& share = target.share;
  std::vector<ProductChain> chains;
  const auto divided = [&](const Graph& whole) {
    DividedProducts mine = divide_products(whole, share.index, share.count);
    chains = std::move(mine.chains);
    check_divided(chains, share.count);
    return std::move(mine.graph);
  };
  Graph graph =
      stages.run("trace", [&] { return trace(function, inputs, options.names, derived); });
  stages.dump("traced", graph);
  for (const Pass& pass :
       passes_for(precision, convert, quantize,
                  share.count > 1 ? divided : std::function<Graph(const Graph&)>()))
    graph = stages.pass(pass, graph);
  LaidOutGraph laid = stages.run("layout", [&] { return lay_out(graph); });
  verify(laid.graph, "layout");
  Fusible fusible =
      stages.run("propose_parallel", [&] { return propose_parallel(std::move(laid)); });
  if (until == Until::fusible) return {std::move(fusible), nullptr};

  if (like && !are_alike(fusible.laid, like->fusible.laid)) like = nullptr;
  const auto table = stages.run("read_logs", [&] { return table_for(target, options.tune_logs); });
  FusionPlan fused = stages.run("fuse", [&] {
    if (like) return like->fused;
    if (!options.fuse) return no_fusion(fusible.laid, tuned_cost(target, table));
    return common ? tuned_fusion(fusible, target, table, common->plans())
                  : tuned_fusion(fusible, target, table);
  });
  FusionPlan plan;
  std::tie(laid, plan) =
      stages.run("merge_parallel", [&] { return merge_parallel(fusible.laid, fused); });
  verify(laid.graph, "merge_parallel");
  if (common) laid = with_known_constants(std::move(laid), common->contents());
  check_host_steps(laid.graph, plan, target, options.host_steps);
  stages.dump(laid, plan, target);
  Scheduled schedules = stages.run("schedule", [&] {
    if (like) return Scheduled{like->program->plan};
    if (!common || !target.any_extent) return Scheduled{scheduled(laid, plan, *target.offers)};
    return scheduled(laid, plan, *target.offers, common->schedules(), target.tuned_as, in_haste);
  });
  plan = std::move(schedules.plan);
  auto kernels = stages.run("lower", [&] { return target.lower(laid, plan); });
  stages.dump(laid, plan, target, *kernels);
  const std::string device = target.tuned_as;
  const auto program = stages.run("link", [&] {
    return link(std::move(laid), std::move(plan), std::move(kernels), std::move(target), common,
                computes_of(options));
  });
  if (common) common->schedules().add(device, std::move(schedules.made));
  program->common->keep_within(options.memory_limit, *program, make_room);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  log(LogLevel::info, "compile: the inputs ", types_text(inputs), " took ", time.count(), " s");
  return {std::move(fusible), program, schedules.is_hasty, std::move(chains), std::move(fused)};
}

Executable compile(const detail::TracedFunction& traced, const std::vector<TensorType>& inputs,
                   const CompileOptions& options) {
  const bool is_shared = options.sharing.has_value();
  if (!options.devices.empty())
    return Executable(detail::compile_for_devices(traced.function, inputs, options, is_shared));
  return detail::compile(
      traced.function, inputs, options,
      detail::target_of(options.device, options.threads, is_shared, options.spin_us));
}

Executable compile(const detail::TracedFunction& traced, const std::vector<Tensor>& examples,
                   const CompileOptions& options) {
  return compile(traced, detail::types_of(examples), options);
}

}  // namespace tensor
