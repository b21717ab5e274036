// What a kernel asks of the emulated GPU: the one interface between kernels, which are compiled by
// themselves (prelude.h, ptx.h), and the emulator. Includes nothing.
#pragma once

namespace tensor::emulated {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

struct Uint3 {
  unsigned x, y, z;
};

/// The built-in variables of the thread that runs.
struct Here {
  Uint3 thread, block, block_size, grid;
};

enum class Number { half, bfloat16, tf32, byte };
enum class Shuffle { at, up, down, exclusive_or };

/// A box, from where to where: of load_box and its kin.
struct BoxCopy {
  const u64* map = nullptr;
  int axes = 0;
  int at[5] = {};
  u32 shared = 0, barrier = 0;
  unsigned blocks = 0;    // of the cluster, a bit each; 0: this one
  bool is_image = false;  // by an im2col map, `shift`ed by the window's place
  int shift[3] = {};
};

/// One wgmma as one thread sees it.
struct GroupProduct {
  int columns = 0;
  Number number = Number::half;
  bool a_turned = false, b_turned = false, has_registers = false, accumulates = false;
  u64 a = 0, b = 0;  // descriptors
  u32 a_registers[4] = {};
  void* sums = nullptr;  // floats, or ints of bytes
};

/// Called by the running thread; may switch to others. Whatever a kernel must not do ends it here.
class Gpu {
 public:
  // ---- Memory
  virtual void* dynamic_shared(u64 alignment) = 0;
  virtual void* shared_variable(const void* key, u64 bytes, u64 alignment) = 0;
  virtual u32 shared_address(const void* pointer) = 0;
  virtual void access(const void* address, u64 bytes, bool writes, const void* place) = 0;
  virtual void misaligned(const void* address, u64 alignment, const void* place) = 0;
  virtual void outside_of_array(long long index, const void* place) = 0;

  // ---- Barriers
  virtual void sync_threads() = 0;
  virtual void named_barrier(u32 number, u32 threads, bool waits) = 0;
  virtual void barrier_init(u32 barrier, u32 arrivals) = 0;
  virtual void barrier_init_fence() = 0;
  virtual void barrier_arrive(u32 barrier) = 0;
  virtual void barrier_expect(u32 barrier, u32 bytes) = 0;
  virtual void barrier_wait(u32 barrier, u32 parity, bool sees_sent) = 0;
  virtual u32 cluster_rank() = 0;
  virtual void cluster_arrive() = 0;
  virtual void cluster_wait() = 0;
  virtual u32 peer_address(u32 address, u32 rank) = 0;
  virtual void send(u32 peer, u32 barrier, const void* from, u32 bytes) = 0;
  virtual void load_shared(void* to, u32 address, u32 bytes) = 0;

  // ---- Warps
  virtual void sync_warp(u32 mask) = 0;
  virtual bool elect_one() = 0;
  virtual u32 ballot(u32 mask, bool vote) = 0;
  virtual u64 shuffle(u32 mask, u64 bits, Shuffle kind, int parameter, int width) = 0;

  // ---- Copies
  virtual void load_box(const BoxCopy& copy) = 0;
  virtual void store_box(const BoxCopy& copy) = 0;
  virtual void store_commit() = 0;
  virtual void store_wait(u32 pending) = 0;
  virtual void fence_for_copies() = 0;
  virtual void check_map(const u64* map) = 0;
  virtual void copy_later(u32 to, const void* from, u32 size, u32 bytes) = 0;
  virtual void copy_commit() = 0;
  virtual void copy_wait(u32 pending) = 0;

  // ---- Products
  virtual void multiply(void* d, const u32* a, const u32* b, int k, Number number) = 0;
  virtual void load_matrices(u32* m, int count, bool transposed, u32 row) = 0;
  virtual void store_matrices(u32 row, const u32* m, int count, bool transposed) = 0;
  virtual void group_multiply(const GroupProduct& product) = 0;
  virtual void group_commit() = 0;
  virtual void group_wait(u32 pending) = 0;
  virtual void set_registers(u32 count, bool more) = 0;

  // ---- Launches
  virtual void wait_for_previous() = 0;
  virtual float from_half(u16 bits) = 0;
  virtual u16 to_half(float value) = 0;

 protected:
  ~Gpu() = default;
};

}  // namespace tensor::emulated
