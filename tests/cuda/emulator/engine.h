// The emulated GPU: runs the threads of a block, or of a cluster of blocks, as fibers, one block or
// cluster after the other, and does what kernels ask of it (kernel/gpu.h).
//
// Whatever is asynchronous happens as late as it may: copies when no thread can go on, stores and
// products when somebody waits for them. So a kernel that does not wait shows it.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "tensor/error.h"
#include "tests/cuda/emulator/fiber.h"
#include "tests/cuda/emulator/kernel/gpu.h"
#include "tests/cuda/emulator/memory.h"
#include "tests/cuda/emulator/program.h"

namespace tensor::emulator {

/// What a kernel did that it must not.
class Fault : public Error {
 public:
  using Error::Error;
};

using emulated::u16;
using emulated::u32;
using emulated::u64;

/// What waiting threads look at again when it has changed.
struct Signal {
  u64 version = 0;
};

/// A tensor map as the emulator passes it: the kernel's 128 bytes name it.
struct MapOnHost {
  cuda::TensorMapOf view;
  std::byte* memory = nullptr;
};
cuda::TensorMapBytes map_bytes(const MapOnHost* map);

struct Block;

struct Thread {
  Fiber* fiber = nullptr;
  emulated::Here here{};
  u32 number = 0;  // in its block
  Block* block = nullptr;
  bool is_done = false;
  bool has_waited = false;  // for the kernel ahead, or met a thread that has
  const Signal* waits_on = nullptr;
  u64 seen = 0;
  const char* waits_for = "";
  const void* place = nullptr;  // in the kernel's code
  int registers = 0;            // 0: as many as it began with

  std::vector<std::pair<u32, u32>> unfenced;        // writes to shared memory: offset, bytes
  std::vector<u32> made_barriers, fenced_barriers;  // initialised, since and before the last fence
  bool knows_peers = false;                         // that all blocks of the cluster run
  struct LaterCopy {
    u32 to, size;
    std::byte data[16];
  };
  std::vector<LaterCopy> copies;
  std::deque<std::vector<LaterCopy>> copy_groups;
  std::vector<emulated::BoxCopy> stores;
  std::deque<std::vector<emulated::BoxCopy>> store_groups;
  u64 last_product = 0;
  bool has_uncommitted_products = false;
  std::deque<u64> product_groups;  // the last product of each

  u32 lane() const { return number % 32; }
};

/// Threads that do something together once all have come.
struct Gathering {
  Signal signal;
  u64 round = 0;
  u32 arrived = 0, wanted = 0;
  const char* what = "";
  std::vector<void*> arguments;  // by the thread's number within
};

struct Mbarrier {
  Signal signal;
  u32 arrivals = 0;  // a phase
  std::int64_t pending = 0, bytes = 0;
  u64 phase = 0;
  bool has_waited = false;
  bool is_announced = false;  // known to the other blocks of the cluster
  bool counts_sent = false;   // bytes that other blocks sent
};

struct NamedBarrier {
  Signal signal;
  u32 arrived = 0, wanted = 0;
  u64 round = 0;
  bool has_waited = false;
};

struct WarpgroupProducts {
  struct Product {
    u64 number;
    emulated::GroupProduct what;
    std::vector<void*> sums;                      // of the 128 threads
    std::vector<std::array<u32, 4>> a_registers;  // of the 128 threads
  };
  std::deque<Product> pending;
  u64 begun = 0;
};

struct Block {
  explicit Block(u32 dynamic_bytes) : shared(dynamic_bytes) {}
  SharedMemory shared;
  u32 rank = 0;  // in its cluster
  u32 live = 0;  // threads that have not ended
  std::map<u32, Mbarrier> mbarriers;
  NamedBarrier barriers[16];
  std::map<std::pair<u32, u32>, Gathering> warps;  // by the warp's number and the lanes' mask
  std::map<u32, Gathering> warpgroups;
  std::map<u32, WarpgroupProducts> products;
  std::vector<Thread*> threads;
};

struct EngineOptions {
  // Of the order of blocks and warps; 0: as they are numbered. Odd: lanes run backwards.
  unsigned seed = 0;
  std::int64_t shared_limit = 227 << 10;
};

class Engine final : public emulated::Gpu {
 public:
  Engine(const Program& program, std::string name, const cuda::Launch& launch,
         std::vector<Region> regions, const EngineOptions& options);
  ~Engine();
  /// The whole grid. Throws Fault.
  void run(void** arguments);

