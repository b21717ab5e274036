// Compiled: the executables for the last few lists of input types.
#include <algorithm>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "src/compile.h"
#include "src/core/storage.h"
#include "src/core/types_of.h"
#include "src/runtime/plan_data.h"
#include "tensor/compile.h"
#include "tensor/log.h"

namespace tensor {

struct Compiled::Cache {
  using Types = std::vector<TensorType>;
  // An executable that somebody compiles, has compiled, or will compile.
  struct Entry {
    explicit Entry(Types for_types) : types(std::move(for_types)) {}
    const Types types;
    std::promise<Executable> made;
    const std::shared_future<Executable> executable = made.get_future().share();
    bool is_taken = false, is_there = false;
    std::optional<Executable> better = std::nullopt;  // by kernels that came later
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
  Executable latest(const EntryPtr& entry);
  detail::Compilation program_for(const Types& types, bool in_haste);
  void make(const EntryPtr& entry, bool in_haste);
  void improve(const EntryPtr& entry);
  void trim(std::list<EntryPtr>& gone);
  bool let_one_go();
  void work_on(std::deque<EntryPtr>& list, const std::vector<EntryPtr>& more);
  void work(const std::stop_token& stop);

  std::mutex tracing_;
  TensorFunction one_at_a_time_;
  const Plan plan_;
  CompileOptions options_;
  std::mutex mutex_;                      // of all below; nobody compiles or runs under it
  std::list<EntryPtr> recent_;            // the latest first
  std::deque<EntryPtr> waiting_, hasty_;  // to be made, and to be made better after these
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
  if (options_.divide == Divide::products && !plan.sizes.empty())
    fail("Compiled", "got ", plan.name, " and divide products, need no plan, which holds whole ",
         "products: leave one of them out");
  if (!options_.sharing) options_.sharing = plan.sharing;
  if (!function || plan.sizes.empty() || plan.computes == detail::computes_of(options_)) return;
  fail("Compiled", "got options that compute ", detail::computes_of(options_), ", but ", plan.name,
       " has executables that compute ", plan.computes,
       ": give both the same dtype, tf32 and narrow_residuals");
}

Executable Compiled::Cache::get(const Types& types) {
  const EntryPtr entry = entry_for(types);
  if (take(*entry)) make(entry, options_.better_kernels == When::in_background);
  try {
    return latest(entry);
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

Executable Compiled::Cache::latest(const EntryPtr& entry) {
  const Executable first = entry->executable.get();
  const std::lock_guard lock(mutex_);
  return entry->better.value_or(first);
}

detail::Compilation Compiled::Cache::program_for(const Types& types, bool in_haste) {
  const auto make_room = [this] { return let_one_go(); };
  const CompileOptions& o = options_;
  if (o.divide == Divide::products && !o.devices.empty())  // no plan has them
    return {{}, detail::compile_for_devices(one_at_a_time_, types, o, true, nullptr, make_room)};
  LoadOptions how{.device = o.device,
                  .devices = o.devices,
                  .whole_inputs = o.whole_inputs,
                  .threads = o.threads,
                  .spin_us = o.spin_us,
                  .memory_limit = o.memory_limit,
                  .sharing = o.sharing};
  if (!function || plan_.holds(types, how))
    return {{}, detail::load_program(*plan_.data(), types, how, make_room)};
  if (!o.devices.empty()) {
    how.devices = {};
    const auto known = [&](const detail::Division::Piece& piece) {
      how.device = piece.device;
      return plan_.holds(piece.inputs)
                 ? detail::load_program(*plan_.data(), piece.inputs, how, make_room)
                 : nullptr;
    };
    return {{}, detail::compile_for_devices(one_at_a_time_, types, o, true, known, make_room)};
  }
  return detail::compile_until(detail::Until::linked, one_at_a_time_, types, o,
                               detail::target_of(o.device, o.threads, true, o.spin_us), make_room,
                               in_haste);
}

void Compiled::Cache::make(const EntryPtr& entry, bool in_haste) {
  try {
    const detail::Compilation compiled = program_for(entry->types, in_haste);
    entry->made.set_value(Executable(compiled.program));
    std::list<EntryPtr> gone;  // when nothing is locked any more
    {
      const std::lock_guard lock(mutex_);
      entry->is_there = true;
      trim(gone);
    }
    if (compiled.is_hasty) work_on(hasty_, {entry});
    for (const EntryPtr& old : gone)
      log(LogLevel::warning, "Compiled: let go of the inputs ", detail::types_text(old->types),
          ", since it keeps ", capacity, " sizes: give it a larger capacity");
  } catch (...) {
    entry->made.set_exception(std::current_exception());
  }
}

// Calls that run meanwhile, and executables that were given out, stay with what they have.
void Compiled::Cache::improve(const EntryPtr& entry) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(recent_.begin(), recent_.end(), entry) == recent_.end()) return;
  }
  try {
    const Executable better(program_for(entry->types, false).program);
    const std::lock_guard lock(mutex_);
    entry->better = better;
  } catch (const std::exception& error) {
    log(LogLevel::warning, "Compiled: stays with the kernels that there are for the inputs ",
        detail::types_text(entry->types), ": ", error.what());
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
      if (entry->is_there)
        compiled.insert(compiled.begin(), entry->better.value_or(entry->executable.get()));
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
    for (const Types& types : sizes) {
      const EntryPtr entry = entry_for(types);
      if (take(*entry)) make(entry, false);
      get(types);
    }
    return;
  }
  std::vector<EntryPtr> entries;
  for (const Types& types : sizes) entries.push_back(entry_for(types));
  work_on(waiting_, entries);
}

void Compiled::Cache::work_on(std::deque<EntryPtr>& list, const std::vector<EntryPtr>& more) {
  std::jthread ended;  // joined when nothing is locked any more
  const std::lock_guard lock(mutex_);
  list.insert(list.end(), more.begin(), more.end());
  if (std::exchange(is_working_, true)) return;
  ended = std::exchange(worker_, std::jthread([this](std::stop_token stop) { work(stop); }));
}

void Compiled::Cache::work(const std::stop_token& stop) {
  for (;;) {
    EntryPtr next;
    bool is_hasty = false;
    {
      const std::lock_guard lock(mutex_);
      is_hasty = waiting_.empty();
      std::deque<EntryPtr>& list = is_hasty ? hasty_ : waiting_;
      is_working_ = !list.empty() && !stop.stop_requested();
      if (!is_working_) return;
      next = std::move(list.front());
      list.pop_front();
    }
    if (is_hasty)
      improve(next);
    else if (take(*next))
      make(next, false);
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
  return cache_->get(detail::types_of(inputs));
}

void Compiled::prepare(const std::vector<std::vector<TensorType>>& sizes, When when) const {
  cache_->prepare(sizes, when);
}

}  // namespace tensor
