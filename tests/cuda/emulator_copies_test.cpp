// The emulated copy engine and Tensor Cores: what they do, and what is found.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/kernels/cuda/tensor_map.h"
#include "src/kernels/cuda/wgmma.h"
#include "tests/cuda/emulator/trial.h"
#include "tests/cuda/on_device.h"

namespace tensor::emulator {
namespace {

using Halves = std::vector<Float16>;

Halves small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Halves all(count);
  for (Float16& x : all) x = static_cast<int>(random() % 9) - 4;
  return all;
}
Halves poisoned(std::size_t count) {
  Float16 nan;
  nan.bits = 0xffff;
  return Halves(count, nan);
}

// A box of {64, 4, 2} elements to shared memory and from there to another tensor.
const std::string kBoxes = R"(
extern "C" __global__ void trial(const Half*, Half*, const __grid_constant__ TensorMap from,
                                 const __grid_constant__ TensorMap to, int x, int y, int z) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ u64 barrier;
  const u32 at = shared_address(&barrier), box = shared_address(memory);
  if (threadIdx.x == 0) {
    barrier_init(at, 1);
    barrier_init_fence();
    wait_for_previous();
    barrier_expect(at, 1024);
    load_box(box, from, at, {x, y, z});
    WAIT
    store_box(to, box, {0, 0, 0});
    store_commit();
    STORED
  }
})";

Trial boxes(int x, int y, int z, bool waits = true, bool stores = true) {
  const auto map = [](int index) {
    return cuda::TensorMapOf{.memory = {.index = index},
                             .extents = {70, 5, 3},
                             .stride_bytes = {144, 720},
                             .box = {64, 4, 2}};
  };
  std::string text = kBoxes;
  text.replace(text.find("WAIT"), 4, waits ? "barrier_wait(at, 0);" : "");
  text.replace(text.find("STORED"), 6, stores ? "store_wait();" : "");
  return {
      text,
      {.block = {32}, .shared_bytes = 1024},
      {map(0), map(1), cuda::value_argument(x), cuda::value_argument(y), cuda::value_argument(z)}};
}

TEST(EmulatorCopies, BoxesAreZeroOutsideAndClipped) {
  Halves in = small_integers(72 * 15, 1);
  for (const auto& [x, y, z] : {std::array{0, 0, 0}, {-3, -1, 2}, {40, 3, -1}, {8, 2, 1}}) {
    Halves out = poisoned(72 * 15);
    boxes(x, y, z)(in, out);
    for (int k = 0; k < 3; ++k)
      for (int j = 0; j < 5; ++j)
        for (int i = 0; i < 72; ++i) {
          const Float16 got = out[static_cast<std::size_t>(72 * (5 * k + j) + i)];
          if (i >= 64 || j >= 4 || k >= 2) {
            EXPECT_EQ(got.bits, 0xffff) << i << ' ' << j << ' ' << k;
            continue;
          }
          const int a = i + x, b = j + y, c = k + z;
          const bool inside = a >= 0 && a < 70 && b >= 0 && b < 5 && c >= 0 && c < 3;
          const float need =
              inside ? float{in[static_cast<std::size_t>(72 * (5 * c + b) + a)]} : 0.f;
          EXPECT_EQ(static_cast<float>(got), need) << i << ' ' << j << ' ' << k;
        }
  }
}

TEST(EmulatorCopies, FindsWhatIsNotWaitedFor) {
  Halves in(72 * 15), out(72 * 15);
  EXPECT_FOUND(boxes(0, 0, 0, false).fault(in, out), "of shared memory is still being copied to");
  EXPECT_FOUND(boxes(0, 0, 0, true, false).fault(in, out), "ends before its stores have read");
  in.resize(72 * 14);
  EXPECT_FOUND(boxes(0, 2, 1).fault(in, out), "outside of all memory it was given");
}

TEST(EmulatorCopies, FindsWritesThatTheCopyEngineDoesNotSee) {
  const std::string text = R"(
extern "C" __global__ void trial(const Half*, Half*, const __grid_constant__ TensorMap to) {
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < 512; i += 32) ((u16*)memory)[i] = 0;
  FENCE
  __syncwarp();
  wait_for_previous();
  if (threadIdx.x == 0) {
    store_box(to, shared_address(memory), {0, 0});
    store_commit();
    store_wait();
  }
})";
  Halves in(8), out(512);
  for (const bool fences : {true, false}) {
    std::string own = text;
    own.replace(own.find("FENCE"), 5, fences ? "fence_for_copies();" : "");
    const Trial trial{own,
                      {.block = {32}, .shared_bytes = 1024},
                      {cuda::swizzled_boxes(f16, 8, 64, 8, {.index = 1})}};
    if (fences)
      EXPECT_EQ(trial.fault(in, out), "");
    else
      EXPECT_FOUND(trial.fault(in, out), "by a thread that did not fence_for_copies() since");
  }
}

