// The emulated GPU: blocks, threads and memory. Its other parts are in barriers.cpp, clusters.cpp,
// copies.cpp and products.cpp.
#include "tests/cuda/emulator/engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

namespace tensor::emulator {
namespace {

/// Unwinds the thread that is at fault, back to where it began.
struct ThreadEnded {};

std::string text_of(const emulated::Uint3& at) {
  std::ostringstream text;
  text << '(' << at.x << ", " << at.y << ", " << at.z << ')';
  return text.str();
}

emulated::Uint3 of_grid(const cuda::Grid& g) { return {g.x, g.y, g.z}; }
emulated::Uint3 at_position(u32 linear, const emulated::Uint3& size) {
  return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
}

}  // namespace

Engine::Engine(const Program& program, std::string name, const cuda::Launch& launch,
               std::vector<Region> regions, const EngineOptions& options)
    : program_(program),
      name_(std::move(name)),
      launch_(launch),
      regions_(std::move(regions)),
      options_(options),
      random_(options.seed) {
  block_threads_ = launch.block.x * launch.block.y * launch.block.z;
  if (block_threads_ == 0 || block_threads_ > 1024)
    throw Fault(name_ + ": " + std::to_string(block_threads_) + " threads a block");
  if (launch.cluster == 0 || launch.grid.x % launch.cluster != 0)
    throw Fault(name_ + ": " + std::to_string(launch.grid.x) + " blocks in clusters of " +
                std::to_string(launch.cluster));
  *program_.gpu = this;
}

Engine::~Engine() {
  *program_.gpu = nullptr;
  *program_.here = nullptr;
}

void Engine::run(void** arguments) {
  const u32 clusters = launch_.grid.x * launch_.grid.y * launch_.grid.z / launch_.cluster;
  std::vector<u32> order(clusters);
  std::iota(order.begin(), order.end(), 0u);
  if (options_.seed != 0) std::shuffle(order.begin(), order.end(), random_);
  for (const u32 cluster : order) run_cluster(cluster * launch_.cluster, arguments);
}

void Engine::run_cluster(u32 first_block, void** arguments) {
  blocks_.clear();
  threads_.clear();
  loads_.clear();
  sends_.clear();
  cluster_barrier_ = {};
  arguments_ = arguments;
  const emulated::Uint3 grid = of_grid(launch_.grid), size = of_grid(launch_.block);
  for (u32 rank = 0; rank < launch_.cluster; ++rank) {
    blocks_.push_back(std::make_unique<Block>(launch_.shared_bytes));
    Block& block = *blocks_.back();
    block.rank = rank;
    block.live = block_threads_;
    for (u32 i = 0; i < block_threads_; ++i) {
      Thread& thread = threads_.emplace_back();
      thread.here = {at_position(i, size), at_position(first_block + rank, grid), size, grid};
      thread.number = i;
      thread.block = &block;
      block.threads.push_back(&thread);
    }
  }
  cluster_rounds_.assign(threads_.size(), 0);
  while (fibers_.size() < threads_.size()) fibers_.push_back(std::make_unique<Fiber>());
  // Warps in any order, and their lanes forwards or backwards: a kernel may expect nothing of it.
  std::vector<u32> warps((threads_.size() + 31) / 32);
  std::iota(warps.begin(), warps.end(), 0u);
  if (options_.seed != 0) std::shuffle(warps.begin(), warps.end(), random_);
  std::vector<Thread*> order;
  for (const u32 warp : warps) {
    const std::size_t begin = order.size();
    for (std::size_t i = 32 * warp; i < std::min<std::size_t>(32 * warp + 32, threads_.size()); ++i)
      order.push_back(&threads_[i]);
    if (options_.seed % 2 != 0)
      std::reverse(order.begin() + static_cast<std::ptrdiff_t>(begin), order.end());
  }
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].fiber = fibers_[i].get();
    begin_thread(threads_[i]);
  }
  while (run_some(order)) {
  }
  check_ended();
}

void Engine::begin_thread(Thread& thread) { thread.fiber->start(&Engine::enter_thread, this); }

void Engine::enter_thread(void* self) {
  auto& engine = *static_cast<Engine*>(self);
  Thread& thread = *engine.current_;
  try {
    engine.program_.run(engine.arguments_);
    engine.end_thread(thread);
  } catch (const ThreadEnded&) {
  }
  for (;;) thread.fiber->pause();
}

/// Lets every thread that can go on do so, or else a copy arrive. False when all have ended.
bool Engine::run_some(std::vector<Thread*>& order) {
  bool has_run = false;
  for (Thread* thread : order) {
    if (thread->is_done || (thread->waits_on && thread->waits_on->version == thread->seen))
      continue;
    thread->waits_on = nullptr;
    current_ = thread;
    *program_.here = &thread->here;
    thread->fiber->resume();
    current_ = nullptr;
    if (!fault_.empty()) throw Fault(fault_);
    has_run = true;
  }
  if (has_run || let_one_arrive()) return true;
  if (std::all_of(order.begin(), order.end(), [](const Thread* t) { return t->is_done; }))
    return false;
  report_deadlock();
}

