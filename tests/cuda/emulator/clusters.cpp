// Emulated clusters: blocks that run together, and what one may know of another and send to it.
// Arrivals at their barriers are relaxed, as ptx.h has them: no write of a thread is ordered by
// one.
#include <algorithm>
#include <cstring>

#include "tests/cuda/emulator/engine.h"

namespace tensor::emulator {

u32 Engine::cluster_rank() { return current_->block->rank; }

/// Relaxed: it tells the others of barriers that were fenced before, and of nothing else.
void Engine::cluster_arrive() {
  called_from(__builtin_return_address(0));
  const auto index =
      static_cast<std::size_t>(current_->block->rank * block_threads_ + current_->number);
  if (cluster_rounds_[index] != 0) fault("arrives at the cluster's barrier twice");
  for (const u32 offset : current_->fenced_barriers)
    current_->block->mbarriers.at(offset).is_announced = true;
  current_->fenced_barriers.clear();
  NamedBarrier& barrier = cluster_barrier_;
  cluster_rounds_[index] = barrier.round + 1;
  ++barrier.arrived;
  u32 live = 0;
  for (const auto& block : blocks_) live += block->live;
  if (barrier.arrived < live) return;
  barrier.arrived = 0;
  ++barrier.round;
  ++barrier.signal.version;
}

void Engine::cluster_wait() {
  called_from(__builtin_return_address(0));
  const auto index =
      static_cast<std::size_t>(current_->block->rank * block_threads_ + current_->number);
  if (cluster_rounds_[index] == 0) fault("waits for the cluster without having arrived");
  while (cluster_barrier_.round < cluster_rounds_[index])
    wait_on(cluster_barrier_.signal, "the cluster's barrier");
  cluster_rounds_[index] = 0;
  current_->knows_peers = true;
}

Engine::Place Engine::resolve(u32 address, const char* what) {
  if (address >> 24 == 0) {
    if (address >= SharedMemory::kBytes) fault(std::string(what) + " outside of shared memory");
    return {current_->block, address};
  }
  const u32 rank = (address >> 24) - 1, offset = address & 0xffffff;
  if (rank >= blocks_.size() || offset >= SharedMemory::kBytes)
    fault(std::string(what) + " of block " + std::to_string(rank) + " of a cluster of " +
          std::to_string(blocks_.size()));
  check_peer(*blocks_[rank], what);
  return {blocks_[rank].get(), offset};
}

void Engine::check_peer(const Block& block, const char* what) {
  if (&block != current_->block && !current_->knows_peers)
    fault(std::string(what) + " of a block that may not run yet: cluster_wait() first");
  if (block.live == 0) fault(std::string(what) + " of a block that has ended");
}

u32 Engine::peer_address(u32 address, u32 rank) {
  called_from(__builtin_return_address(0));
  if (address >> 24 != 0 || rank >= blocks_.size())
    fault("peer address of block " + std::to_string(rank) + " of a cluster of " +
          std::to_string(blocks_.size()));
  return (rank + 1) << 24 | address;
}

void Engine::send(u32 peer, u32 barrier, const void* from, u32 bytes) {
  called_from(__builtin_return_address(0));
  const Place to = resolve(peer, "a write"), counter = resolve(barrier, "an mbarrier");
  if (to.block != counter.block) fault("sends to one block and lets another one count the bytes");
  if (to.offset % bytes != 0) fault("a write that is not aligned to its size");
  fault_if(to.block->shared.write_fault(to.offset, bytes));
  mbarrier_at(counter).counts_sent = true;
  to.block->shared.set(to.offset, bytes, ByteState::arriving);
  auto pending = std::find_if(sends_.begin(), sends_.end(), [&](const PendingSend& sent) {
    return sent.from == current_->block && sent.to == to.block && sent.barrier == counter.offset;
  });
  if (pending == sends_.end())
    pending = sends_.insert(sends_.end(), {current_->block, to.block, counter.offset, {}});
  PendingSend::Part& part = pending->parts.emplace_back(PendingSend::Part{to.offset, bytes, {}});
  std::memcpy(part.data, from, bytes);
}

void Engine::finish_send(const PendingSend& sent) {
  SharedMemory& shared = sent.to->shared;
  std::int64_t bytes = 0;
  for (const PendingSend::Part& part : sent.parts) {
    std::memcpy(shared.at(part.offset), part.data, part.size);
    shared.set(part.offset, part.size, ByteState::written);
    bytes += part.size;
  }
  complete_bytes(sent.to->mbarriers.at(sent.barrier), bytes);
}

}  // namespace tensor::emulator