// 3 x 3 windows of an image 5 wide and 4 high, padded by one: 64 pixels from the corner on.
TEST(EmulatorCopies, PixelsWalkThroughTheImages) {
  const std::string text = R"(
extern "C" __global__ void trial(const Half*, Half* out, const __grid_constant__ TensorMap image,
                                 int x, int y, int n, int u, int v) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ u64 barrier;
  const u32 at = shared_address(&barrier);
  if (threadIdx.x == 0) barrier_init(at, 1);
  __syncthreads();
  wait_for_previous();
  if (threadIdx.x == 0) {
    barrier_expect(at, 64 * 128);
    load_pixels(shared_address(memory), image, at, {0, x, y, n}, {u, v});
  }
  barrier_wait(at, 0);
  for (int i = threadIdx.x; i < 64 * 64; i += 32) {
    const int byte = 2 * i;
    out[i].bits = *(const u16*)(memory + (byte ^ (byte >> 7 & 7) << 4));
  }
})";
  Halves in = small_integers(3 * 4 * 5 * 64, 4);
  cuda::TensorMapOf image{.extents = {64, 5, 4, 3}, .stride_bytes = {128, 640, 2560}};
  image.im2col = {{-1, -1}, {-1, -1}, 64, 64};
  const auto argument = [](int i) { return cuda::value_argument(i); };
  for (const int first : {0, 7, 33})
    for (const auto& [u, v] : {std::array{0, 0}, {1, 2}, {2, 1}}) {
      const Trial trial{text,
                        {.block = {32}, .shared_bytes = 64 * 128},
                        {image, argument(first % 5 - 1), argument(first / 5 % 4 - 1),
                         argument(first / 20), argument(u), argument(v)}};
      Halves out = poisoned(64 * 64);
      trial(in, out);
      for (int pixel = 0; pixel < 64; ++pixel)
        for (int c = 0; c < 64; ++c) {
          const int p = first + pixel, x = p % 5 - 1 + u, y = p / 5 % 4 - 1 + v, n = p / 20;
          const bool inside = x >= 0 && x < 5 && y >= 0 && y < 4 && n < 3;
          const float need =
              inside ? float{in[static_cast<std::size_t>(((n * 4 + y) * 5 + x) * 64 + c)]} : 0.f;
          ASSERT_EQ(static_cast<float>(out[static_cast<std::size_t>(64 * pixel + c)]), need)
              << pixel << ' ' << c;
        }
    }
}

// ---- Tensor Cores

// c[64, 128] = a[64, 64] b[64, 128]: each operand as it lies, or turned, or a from registers.
std::string group_product(bool a_turned, bool b_turned, bool registers) {
  return cuda::wgmma_text("Wgmma", {128, f16, registers, a_turned, b_turned}) +
         "constexpr bool kATurned = " + (a_turned ? "true" : "false") +
         ", kBTurned = " + (b_turned ? "true" : "false") + ";\n#define REGISTERS " +
         (registers ? "1" : "0") + R"(
extern "C" __global__ void trial(const Half* in, float* out, const __grid_constant__ TensorMap a,
                                 const __grid_constant__ TensorMap b) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ u64 barrier;
  const u32 at = shared_address(&barrier), a_at = shared_address(memory), b_at = a_at + 8192;
  if (threadIdx.x == 0) barrier_init(at, 1);
  __syncthreads();
  wait_for_previous();
  if (threadIdx.x == 0) {
    barrier_expect(at, 3 * 8192);
    load_box(a_at, a, at, 0, 0);
    load_box(b_at, b, at, 0, 0);
    if (kBTurned) load_box(b_at + 8192, b, at, 64, 0);
  }
  barrier_wait(at, 0);
  constexpr MatrixMultiply kShape = wgmma64xNx16(128);
  float d[64];
  wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    const u64 right = kBTurned ? turned_swizzled_tile(b_at + 2048 * k, 8192)
                               : swizzled_tile(b_at + 32 * k);
#if REGISTERS
      u32 mine[4];
      for (int i = 0; i < 4; ++i) {
        const Place p = kShape.a.at(threadIdx.x, 2 * i);
        mine[i] = *(const u32*)(in + 64 * p.row + 16 * k + p.column);
      }
      Wgmma::run(d, mine, right, k > 0);
#else
      const u64 left = kATurned ? turned_swizzled_tile(a_at + 2048 * k, 8192)
                                : swizzled_tile(a_at + 32 * k);
      Wgmma::run(d, left, right, k > 0);
#endif
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (int e = 0; e < 64; ++e) {
    const Place p = kShape.d.at(threadIdx.x, e);
    out[128 * p.row + p.column] = d[e];
  }
})";
}

