// How emulated threads wait for each other: barriers of blocks, mbarriers and warps.
#include <bit>
#include <cstring>

#include "tests/cuda/emulator/engine.h"

namespace tensor::emulator {

// ---- Barriers of a block

void Engine::release_if_full(NamedBarrier& barrier) {
  const u32 wanted = barrier.wanted == 0 ? current_->block->live : barrier.wanted;
  if (barrier.arrived < wanted) return;
  barrier.arrived = 0;
  ++barrier.round;
  ++barrier.signal.version;
}

void Engine::sync_threads() {
  called_from(__builtin_return_address(0));
  named_barrier(0, 0, true);
}

void Engine::named_barrier(u32 number, u32 threads, bool waits) {
  if (number != 0 || threads != 0) called_from(__builtin_return_address(0));
  if (number >= 16) fault("named barrier " + std::to_string(number) + ": there are 16");
  if (threads % 32 != 0 || threads > block_threads_)
    fault("named barrier " + std::to_string(number) + " of " + std::to_string(threads) +
          " threads: need a multiple of 32, at most a block");
  NamedBarrier& barrier = current_->block->barriers[number];
  if (barrier.arrived > 0 && barrier.wanted != threads)
    fault("named barrier " + std::to_string(number) + " of " + std::to_string(threads) +
          " threads, where others wait for " + std::to_string(barrier.wanted));
  barrier.wanted = threads;
  ++barrier.arrived;
  barrier.has_waited |= current_->has_waited;
  const u64 round = barrier.round;
  release_if_full(barrier);
  if (!waits) return;
  while (barrier.round == round)
    wait_on(barrier.signal, number == 0 && threads == 0 ? "__syncthreads()" : "named barrier");
  current_->has_waited |= barrier.has_waited;
}

// ---- mbarriers

Mbarrier& Engine::mbarrier_at(u32 address) { return mbarrier_at(resolve(address, "an mbarrier")); }

Mbarrier& Engine::mbarrier_at(const Place& place) {
  const auto found = place.block->mbarriers.find(place.offset);
  if (found == place.block->mbarriers.end())
    fault("uses an mbarrier at byte " + std::to_string(place.offset - SharedMemory::kFirst) +
          " of shared memory that was not initialised");
  if (place.block != current_->block && !found->second.is_announced)
    fault(
        "uses another block's mbarrier that it does not know of: barrier_init_fence() before "
        "cluster_arrive()");
  return found->second;
}

void Engine::barrier_init(u32 barrier, u32 arrivals) {
  called_from(__builtin_return_address(0));
  const Place place = resolve(barrier, "an mbarrier");
  SharedMemory& shared = place.block->shared;
  constexpr u32 kMost = (1 << 20) - 1;
  if (place.offset % 8 != 0) fault("an mbarrier that is not a multiple of 8 bytes");
  if (arrivals == 0 || arrivals > kMost)
    fault("an mbarrier of " + std::to_string(arrivals) + " arrivals");
  if (place.offset + 8 > SharedMemory::kBytes || shared.state(place.offset) == ByteState::none ||
      shared.state(place.offset + 7) == ByteState::none)
    fault("an mbarrier outside of what the kernel asked for");
  shared.set(place.offset, 8, ByteState::barrier);
  Mbarrier& state = place.block->mbarriers[place.offset];
  state.arrivals = arrivals;
  state.pending = arrivals;
  state.bytes = 0;
  state.phase = 0;
  state.is_announced = false;
  ++state.signal.version;
  current_->made_barriers.push_back(place.offset);
}

void Engine::barrier_init_fence() {
  called_from(__builtin_return_address(0));
  std::vector<u32>& made = current_->made_barriers;
  current_->fenced_barriers.insert(current_->fenced_barriers.end(), made.begin(), made.end());
  made.clear();
}

void Engine::complete_if_done(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.arrivals;
  ++barrier.phase;
  ++barrier.signal.version;
}

void Engine::arrive(Mbarrier& barrier, std::int64_t bytes) {
  constexpr std::int64_t kMostBytes = (1 << 20) - 1;
  if (barrier.pending == 0)
    fault("arrives at an mbarrier whose " + std::to_string(barrier.arrivals) +
          " arrivals of this phase have come");
  barrier.bytes += bytes;
  if (barrier.bytes > kMostBytes)
    fault("an mbarrier expects " + std::to_string(barrier.bytes) + " bytes: it counts to " +
          std::to_string(kMostBytes));
  --barrier.pending;
  complete_if_done(barrier);
}

void Engine::complete_bytes(Mbarrier& barrier, std::int64_t bytes) {
  barrier.bytes -= bytes;
  complete_if_done(barrier);
}

void Engine::barrier_arrive(u32 barrier) {
  called_from(__builtin_return_address(0));
  const Place place = resolve(barrier, "an mbarrier");
  Mbarrier& state = mbarrier_at(place);
  // To another block it says nothing of what this thread knows.
  if (place.block == current_->block) state.has_waited |= current_->has_waited;
  arrive(state, 0);
}
void Engine::barrier_expect(u32 barrier, u32 bytes) {
  called_from(__builtin_return_address(0));
  if (barrier >> 24 != 0) fault("lets an mbarrier of another block expect bytes");
  Mbarrier& state = mbarrier_at(barrier);
  state.has_waited |= current_->has_waited;
  arrive(state, bytes);
}

void Engine::barrier_wait(u32 barrier, u32 parity, bool sees_sent) {
  called_from(__builtin_return_address(0));
  if (barrier >> 24 != 0) fault("waits for an mbarrier of another block");
  const Mbarrier& state = mbarrier_at(barrier);
  while (state.phase % 2 == parity % 2) wait_on(state.signal, "the mbarrier");
  if (state.counts_sent && !sees_sent)
    fault(
        "waits for what other blocks sent by barrier_wait(), which does not see it: "
        "barrier_wait_for_sent()");
  current_->has_waited |= state.has_waited;
}

// ---- Warps

/// `wanted` threads, of which this is `member` of `members`, bring an argument each; the last to
/// come executes.
void Engine::together(Gathering& gathering, u32 member, u32 wanted, u32 members, const char* what,
                      void* argument, const Together& execute) {
  if (gathering.arrived > 0 && std::strcmp(gathering.what, what) != 0)
    fault(std::string("is at ") + what + " where others of its warp are at " + gathering.what);
  gathering.what = what;
  gathering.arguments.resize(members);
  gathering.arguments[member] = argument;
  if (++gathering.arrived == wanted) {
    execute(gathering.arguments);
    gathering.arrived = 0;
    ++gathering.round;
    ++gathering.signal.version;
    return;
  }
  const u64 round = gathering.round;
  while (gathering.round == round) wait_on(gathering.signal, what);
}

void Engine::together_in_warp(u32 mask, const char* what, void* argument, const Together& execute) {
  Block& block = *current_->block;
  const u32 warp = current_->number / 32, lane = current_->lane();
  const u32 lanes = std::min(32u, block_threads_ - 32 * warp);
  if (lanes < 32) mask &= (1u << lanes) - 1;
  if ((mask >> lane & 1) == 0)
    fault(std::string(what) + " with a mask that has no bit for its own lane");
  for (u32 i = 0; i < lanes; ++i)
    if ((mask >> i & 1) != 0 && block.threads[32 * warp + i]->is_done)
      fault(std::string(what) + " with lane " + std::to_string(i) + ", which has ended");
  together(block.warps[{warp, mask}], lane, static_cast<u32>(std::popcount(mask)), 32, what,
           argument, execute);
}

void Engine::sync_warp(u32 mask) {
  called_from(__builtin_return_address(0));
  together_in_warp(mask, "__syncwarp", current_, [](const std::vector<void*>& threads) {
    bool has_waited = false;
    for (void* thread : threads)
      if (thread) has_waited |= static_cast<Thread*>(thread)->has_waited;
    for (void* thread : threads)
      if (thread) static_cast<Thread*>(thread)->has_waited |= has_waited;
  });
}

bool Engine::elect_one() {
  called_from(__builtin_return_address(0));
  together_in_warp(~0u, "elect", nullptr, [](const std::vector<void*>&) {});
  return current_->lane() == 0;
}

u32 Engine::ballot(u32 mask, bool vote) {
  called_from(__builtin_return_address(0));
  struct Vote {
    bool vote;
    u32 all;
  } mine{vote, 0};
  together_in_warp(mask, "a vote", &mine, [mask](const std::vector<void*>& votes) {
    u32 all = 0;
    for (u32 lane = 0; lane < 32; ++lane)
      if ((mask >> lane & 1) != 0 && votes[lane] && static_cast<Vote*>(votes[lane])->vote)
        all |= 1u << lane;
    for (u32 lane = 0; lane < 32; ++lane)
      if ((mask >> lane & 1) != 0 && votes[lane]) static_cast<Vote*>(votes[lane])->all = all;
  });
  return mine.all;
}

u64 Engine::shuffle(u32 mask, u64 bits, emulated::Shuffle kind, int parameter, int width) {
  called_from(__builtin_return_address(0));
  if (width < 1 || width > 32 || !std::has_single_bit(static_cast<u32>(width)))
    fault("a shuffle of width " + std::to_string(width));
  struct Lane {
    u64 bits, result;
    int source;
  } mine{bits, bits, 0};
  const int lane = static_cast<int>(current_->lane()), first = lane / width * width;
  int source = lane;
  switch (kind) {
    case emulated::Shuffle::at:
      source = first + (parameter & (width - 1));
      break;
    case emulated::Shuffle::up:
      source = lane - parameter;
      break;
    case emulated::Shuffle::down:
      source = lane + parameter;
      break;
    case emulated::Shuffle::exclusive_or:
      source = lane ^ parameter;
      break;
  }
  // Beyond the segment a lane keeps its own; xor may reach back into earlier segments.
  const bool is_inside = kind == emulated::Shuffle::exclusive_or
                             ? source < first + width
                             : source >= first && source < first + width;
  mine.source = is_inside ? source : lane;
  if ((mask >> mine.source & 1) == 0)
    fault("a shuffle from lane " + std::to_string(mine.source) + ", which its mask leaves out");
  together_in_warp(mask, "a shuffle", &mine, [mask](const std::vector<void*>& lanes) {
    for (u32 i = 0; i < 32; ++i)
      if ((mask >> i & 1) != 0 && lanes[i]) {
        auto& to = *static_cast<Lane*>(lanes[i]);
        const auto* from = static_cast<Lane*>(lanes[static_cast<std::size_t>(to.source)]);
        if (from) to.result = from->bits;
      }
  });
  return mine.result;
}

}  // namespace tensor::emulator