bool Engine::let_one_arrive() {
  const std::size_t count = loads_.size() + sends_.size();
  if (count == 0) return false;
  std::size_t which = options_.seed == 0 ? 0 : random_() % count;
  const auto take = [&which](auto& all) {
    const auto one = all[which];
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
    return one;
  };
  if (which < loads_.size()) {
    finish_load(take(loads_));
  } else {
    which -= loads_.size();
    finish_send(take(sends_));
  }
  return true;
}

void Engine::end_thread(Thread& thread) {
  thread.is_done = true;
  if (!thread.stores.empty() || !thread.store_groups.empty())
    fault("ends before its stores have read shared memory: store_commit() and store_wait() first");
  for (auto& [group, products] : thread.block->products)
    if (group == thread.number / 128 && !products.pending.empty())
      fault("ends before its wgmma products are done: wgmma_commit() and wgmma_wait<0>() first");
  Block& block = *thread.block;
  if (cluster_rounds_[block.rank * block_threads_ + thread.number] != 0)
    fault("ends between cluster_arrive() and cluster_wait()");
  --block.live;
  const auto arrives_here = [&](const auto& copies, auto target) {
    return block.live == 0 && std::any_of(copies.begin(), copies.end(),
                                          [&](const auto& copy) { return copy.*target == &block; });
  };
  if (arrives_here(loads_, &PendingLoad::block) || arrives_here(sends_, &PendingSend::to))
    fault("ends as the last of its block while bytes are on their way to it");
  if (block.barriers[0].arrived > 0 && block.barriers[0].wanted == 0)
    release_if_full(block.barriers[0]);
  ++block.barriers[0].signal.version;
}

void Engine::check_ended() {
  for (const auto& block : blocks_) {
    int registers = 0;
    for (const Thread* thread : block->threads) registers += thread->registers;
    if (registers > 65536)
      throw Fault(name_ + ": the threads of a block take " + std::to_string(registers) +
                  " registers of 65536");
    if (block->shared.used_bytes() > options_.shared_limit + SharedMemory::kFirst)
      throw Fault(name_ + ": uses " +
                  std::to_string(block->shared.used_bytes() - SharedMemory::kFirst) +
                  " bytes of shared memory, a block has " + std::to_string(options_.shared_limit));
  }
}

void Engine::report_deadlock() {
  std::ostringstream text;
  text << name_ << ": no thread can go on";
  std::map<std::string, std::pair<int, const Thread*>> waiting;
  for (const Thread& thread : threads_)
    if (!thread.is_done) {
      auto& [count, first] = waiting[place_text(thread) + ": waits for " + wait_text(thread)];
      if (count++ == 0) first = &thread;
    }
  int shown = 0;
  for (const auto& [what, who] : waiting) {
    if (shown++ == 8) break;
    text << "\n  " << who.first << " threads, the first of them block "
         << text_of(who.second->here.block) << " thread " << who.second->number << ", " << what;
  }
  throw Fault(text.str());
}

std::string Engine::wait_text(const Thread& thread) const {
  std::ostringstream text;
  text << thread.waits_for;
  for (const auto& [offset, barrier] : thread.block->mbarriers)
    if (&barrier.signal == thread.waits_on)
      text << " at byte " << offset - SharedMemory::kFirst << ", phase " << barrier.phase << " ("
           << barrier.pending << " arrivals and " << barrier.bytes << " bytes are missing)";
  for (int i = 0; i < 16; ++i)
    if (const NamedBarrier& barrier = thread.block->barriers[i];
        &barrier.signal == thread.waits_on && barrier.wanted != 0)
      text << ' ' << i << ", where " << barrier.arrived << " of " << barrier.wanted << " have come";
  return text.str();
}

std::string Engine::place_text(const Thread& thread) const {
  static std::map<std::pair<const void*, std::string>, std::string> known;
  std::string& text = known[{thread.place, program_.path}];
  if (text.empty()) text = program_.place(thread.place);
  return text;
}

void Engine::wait_on(const Signal& signal, const char* what) {
  Thread& thread = *current_;
  thread.waits_on = &signal;
  thread.seen = signal.version;
  thread.waits_for = what;
  thread.fiber->pause();
}

void Engine::fault(const std::string& why) {
  if (!current_) throw Fault(name_ + ": " + why);
  {
    std::ostringstream text;
    text << name_ << ", block " << text_of(current_->here.block) << ", thread " << current_->number
         << ", " << place_text(*current_) << ": " << why;
    fault_ = text.str();
  }
  throw ThreadEnded();
}

// ---- Memory

void* Engine::dynamic_shared(u64 alignment) {
  called_from(__builtin_return_address(0));
  if (SharedMemory::kFirst % alignment != 0)
    fault("dynamic shared memory begins at a multiple of 1024, not of " +
          std::to_string(alignment));
  return current_->block->shared.at(SharedMemory::kFirst);
}

