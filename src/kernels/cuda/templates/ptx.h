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
/// Until the phase of that parity is over; sees what threads of this block wrote before they
/// arrived, and the boxes that came.
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
/// Counts for that barrier without waiting.
inline void named_barrier_arrive(u32 number, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
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
/// The same of tensors of 1 to 5 axes, the fastest first.
template <int kAxes>
inline void load_box(u32 to, const TensorMap& map, u32 barrier, const int (&at)[kAxes]) {
  const u64 address = reinterpret_cast<u64>(&map);
  if constexpr (kAxes == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0])
        : "memory");
  else if constexpr (kAxes == 2)
    load_box(to, map, barrier, at[0], at[1]);
  else if constexpr (kAxes == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  else if constexpr (kAxes == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
}
/// To the same place of every block of the cluster whose bit is set in `blocks`; the bytes count
/// for the barrier of each.
template <int kAxes>
inline void load_box_to_all(u32 to, const TensorMap& map, u32 barrier, const int (&at)[kAxes],
                            u16 blocks) {
  static_assert(kAxes == 2 || kAxes == 3);
  const u64 address = reinterpret_cast<u64>(&map);
  if constexpr (kAxes == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0]), "r"(at[1]), "h"(blocks)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
        "l"(address), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "h"(blocks)
        : "memory");
}
/// Pixels of an image {channels, width, height, images} by an im2col map: from the corner {channel,
/// x, y, image} on, each shifted by the window's offset {x, y}.
inline void load_pixels(u32 to, const TensorMap& map, u32 barrier, const int (&corner)[4],
                        const int (&shift)[2]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(corner[0]), "r"(corner[1]),
      "r"(corner[2]), "r"(corner[3]), "h"(static_cast<u16>(shift[0])),
      "h"(static_cast<u16>(shift[1]))
      : "memory");
}
template <int kAxes>
inline void store_box(const TensorMap& map, u32 from, const int (&at)[kAxes]) {
  const u64 address = reinterpret_cast<u64>(&map);
  if constexpr (kAxes == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(
            address),
        "r"(from), "r"(at[0])
        : "memory");
  else if constexpr (kAxes == 2)
    store_box(map, from, at[0], at[1]);
  else if constexpr (kAxes == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
            "l"(address),
        "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  else if constexpr (kAxes == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
        "[%1];" ::"l"(address),
        "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], "
        "[%1];" ::"l"(address),
        "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
}
inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all but the last so many groups of this thread's stores have read shared memory.
template <int kPending = 0>
inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
inline void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Makes plain writes to shared memory visible to the copy engine.
inline void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Copies by threads that arrive later: 16 bytes or four (sm_80).

/// The first `bytes` of 16 come from memory, the rest are zeros; both addresses are multiples
/// of 16.
inline void copy_16(u32 to, const void* from, u32 bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
/// Four bytes, or zeros.
inline void copy_4(u32 to, const void* from, u32 bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most so many of this thread's groups are on their way.
template <int kPending>
inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Clusters: blocks that run together and reach each other's shared memory. Nothing here is a
// release at the cluster's scope: that is a fence of all memory (MEMBAR.ALL.GPU, some 700 clocks of
// an H100 where the rest takes ten). What blocks give each other they send().

inline u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Orders no writes, so that others know no more than that this block has come so far, and the
/// barriers before its barrier_init_fence() (PTX ISA, "membar / fence": .mbarrier_init).
inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Where block `rank` of the cluster has what lies at `address` in this one.
inline u32 peer_address(u32 address, u32 rank) {
  u32 peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}
/// Numbers to a block of the cluster, whose `barrier` counts their bytes when they are there: for
/// those who wait by barrier_wait_for_sent() that is a release (PTX ISA, "st.async"). That block
/// must run by then, and stay until they have come.
inline void send(u32 peer, u32 barrier, const float (&value)[4]) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(peer),
      "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]), "r"(barrier)
      : "memory");
}
inline void send(u32 peer, u32 barrier, const float (&value)[2]) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(peer),
      "f"(value[0]), "f"(value[1]), "r"(barrier)
      : "memory");
}
/// Ints by their bits.
template <int kCount>
inline void send(u32 peer, u32 barrier, const int (&value)[kCount]) {
  float bits[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = __int_as_float(value[i]);
  send(peer, barrier, bits);
}
/// barrier_wait() that sees what other blocks sent.
inline void barrier_wait_for_sent(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
/// Of this block's shared memory.
inline void load_own(float (&value)[2], u32 address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value[0]), "=f"(value[1])
               : "r"(address)
               : "memory");
}
inline void load_own(int (&value)[4], u32 address) {
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}
inline void load_own(float (&value)[4], u32 address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
               : "r"(address)
               : "memory");
}
/// Gives back to a block of the cluster what it may overwrite: orders no writes, since who only
/// read has none to show. The reads are wgmma's, and have ended before: wgmma_wait() returns when
/// their groups are complete (PTX ISA, "wgmma.wait_group"), so that none of them can see what is
/// written after this arrival was seen, whoever writes. The scope is the block's, to others that is
/// relaxed: .relaxed.cluster, the same instruction (SYNCS.ARRIVE), is not known before PTX ISA 8.6.
inline void barrier_arrive_peer(u32 peer) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(peer) : "memory");
}

