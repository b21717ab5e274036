// The compiler: every stage once, in order, in compile_until(); and what an Executable and a
// Compiled do.
#include "tensor/compile.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "src/compile.h"
#include "src/core/checksum.h"
#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/host/weights.h"
#include "src/runtime/plan_data.h"
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
          .eight_bits = options.dtype == i8,
          .wide = options.exclude,
          .scales = options.scales,
          .rounds_rows = on_gpu,
          .byte_channels = target.byte_channels};
}

std::string computes_of(const CompileOptions& options) {
  std::string text(options.tf32 ? "tf32" : name(options.dtype));
  for (const std::string& pattern : options.exclude)
    text += (&pattern == options.exclude.data() ? " without " : ", ") + pattern;
  std::uint64_t scales = kHashStart;
  for (const auto& [name, scale] : options.scales)
    scales = mixed(hash_of(name, scales), std::bit_cast<std::uint32_t>(scale));
  if (!options.scales.empty()) text += " by the scales " + hexadecimal(scales, 16);
  return text + (options.narrow_residuals ? " with narrow residuals" : "");
}

// Constants of plans that were loaded take the place of equal ones, whose forms for kernels are
// there already.
LaidOutGraph with_known_constants(LaidOutGraph laid, const detail::Contents& contents) {
  for (ValueId id = 0; id < laid.graph.size(); ++id)
    if (laid.graph.is_constant(id))
      laid.graph.set_constant(id, contents.known(laid.graph[id].constant));
  return laid;
}

std::string types_text(const std::vector<TensorType>& types) {
  TextWriter text;
  for (std::size_t i = 0; i < types.size(); ++i) text << (i == 0 ? "" : ", ") << types[i];
  return text.str();
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

}  // namespace

detail::Compilation detail::compile_until(Until until, const TensorFunction& function,
                                          const std::vector<TensorType>& inputs,
                                          const CompileOptions& options, Target target,
                                          const std::function<bool()>& make_room) {
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

  Graph graph =
      stages.run("trace", [&] { return trace(function, inputs, options.names, derived); });
  stages.dump("traced", graph);
  for (const Pass& pass : passes_for(precision, convert, quantize))
    graph = stages.pass(pass, graph);
  LaidOutGraph laid = stages.run("layout", [&] { return lay_out(graph); });
  verify(laid.graph, "layout");
  Fusible fusible =
      stages.run("propose_parallel", [&] { return propose_parallel(std::move(laid)); });
  if (until == Until::fusible) return {std::move(fusible), nullptr};

  const auto table = stages.run("read_logs", [&] { return table_for(target, options.tune_logs); });
  FusionPlan plan = stages.run("fuse", [&] {
    if (!options.fuse) return no_fusion(fusible.laid, tuned_cost(target, table));
    return common ? tuned_fusion(fusible, target, table, common->plans())
                  : tuned_fusion(fusible, target, table);
  });
  std::tie(laid, plan) =
      stages.run("merge_parallel", [&] { return merge_parallel(fusible.laid, plan); });
  verify(laid.graph, "merge_parallel");
  if (common) laid = with_known_constants(std::move(laid), common->contents());
  check_host_steps(laid.graph, plan, target, options.host_steps);
  stages.dump(laid, plan, target);
  plan = stages.run("schedule", [&] {
    if (!common || !target.any_extent) return scheduled(laid, plan, *target.offers);
    return scheduled(laid, plan, *target.offers, common->schedules(), target.tuned_as);
  });
  auto kernels = stages.run("lower", [&] { return target.lower(laid, plan); });
  stages.dump(laid, plan, target, *kernels);
  const auto program = stages.run("link", [&] {
    return link(std::move(laid), std::move(plan), std::move(kernels), std::move(target), common,
                computes_of(options));
  });
  program->common->keep_within(options.memory_limit, *program, make_room);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  log(LogLevel::info, "compile: the inputs ", types_text(inputs), " took ", time.count(), " s");
  return {std::move(fusible), program};
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
  std::vector<TensorType> types;
  for (const Tensor& x : examples) types.push_back(x.type());
  return compile(traced, types, options);
}

// ---- Compiled: the executables for the last few lists of input types.

