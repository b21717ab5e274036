// Every wrapper of an instruction compiles to machine code where the instruction exists.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/kernels/cuda/driver/compiler.h"
#include "src/kernels/cuda/templates.h"
#include "src/kernels/cuda/wgmma.h"
#include "tests/cuda/compiled.h"

namespace tensor::cuda {
namespace {

void expect_compiles(const std::string& text, const std::string& architecture) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const KernelSource source{"ptx.cu",
                            "#include \"ptx.h\"\nusing namespace tensor::device;\n" + text,
                            device_headers(),
                            {"-default-device"}};
  EXPECT_FALSE(Compiler::get().compile(source, architecture).code.empty());
}

TEST(Ptx, Sm75) {
  expect_compiles(R"(
extern "C" __global__ void k(float* out) {
  extern __shared__ unsigned char memory[];
  const u32 at = shared_address(memory);
  float d[4] = {};
  u32 a[2], b[1] = {7}, m[4];
  load_matrices(a, at);
  load_matrices_transposed(m, at);
  Half::multiply(d, a, b);
  named_barrier(1, 32);
  named_barrier_arrive(2, 64);
  *out = d[0] + m[0];
})",
                  "sm_75");
}

TEST(Ptx, Sm80) {
  expect_compiles(R"(
extern "C" __global__ void k(float* out) {
  extern __shared__ unsigned char memory[];
  const u32 at = shared_address(memory);
  copy_16(at, out);
  copy_16(at, out, 8);
  copy_commit();
  copy_wait<1>();
  float d[4] = {};
  u32 a[4], b[2], c[2] = {Tf32::rounded(*out), 1}, e[1] = {2};
  load_matrices(a, at);
  load_matrices(b, at);
  load_matrices_transposed(a, at);
  load_matrices_transposed(b, at);
  Half::multiply(d, a, b);
  Bfloat16::multiply(d, a, b);
  Bfloat16::multiply(d, c, e);
  Tf32::multiply(d, a, c);
  *out = d[0];
})",
                  "sm_80");
}

TEST(Ptx, Sm90) {
  const std::string text = R"(
extern "C" __global__ void __cluster_dims__(2, 1, 1)
    k(const __grid_constant__ TensorMap map, float* out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 at = shared_address(memory), barrier = at + 1024;
  barrier_init(barrier, 1);
  barrier_init_fence();
  cluster_arrive();
  cluster_wait();
  barrier_expect(barrier, 4096);
  load_box(at, map, barrier, {1});
  load_box(at, map, barrier, {1, 2});
  load_box(at, map, barrier, {1, 2, 3});
  load_box(at, map, barrier, {1, 2, 3, 4});
  load_box(at, map, barrier, {1, 2, 3, 4, 5});
  load_box_to_all(at, map, barrier, {1, 2}, 3);
  load_box_to_all(at, map, barrier, {1, 2, 3}, 3);
  load_pixels(at, map, barrier, {0, -1, -1, 0}, {1, 2});
  barrier_wait(barrier, 0);
  float first[4], two[2], both[4] = {};
  const u32 peer = peer_address(at, cluster_rank() ^ 1);
  send(peer, peer + 1024, {1, 2});
  send(peer, peer + 1024, {1, 2, 3, 4});
  barrier_wait_for_sent(barrier, 1);
  load_own(first, at);
  load_own(two, at);
  barrier_arrive_peer(peer_address(barrier, 1));
  const u32 a[4] = {1, 2, 3, 4};
  wgmma_fence();
  FromMemory::run(both, swizzled_tile(at), turned_swizzled_tile(at, 8192), 0);
  FromRegisters::run(both, a, turned_swizzled_tile(at, 8192), 1);
  Turned::run(both, turned_swizzled_tile(at, 8192), swizzled_tile(at), 1);
  wgmma_commit();
  wgmma_wait<0>();
  store_box(map, at, {1});
  store_box(map, at, {1, 2});
  store_box(map, at, {1, 2, 3});
  store_box(map, at, {1, 2, 3, 4});
  store_box(map, at, {1, 2, 3, 4, 5});
  store_commit();
  store_wait();
  *out = first[0] + two[0] + both[0];
})";
  expect_compiles(wgmma_text("FromMemory", {8, f16, false, false, true}) +
                      wgmma_text("FromRegisters", {8, bf16, true, false, true}) +
                      wgmma_text("Turned", {.columns = 8, .dtype = bf16, .a_turned = true}) + text,
                  "sm_90a");
}

// That would be MEMBAR.ALL.GPU, a fence of all memory; what initialises barriers is none.
TEST(Ptx, NothingIsReleasedToAllOfACluster) {
  const std::string initialised = "fence.mbarrier_init.release.cluster";
  for (const auto& [name, text] : device_headers())
    for (const std::string release :
         {"release.cluster", "acq_rel.cluster", "arrive.release.aligned"})
      for (std::size_t at = text.find(release); at != std::string::npos;
           at = text.find(release, at + 1)) {
        const std::size_t end = at + release.size();
        EXPECT_EQ(text.substr(end - std::min(end, initialised.size()), initialised.size()),
                  initialised)
            << name;
      }
}

}  // namespace
}  // namespace tensor::cuda