TEST(EmulatorProducts, WgmmaOfEveryForm) {
  const Halves a = small_integers(64 * 64, 5), b = small_integers(64 * 128, 6);
  const auto A = [&](int m, int k) {
    return static_cast<float>(a[static_cast<std::size_t>(64 * m + k)]);
  };
  const auto B = [&](int k, int n) {
    return static_cast<float>(b[static_cast<std::size_t>(128 * k + n)]);
  };
  for (const auto& [a_turned, b_turned, registers] : {std::array{false, false, false},
                                                      {true, false, false},
                                                      {false, true, false},
                                                      {true, true, false},
                                                      {false, false, true},
                                                      {false, true, true}}) {
    Halves in;
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 64; ++j) in.push_back(a_turned ? A(j, i) : A(i, j));
    if (b_turned)
      in.insert(in.end(), b.begin(), b.end());
    else
      for (int n = 0; n < 128; ++n)
        for (int k = 0; k < 64; ++k) in.push_back(B(k, n));
    cuda::TensorMapOf of_a = cuda::swizzled_boxes(f16, 64, 64, 64),
                      of_b = b_turned ? cuda::swizzled_boxes(f16, 64, 128, 64)
                                      : cuda::swizzled_boxes(f16, 128, 64, 128);
    of_b.memory.bytes = 64 * 64 * 2;
    const Trial trial{group_product(a_turned, b_turned, registers),
                      {.block = {128}, .shared_bytes = 3 * 8192},
                      {of_a, of_b}};
    std::vector<float> out(64 * 128, NAN);
    trial(in, out);
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < 128; ++n) {
        float need = 0;
        for (int k = 0; k < 64; ++k) need += A(m, k) * B(k, n);
        ASSERT_EQ(out[static_cast<std::size_t>(128 * m + n)], need)
            << m << ' ' << n << ' ' << a_turned << b_turned << registers;
      }
  }
}

// c[16, 8] = a[16, 16] b[16, 8] from shared memory, by one instruction or two; c goes back by
// stmatrix.
TEST(EmulatorProducts, MmaAndMatricesInSharedMemory) {
  const std::string text = R"(
extern "C" __global__ void trial(const Half* in, Half* out) {
  extern __shared__ __align__(16) Half tiles[];
  wait_for_previous();
  for (int i = threadIdx.x; i < 384; i += 32) tiles[i] = in[i];
  __syncwarp();
  const int lane = threadIdx.x;
  const Place row = ldmatrix_row_of_a(lane);
  u32 a[4], b[2], m[4] = {};
  load_matrices(a, shared_address(tiles + 16 * row.row + row.column));
  load_matrices_transposed(b, shared_address(tiles + 256 + 8 * (lane % 16)));
  float d[4] = {};
  if (WIDE) {
    Half::multiply(d, a, b);
  } else {
    for (int i = 0; i < 2; ++i) {
      const u32 left[2] = {a[2 * i], a[2 * i + 1]}, right[1] = {b[i]};
      Half::multiply(d, left, right);
    }
  }
  __syncwarp();
  for (int i = 0; i < 2; ++i) m[i] = Half::pair(d[2 * i], d[2 * i + 1]);
  store_matrices(shared_address(tiles + 8 * lane), m);
  __syncwarp();
  for (int i = lane; i < 128; i += 32) out[i] = tiles[i];
})";
  Halves in = small_integers(384, 9);
  for (const std::string wide : {"true", "false"}) {
    std::string own = text;
    own.replace(own.find("WIDE"), 4, wide);
    Halves out = poisoned(128);
    Trial{own, {.block = {32}, .shared_bytes = 768}}(in, out);
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 8; ++n) {
        float need = 0;
        for (std::size_t k = 0; k < 16; ++k)
          need += static_cast<float>(in[16 * m + k]) * static_cast<float>(in[256 + 8 * k + n]);
        EXPECT_EQ(static_cast<float>(out[8 * m + n]), need) << m << ' ' << n;
      }
  }
}

}  // namespace
}  // namespace tensor::emulator