// ---- Programmatic dependent launch: on Hopper and newer; before, kernels run one after the other.

/// Until the kernels ahead have ended and their writes are visible.
inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The next kernel may start.
inline void launch_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- Functions within about 1 ulp; subnormal results become 0.

inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- Exact functions that have an instruction.

/// NaN when either is.
inline float maximum_of(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return a >= b || a != a ? a : b;
#endif
}
inline float minimum_of(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
#else
  return a <= b || a != a ? a : b;
#endif
}
/// Rounded to nearest, ties to even; saturates, NaN becomes 0.
inline signed char nearest_byte(float x) {
  int byte;
  asm("cvt.rni.s8.f32 %0, %1;" : "=r"(byte) : "f"(x));
  return static_cast<signed char>(byte);
}

// ---- wgmma: a warpgroup multiplies tiles in shared memory into registers.

inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Tells the compiler that a register was written behind its back.
inline void touch(float& value) { asm volatile("" : "+f"(value)::"memory"); }
inline void touch(int& value) { asm volatile("" : "+r"(value)::"memory"); }
inline void touch(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
/// What is read of this afterwards is not converted before, when it would take twice the registers.
template <class T>
inline void keep_packed(T& value) {
  u32* words = reinterpret_cast<u32*>(&value);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 4); ++i) asm volatile("" : "+r"(words[i]));
}

/// A tile of rows of 128 bytes, 16-byte chunks exchanged as TMA's 128-byte swizzle does, for either
/// operand with k along the rows (PTX ISA, "Matrix descriptor format"): 1,024 bytes for 8 rows.
inline u64 swizzled_tile(u32 address) {
  return u64{(address & 0x3ffff) >> 4} | u64{1} << 16 | u64{1024 >> 4} << 32 | u64{1} << 62;
}
/// The same for an operand with k across the rows: a row holds 64 of the other axis, and the next
/// 64 begin `panel_bytes` further on. A step of k by 16 is 2,048 bytes.
inline u64 turned_swizzled_tile(u32 address, u32 panel_bytes) {
  return u64{(address & 0x3ffff) >> 4} | u64{panel_bytes >> 4} << 16 | u64{1024 >> 4} << 32 |
         u64{1} << 62;
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

/// 8 x 8 matrices of 16-bit elements from the rows that the lanes name, lanes in groups of eight a
/// matrix: kLdmatrix4 in fragments.h says who gets what.
inline void load_matrices(u32 (&m)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}
inline void load_matrices(u32 (&m)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(row)
               : "memory");
}
inline void load_matrices_transposed(u32 (&m)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}
inline void load_matrices_transposed(u32 (&m)[2], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(row)
               : "memory");
}

// ---- 16-bit floats. multiply() is mma.sync: d += a b of 16 x 8 x 16 (sm_80) or 16 x 8 x 8 (of
// halves sm_75), registers as in fragments.h.

struct Half {
  u16 bits;
  explicit operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static u32 pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    u16 first, second;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
    return u32{first} | u32{second} << 16;
#endif
  }
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  static void multiply(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
};

struct Bfloat16 {
  u16 bits;
  explicit operator float() const { return __uint_as_float(u32{bits} << 16); }
  static u32 pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return rounded(low) | rounded(high) << 16;
#endif
  }
  /// Before there was an instruction for it.
  static u32 rounded(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  static void multiply(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  }
};

/// Signed integers of eight bits, whose sums are exact.
struct Bytes {
  /// 16 x 8 x 32 (sm_80).
  static void multiply(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

/// A float rounded to ten bits after the point, in its own 32 bits.
struct Tf32 {
  static u32 rounded(float value) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
  }
  /// 16 x 8 x 8 (sm_80).
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

}  // namespace tensor::device