void* Engine::shared_variable(const void* key, u64 bytes, u64 alignment) {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  const u32 offset = shared.variable(key, static_cast<u32>(bytes), static_cast<u32>(alignment));
  if (shared.used_bytes() > SharedMemory::kBytes) fault("shared variables of more than 256 KiB");
  return shared.at(offset);
}

u32 Engine::shared_address(const void* pointer) {
  called_from(__builtin_return_address(0));
  const SharedMemory& shared = current_->block->shared;
  if (!shared.holds(pointer)) fault("takes the shared address of what is not in shared memory");
  return shared.offset(pointer);
}

void Engine::load_shared(void* to, u32 address, u32 bytes) {
  called_from(__builtin_return_address(0));
  const Place place = resolve(address, "a read");
  if (place.block != current_->block)
    fault(
        "reads another block's shared memory, whose writes nothing orders: that block has to "
        "send()");
  if (place.offset % bytes != 0) fault("a read that is not aligned to its size");
  fault_if(place.block->shared.read_fault(place.offset, bytes));
  std::memcpy(to, place.block->shared.at(place.offset), bytes);
}

void Engine::access(const void* address, u64 bytes, bool writes, const void* place) {
  if (!current_ || current_->fiber->holds(address)) return;
  current_->place = place;
  SharedMemory& shared = current_->block->shared;
  if (shared.holds(address)) {
    const u32 offset = shared.offset(address), size = static_cast<u32>(bytes);
    const std::string why =
        writes ? shared.write_fault(offset, size) : shared.read_fault(offset, size);
    if (!why.empty()) fault((writes ? "writes: " : "reads: ") + why);
    if (!writes) return;
    shared.set(offset, size, ByteState::written);
    current_->unfenced.emplace_back(offset, size);
    return;
  }
  const auto is_within = [address](const void* begin, const void* end) {
    return address >= begin && address < end;
  };
  // Constants of the program, the built-in variables, and the way here: the table of functions.
  constexpr int kFunctions = 64;
  const emulated::Gpu* gpu = this;
  const void* const* functions = *reinterpret_cast<const void* const* const*>(gpu);
  if (is_within(program_.image_begin, program_.image_end) ||
      is_within(&current_->here, &current_->here + 1) || is_within(gpu, gpu + 1) ||
      is_within(functions, functions + kFunctions))
    return;
  check_global(address, bytes, writes);
}

void Engine::check_global(const void* address, u64 bytes, bool writes) {
  const auto* begin = static_cast<const std::byte*>(address);
  for (const Region& region : regions_)
    if (begin >= region.begin && begin + bytes <= region.end &&
        (writes ? region.is_written && current_->has_waited
                : region.is_constant || current_->has_waited))
      return;
  fault_if(global_fault(address, bytes, writes, current_->has_waited));
}

std::string Engine::global_fault(const void* address, u64 bytes, bool writes,
                                 bool has_waited) const {
  const auto* begin = static_cast<const std::byte*>(address);
  const std::string verb = writes ? "writes " : "reads ";
  std::string why;
  const Region* nearest = nullptr;
  std::ptrdiff_t distance = 0;
  for (const Region& region : regions_) {
    if (begin >= region.begin && begin + bytes <= region.end) {
      if (writes && !region.is_written)
        why = verb + region.name + ", which is only read";
      else if (!has_waited && (writes || !region.is_constant))
        why = verb + region.name + " before wait_for_previous()";
      else
        return {};
      continue;
    }
    const std::ptrdiff_t off =
        begin < region.begin ? begin - region.begin : begin + bytes - region.end;
    if (!nearest || std::abs(off) < std::abs(distance)) nearest = &region, distance = off;
  }
  if (!why.empty()) return why;
  std::ostringstream text;
  text << verb << bytes << " bytes outside of all memory it was given";
  if (nearest && std::abs(distance) < 1 << 20)
    text << ": " << std::abs(distance) << " bytes " << (distance < 0 ? "before " : "beyond ")
         << nearest->name << " of " << nearest->end - nearest->begin << " bytes";
  return text.str();
}

void Engine::misaligned(const void* address, u64 alignment, const void* place) {
  if (!current_) return;
  current_->place = place;
  if (address == nullptr) fault("goes through a null pointer");
  fault("goes through a pointer that is not a multiple of " + std::to_string(alignment) + " bytes");
}

void Engine::outside_of_array(long long index, const void* place) {
  if (!current_) return;
  current_->place = place;
  fault("indexes an array at " + std::to_string(index) + ", outside of it");
}

void Engine::set_registers(u32 count, bool) {
  called_from(__builtin_return_address(0));
  if (count < 24 || count > 256 || count % 8 != 0)
    fault("asks for " + std::to_string(count) + " registers: need 24 to 256 in steps of 8");
  current_->registers = static_cast<int>(count);
}

void Engine::wait_for_previous() {
  called_from(__builtin_return_address(0));
  current_->has_waited = true;
}

float Engine::from_half(u16 bits) { return detail::float_from_half(bits); }
u16 Engine::to_half(float value) { return detail::half_from_float(value); }

}  // namespace tensor::emulator