struct Compiled::Cache {
  using Types = std::vector<TensorType>;
  // An executable that somebody compiles, has compiled, or will compile.
  struct Entry {
    explicit Entry(Types for_types) : types(std::move(for_types)) {}
    const Types types;
    std::promise<Executable> made;
    const std::shared_future<Executable> executable = made.get_future().share();
    bool is_taken = false, is_there = false;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  Cache(TensorFunction traced, Plan start, CompileOptions with, std::size_t most);
  Executable get(const Types& types);
  Plan plan();
  void prepare(const std::vector<Types>& sizes, When when);

  const TensorFunction function;
  const std::size_t capacity;

 private:
  EntryPtr entry_for(const Types& types);
  bool take(Entry& entry);
  std::shared_ptr<const detail::Program> program_for(const Types& types);
  void make(Entry& entry);
  void trim(std::list<EntryPtr>& gone);
  bool let_one_go();
  void work(const std::stop_token& stop);

  std::mutex tracing_;
  TensorFunction one_at_a_time_;
  const Plan plan_;
  CompileOptions options_;
  std::mutex mutex_;            // of all below; nobody compiles or runs under it
  std::list<EntryPtr> recent_;  // the latest first
  std::deque<EntryPtr> waiting_;
  bool is_working_ = false;
  std::jthread worker_;  // last: it ends before the rest goes
};

Compiled::Cache::Cache(TensorFunction traced, Plan start, CompileOptions with, std::size_t most)
    : function(std::move(traced)),
      capacity(std::max<std::size_t>(most, 1)),
      one_at_a_time_([this](const std::vector<Tensor>& inputs) {
        const std::lock_guard lock(tracing_);
        return function(inputs);
      }),
      plan_(std::move(start)),
      options_(std::move(with)) {
  const detail::PlanData& plan = *plan_.data();
  if (!options_.sharing) options_.sharing = plan.sharing;
  if (!function || plan.sizes.empty() || plan.computes == computes_of(options_)) return;
  fail("Compiled", "got options that compute ", computes_of(options_), ", but ", plan.name,
       " has executables that compute ", plan.computes,
       ": give both the same dtype, tf32 and narrow_residuals");
}

Executable Compiled::Cache::get(const Types& types) {
  const EntryPtr entry = entry_for(types);
  if (take(*entry)) make(*entry);
  try {
    return entry->executable.get();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    recent_.remove(entry);
    throw;
  }
}

Compiled::Cache::EntryPtr Compiled::Cache::entry_for(const Types& types) {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(recent_.begin(), recent_.end(),
                                  [&](const EntryPtr& e) { return e->types == types; });
  if (known != recent_.end())
    recent_.splice(recent_.begin(), recent_, known);
  else
    recent_.push_front(std::make_shared<Entry>(types));
  return recent_.front();
}

// Whether the caller is to make it.
bool Compiled::Cache::take(Entry& entry) {
  const std::lock_guard lock(mutex_);
  return !std::exchange(entry.is_taken, true);
}

std::shared_ptr<const detail::Program> Compiled::Cache::program_for(const Types& types) {
  const auto make_room = [this] { return let_one_go(); };
  const CompileOptions& o = options_;
  LoadOptions how{.device = o.device,
                  .devices = o.devices,
                  .whole_inputs = o.whole_inputs,
                  .threads = o.threads,
                  .spin_us = o.spin_us,
                  .memory_limit = o.memory_limit,
                  .sharing = o.sharing};
  if (!function || plan_.holds(types, how))
    return detail::load_program(*plan_.data(), types, how, make_room);
  if (!o.devices.empty()) {
    how.devices = {};
    const auto known = [&](const detail::Division::Piece& piece) {
      how.device = piece.device;
      return plan_.holds(piece.inputs)
                 ? detail::load_program(*plan_.data(), piece.inputs, how, make_room)
                 : nullptr;
    };
    return detail::compile_for_devices(one_at_a_time_, types, o, true, known, make_room);
  }
  return detail::compile_until(detail::Until::linked, one_at_a_time_, types, o,
                               detail::target_of(o.device, o.threads, true, o.spin_us), make_room)
      .program;
}

void Compiled::Cache::make(Entry& entry) {
  try {
    entry.made.set_value(Executable(program_for(entry.types)));
    std::list<EntryPtr> gone;  // when nothing is locked any more
    {
      const std::lock_guard lock(mutex_);
      entry.is_there = true;
      trim(gone);
    }
    for (const EntryPtr& old : gone)
      log(LogLevel::warning, "Compiled: let go of the inputs ", types_text(old->types),
          ", since it keeps ", capacity, " sizes: give it a larger capacity");
  } catch (...) {
    entry.made.set_exception(std::current_exception());
  }
}

// Those that are being compiled or waiting do not count.
void Compiled::Cache::trim(std::list<EntryPtr>& gone) {
  std::size_t count = 0;
  for (auto e = recent_.begin(); e != recent_.end();) {
    const auto entry = e++;
    if ((*entry)->is_there && ++count > capacity) gone.splice(gone.end(), recent_, entry);
  }
}

// The one that was used least recently. False where there is none.
bool Compiled::Cache::let_one_go() {
  EntryPtr gone;
  const std::lock_guard lock(mutex_);
  const auto last =
      std::find_if(recent_.rbegin(), recent_.rend(), [](const EntryPtr& e) { return e->is_there; });
  if (last == recent_.rend()) return false;
  gone = *last;
  recent_.remove(gone);
  return true;
}

Plan Compiled::Cache::plan() {
  std::vector<Executable> compiled;  // the oldest first
  {
    const std::lock_guard lock(mutex_);
    for (const EntryPtr& entry : recent_)
      if (entry->is_there) compiled.insert(compiled.begin(), entry->executable.get());
  }
  Plan result = plan_;
  for (const Executable& executable : compiled) result.add(executable);
  return result;
}

void Compiled::Cache::prepare(const std::vector<Types>& sizes, When when) {
  if (sizes.size() > capacity)
    fail("prepare", "got ", sizes.size(), " sizes for a function that keeps ", capacity,
         ": give Compiled a larger capacity, or prepare fewer");
  if (when == When::now) {
    for (const Types& types : sizes) get(types);
    return;
  }
  std::vector<EntryPtr> entries;
  for (const Types& types : sizes) entries.push_back(entry_for(types));
  std::jthread ended;  // joined when nothing is locked any more
  const std::lock_guard lock(mutex_);
  waiting_.insert(waiting_.end(), entries.begin(), entries.end());
  if (std::exchange(is_working_, true)) return;
  ended = std::exchange(worker_, std::jthread([this](std::stop_token stop) { work(stop); }));
}

void Compiled::Cache::work(const std::stop_token& stop) {
  for (;;) {
    EntryPtr next;
    {
      const std::lock_guard lock(mutex_);
      is_working_ = !waiting_.empty() && !stop.stop_requested();
      if (!is_working_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (take(*next)) make(*next);
  }
}

Compiled::Compiled(TensorFunction function, CompileOptions options, std::size_t capacity)
    : Compiled(Plan(), std::move(function), std::move(options), capacity) {}

Compiled::Compiled(Plan plan, TensorFunction function, CompileOptions options, std::size_t capacity)
    : cache_(std::make_shared<Cache>(std::move(function), std::move(plan), std::move(options),
                                     capacity)) {}

Compiled::Compiled(Plan plan, const LoadOptions& options, std::size_t capacity)
    : Compiled(std::move(plan), nullptr,
               {.device = options.device,
                .devices = options.devices,
                .whole_inputs = options.whole_inputs,
                .threads = options.threads,
                .spin_us = options.spin_us,
                .memory_limit = options.memory_limit,
                .sharing = options.sharing},
               capacity) {}

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) const {
  for (const Tensor& x : inputs)
    if (cache_->function && detail::impl(x).recorder) return cache_->function(inputs);
  return executable(inputs)(inputs);
}

Plan Compiled::plan() const { return cache_->plan(); }

Executable Compiled::executable(const std::vector<Tensor>& inputs) const {
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  return cache_->get(types);
}

void Compiled::prepare(const std::vector<std::vector<TensorType>>& sizes, When when) const {
  cache_->prepare(sizes, when);
}

}  // namespace tensor