  void* dynamic_shared(u64 alignment) override;
  void* shared_variable(const void* key, u64 bytes, u64 alignment) override;
  u32 shared_address(const void* pointer) override;
  void access(const void* address, u64 bytes, bool writes, const void* place) override;
  void misaligned(const void* address, u64 alignment, const void* place) override;
  void outside_of_array(long long index, const void* place) override;
  void sync_threads() override;
  void named_barrier(u32 number, u32 threads, bool waits) override;
  void barrier_init(u32 barrier, u32 arrivals) override;
  void barrier_init_fence() override;
  void barrier_arrive(u32 barrier) override;
  void barrier_expect(u32 barrier, u32 bytes) override;
  void barrier_wait(u32 barrier, u32 parity, bool sees_sent) override;
  u32 cluster_rank() override;
  void cluster_arrive() override;
  void cluster_wait() override;
  u32 peer_address(u32 address, u32 rank) override;
  void send(u32 peer, u32 barrier, const void* from, u32 bytes) override;
  void load_shared(void* to, u32 address, u32 bytes) override;
  void sync_warp(u32 mask) override;
  bool elect_one() override;
  u32 ballot(u32 mask, bool vote) override;
  u64 shuffle(u32 mask, u64 bits, emulated::Shuffle kind, int parameter, int width) override;
  void load_box(const emulated::BoxCopy& copy) override;
  void store_box(const emulated::BoxCopy& copy) override;
  void store_commit() override;
  void store_wait(u32 pending) override;
  void fence_for_copies() override;
  void check_map(const u64* map) override;
  void copy_later(u32 to, const void* from, u32 size, u32 bytes) override;
  void copy_commit() override;
  void copy_wait(u32 pending) override;
  void multiply(void* d, const u32* a, const u32* b, int k, emulated::Number number) override;
  void load_matrices(u32* m, int count, bool transposed, u32 row) override;
  void store_matrices(u32 row, const u32* m, int count, bool transposed) override;
  void group_multiply(const emulated::GroupProduct& product) override;
  void group_commit() override;
  void group_wait(u32 pending) override;
  void set_registers(u32 count, bool more) override;
  void wait_for_previous() override;
  float from_half(u16 bits) override;
  u16 to_half(float value) override;

 private:
  struct Place {
    Block* block;
    u32 offset;
  };
  struct PendingLoad {
    const MapOnHost* map;  // the thread's own copy may be gone when the load ends
    emulated::BoxCopy copy;
    Block* block;
    Thread* thread;
  };
  // All that one block sent to a barrier and that is on its way.
  struct PendingSend {
    const Block* from;
    Block* to;
    u32 barrier;
    struct Part {
      u32 offset, size;
      std::byte data[16];
    };
    std::vector<Part> parts;
  };
  /// What one thread does for all that wait for each other. It owns nothing: a fiber that is left
  /// for good destroys nothing of its stack.
  class Together {
   public:
    template <class F>
    Together(const F& f)
        : function_(&f), call_([](const void* function, const std::vector<void*>& threads) {
            (*static_cast<const F*>(function))(threads);
          }) {}
    void operator()(const std::vector<void*>& threads) const { call_(function_, threads); }

   private:
    const void* function_;
    void (*call_)(const void*, const std::vector<void*>&);
  };

  void run_cluster(u32 first_block, void** arguments);
  void begin_thread(Thread& thread);
  static void enter_thread(void* self);
  bool run_some(std::vector<Thread*>& order);
  void end_thread(Thread& thread);
  [[noreturn]] void report_deadlock();
  void check_ended();

  void called_from(const void* place) { current_->place = place; }
  void wait_on(const Signal& signal, const char* what);
  /// Ends the kernel: records why and leaves the running fiber for good.
  [[noreturn]] void fault(const std::string& why);
  void fault_if(const std::string& why) {
    if (!why.empty()) fault(why);
  }
  std::string place_text(const Thread& thread) const;
  std::string wait_text(const Thread& thread) const;

  Place resolve(u32 address, const char* what);
  void check_peer(const Block& block, const char* what);
  Mbarrier& mbarrier_at(const Place& place);
  Mbarrier& mbarrier_at(u32 address);
  void arrive(Mbarrier& barrier, std::int64_t bytes);
  void complete_bytes(Mbarrier& barrier, std::int64_t bytes);
  static void complete_if_done(Mbarrier& barrier);
  void release_if_full(NamedBarrier& barrier);
  void together(Gathering& gathering, u32 member, u32 wanted, u32 members, const char* what,
                void* argument, const Together& execute);
  void together_in_warp(u32 mask, const char* what, void* argument, const Together& execute);
  void check_global(const void* address, u64 bytes, bool writes);
  std::string global_fault(const void* address, u64 bytes, bool writes, bool has_waited) const;

  const MapOnHost& map_of(const u64* words);
  void check_box(const MapOnHost& map, const emulated::BoxCopy& copy);
  /// Calls row(shared offset, memory or nullptr, bytes) for the stretches of a box's rows.
  using Stretch = std::function<void(u32, std::byte*, u32)>;
  void for_each_stretch(const MapOnHost& map, const emulated::BoxCopy& copy, u32 shared,
                        const Stretch& stretch);
  void finish_load(const PendingLoad& load);
  void finish_send(const PendingSend& sent);
  bool let_one_arrive();
  void finish_products(Block& block, u32 group, u64 last);
  void execute(Block& block, const WarpgroupProducts::Product& product);
  void read_operand(Block& block, u64 descriptor, bool turned, int count, emulated::Number number,
                    std::vector<float>& to);

  const Program& program_;
  std::string name_;
  cuda::Launch launch_;
  std::vector<Region> regions_;
  EngineOptions options_;
  std::mt19937 random_;

  u32 block_threads_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;  // of the cluster that runs
  std::deque<Thread> threads_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::deque<PendingLoad> loads_;
  std::deque<PendingSend> sends_;
  NamedBarrier cluster_barrier_;
  std::vector<u64> cluster_rounds_;  // of every thread that arrived and did not wait yet
  Thread* current_ = nullptr;
  void** arguments_ = nullptr;
  std::string fault_;
};

}  // namespace tensor::emulator
