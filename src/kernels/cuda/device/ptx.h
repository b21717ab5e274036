// Thin wrappers of the PTX instructions that kernels use: one function an instruction, so that a
// host emulation can stand in for each. Compiled by NVRTC with -default-device; includes nothing.
#pragma once

namespace tensor::device {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

/// An address in shared memory as instructions take it.
inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// Whether this lane is the one that a converged warp chooses.
inline bool elect_one() {
  u32 chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(chosen));
  return chosen != 0;
}

// ---- mbarrier: arrivals and bytes of a phase, waited for by its parity.

inline void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/// Makes initialised barriers visible to the copy engine and the cluster.
inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
inline void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and lets the phase wait for so many bytes of bulk copies too.
inline void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
inline void barrier_wait(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
/// Waits for `threads` threads of the block that name the same barrier.
inline void named_barrier(u32 number, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- The tensor memory accelerator: boxes of a tensor in global memory, described by a map.

struct alignas(64) TensorMap {
  u64 words[16];
};

inline void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(&map)) : "memory");
}
/// How long L2 keeps what is read: weights are read once.
inline u64 evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Box at column x and row y to shared memory; its bytes count for `barrier`.
inline void load_box(u32 to, const TensorMap& map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
inline void load_box(u32 to, const TensorMap& map, u32 barrier, int x, int y, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
/// Box from shared memory to column x and row y; what lies outside the tensor is not written.
inline void store_box(const TensorMap& map, u32 from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
          reinterpret_cast<u64>(&map)),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}
inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until the stores of this thread have read shared memory.
inline void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
inline void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Makes plain writes to shared memory visible to the copy engine.
inline void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Programmatic dependent launch.

/// Until the kernels ahead have ended and their writes are visible.
inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// The next kernel may start.
inline void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- wgmma: a warpgroup multiplies tiles in shared memory into registers.

inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Tells the compiler that a register was written behind its back.
inline void touch(float& value) { asm volatile("" : "+f"(value)::"memory"); }

/// A tile of rows of 128 bytes, 16-byte chunks exchanged as TMA's 128-byte swizzle does, for either
/// operand with k along the rows (PTX ISA, "Matrix descriptor format"): 1,024 bytes for 8 rows.
inline u64 swizzled_tile(u32 address) {
  return u64{(address & 0x3ffff) >> 4} | u64{1} << 16 | u64{1024 >> 4} << 32 | u64{1} << 62;
}

template <int kCount>
inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Four 8 x 8 matrices of 16-bit elements, each transposed, to the rows that the lanes name.
inline void store_matrices_transposed(u32 row, const u32 (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}
/// Two of them; lanes from 16 on are not asked.
inline void store_matrices_transposed(u32 row, u32 m0, u32 m1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(m0),
               "r"(m1)
               : "memory");
}
inline void store_matrices(u32 row, const u32 (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

// ---- 16-bit floats.

struct Half {
  u16 bits;
  explicit operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static u32 pair(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
};

struct Bfloat16 {
  u16 bits;
  explicit operator float() const { return __uint_as_float(u32{bits} << 16); }
  static u32 pair(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
};

}  // namespace tensor::device
