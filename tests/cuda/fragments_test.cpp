// The maps of Tensor-Core fragments: complete, composable, and those of the hardware.
#include "src/kernels/cuda/templates/fragments.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "src/kernels/cuda/driver/device.h"
#include "tests/cuda/compiled.h"

namespace tensor::device {

std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << '(' << p.row << ", " << p.column << ')';
}

namespace {

std::vector<MatrixMultiply> multiplies() {
  std::vector<MatrixMultiply> all = {kMma16x8x8, kMma16x8x16, kMma16x8x8Tf32, kMma16x8x32Bytes};
  for (int n = 8; n <= 256; n += 8) all.push_back(wgmma64xNx16(n));
  return all;
}

void expect_bijection(const Fragment& f) {
  std::set<std::pair<int, int>> places;
  for (int lane = 0; lane < f.lanes; ++lane)
    for (int element = 0; element < f.elements; ++element) {
      const Place p = f.at(lane, element);
      EXPECT_TRUE(p.row >= 0 && p.row < f.rows && p.column >= 0 && p.column < f.columns) << p;
      EXPECT_TRUE(places.emplace(p.row, p.column).second) << p << " is held twice";
    }
  EXPECT_EQ(static_cast<int>(places.size()), f.rows * f.columns);
}

TEST(Fragments, HoldEveryElementOnce) {
  for (const MatrixMultiply& mm : multiplies()) {
    SCOPED_TRACE(mm.n);
    expect_bijection(mm.a);
    if (mm.b.lanes > 0) expect_bijection(mm.b);
    expect_bijection(mm.d);
  }
  expect_bijection(kLdmatrix4);
  expect_bijection(kLdmatrix4Transposed);
}

TEST(Fragments, HaveTheShapesOfTheProduct) {
  for (const MatrixMultiply& mm : multiplies()) {
    EXPECT_EQ((Place{mm.a.rows, mm.a.columns}), (Place{mm.m, mm.k}));
    EXPECT_EQ((Place{mm.b.rows, mm.b.columns}), (Place{mm.k, mm.n}));
    EXPECT_EQ((Place{mm.d.rows, mm.d.columns}), (Place{mm.m, mm.n}));
  }
}

Place turned(Place p) { return {p.column, p.row}; }
Place sum(Place a, Place b) { return {a.row + b.row, a.column + b.column}; }

TEST(Fragments, LdmatrixFeedsMma) {
  // Where an element that ldmatrix gave to a lane came from is where mma expects it: of operands b,
  // in the second of two eight columns further on.
  for (int lane = 0; lane < 32; ++lane)
    for (int element = 0; element < 8; ++element) {
      const Place in_a = kMma16x8x16.a.at(lane, element);
      const Place in_b = sum(kMma16x8x16.b.at(lane, element % 4), {0, element / 4 * 8});
      const Place at = kLdmatrix4.at(lane, element);
      EXPECT_EQ(sum(ldmatrix_row_of_a(at.row), {0, at.column}), in_a);
      EXPECT_EQ(sum(ldmatrix_row_of_b(at.row), {0, at.column}), turned(in_b));
      const Place of_turned = kLdmatrix4Transposed.at(lane, element);
      EXPECT_EQ(sum(ldmatrix_row_of_a(of_turned.row), {0, of_turned.column}), in_b);
      EXPECT_EQ(sum(ldmatrix_row_of_b(of_turned.row), {0, of_turned.column}), turned(in_a));
    }
}

TEST(Fragments, LdmatrixFeedsTf32) {
  // An element is two of ldmatrix's, four of them 16 bytes.
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place at = kLdmatrix4.at(lane, 2 * i);
      EXPECT_EQ(kLdmatrix4.at(lane, 2 * i + 1), sum(at, {0, 1}));
      const Place in_b = sum(kMma16x8x8Tf32.b.at(lane, i % 2), {0, i / 2 * 8});
      EXPECT_EQ(sum(ldmatrix_row_of_a(at.row, 4), {0, at.column / 2}),
                kMma16x8x8Tf32.a.at(lane, i));
      EXPECT_EQ(sum(ldmatrix_row_of_b(at.row, 4), {0, at.column / 2}), turned(in_b));
    }
}

TEST(Fragments, LdmatrixFeedsBytes) {
  // An element of ldmatrix is two of them, sixteen 16 bytes.
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 16; ++i) {
      const Place at = kLdmatrix4.at(lane, i / 2), more = {0, 2 * at.column + i % 2};
      const Place in_b = sum(kMma16x8x32Bytes.b.at(lane, i % 8), {0, i / 8 * 8});
      EXPECT_EQ(sum(ldmatrix_row_of_a(at.row, 16), more), kMma16x8x32Bytes.a.at(lane, i));
      EXPECT_EQ(sum(ldmatrix_row_of_b(at.row, 16), more), turned(in_b));
    }
}

TEST(Fragments, SumsBecomeOperands) {
  // Two units of eight columns are operand a of the next product, and what stmatrix stores.
  for (int lane = 0; lane < 128; ++lane)
    for (int element = 0; element < 8; ++element) {
      const Place unit = {0, element / 4 * 8};
      EXPECT_EQ(sum(kGroupSums.at(lane, element % 4), unit), wgmma64xNx16(8).a.at(lane, element));
      if (lane >= 32) continue;
      const Place in_sums = sum(kWarpSums.at(lane, element % 4), unit);
      EXPECT_EQ(in_sums, kMma16x8x16.a.at(lane, element));
      const Place at = kLdmatrix4.at(lane, element);
      EXPECT_EQ(sum(ldmatrix_row_of_a(at.row), {0, at.column}), in_sums);
    }
}

TEST(Fragments, SumsLieAlikeWhateverTheInstruction) {
  for (const MatrixMultiply& mm : multiplies())
    for (int lane = 0; lane < mm.d.lanes; ++lane)
      for (int element = 0; element < mm.d.elements; ++element) {
        const Place in_warp =
            sum(kWarpSums.at(lane % 32, element % 4), {lane / 32 * 16, element / 4 * 8});
        EXPECT_EQ(mm.d.at(lane, element), in_warp);
      }
}

TEST(Fragments, LanesAreWherePlaceOfLaneSays) {
  for (int lane = 0; lane < 128; ++lane) {
    EXPECT_EQ(place_of_lane(lane), kGroupSums.of_lane(lane));
    if (lane >= 32) continue;
    EXPECT_EQ(place_of_lane(lane), kWarpSums.of_lane(lane));
    EXPECT_EQ(place_of_lane(lane, 1), kMma16x8x8Tf32.a.of_lane(lane));
    EXPECT_EQ(place_of_lane(lane, 1), turned(kMma16x8x8Tf32.b.of_lane(lane)));
  }
}

TEST(Fragments, LanesThatShareARowOrColumnsAreWhereSumsAcrossThemLookForThem) {
  for (int lane = 0; lane < 32; ++lane) {
    const Place mine = kWarpSums.of_lane(lane);
    EXPECT_EQ(mine.row, kWarpSums.of_lane(lane / 4 * 4).row);    // scattered_sum<4, 1>
    EXPECT_EQ(mine.column, 2 * (lane % 4));                      // its sum's number, twice
    EXPECT_EQ(mine.column, kWarpSums.of_lane(lane % 4).column);  // scattered_sum<8, 4>
    EXPECT_EQ(mine.row, lane / 4);                               // its sum's number
  }
}

// What one instruction computes, from the maps alone.
TEST(Fragments, ComputeTheProduct) {
  std::mt19937 random(5);
  for (const MatrixMultiply& mm : {kMma16x8x8, kMma16x8x16, kMma16x8x8Tf32}) {
    const auto matrix = [&](int rows, int columns) {
      std::vector<std::vector<int>> m(rows, std::vector<int>(columns));
      for (auto& row : m)
        for (int& x : row) x = static_cast<int>(random() % 9) - 4;
      return m;
    };
    const auto a = matrix(mm.m, mm.k), b = matrix(mm.k, mm.n);
    // Every product of two registers whose k agree is added to the register of its row and column.
    std::vector<std::vector<int>> d(mm.m, std::vector<int>(mm.n));
    for (int la = 0; la < 32; ++la)
      for (int ea = 0; ea < mm.a.elements; ++ea)
        for (int lb = 0; lb < 32; ++lb)
          for (int eb = 0; eb < mm.b.elements; ++eb) {
            const Place x = mm.a.at(la, ea), y = mm.b.at(lb, eb);
            if (x.column == y.row) d[x.row][y.column] += a[x.row][x.column] * b[y.row][y.column];
          }
    for (int lane = 0; lane < 32; ++lane)
      for (int element = 0; element < mm.d.elements; ++element) {
        const Place p = mm.d.at(lane, element);
        int expected = 0;
        for (int k = 0; k < mm.k; ++k) expected += a[p.row][k] * b[k][p.column];
        EXPECT_EQ(d[p.row][p.column], expected);
      }
  }
}

// ---- The same on a GPU: operands are put into registers by these maps, multiplied by the real
// instruction, and the sums taken out by these maps. Small whole numbers, so the result is exact.

constexpr const char* kKernels = R"(
#include "fragments.h"
using namespace tensor::device;

// The number of two 16-bit elements in one register, given as the upper halves of floats (bf16).
__device__ unsigned pair(const float* x, int low, int high) {
  return __float_as_uint(x[low]) >> 16 | (__float_as_uint(x[high]) & 0xffff0000u);
}
// Where the lane's element lies in a row-major matrix.
__device__ int at(const Fragment& f, int element) {
  const Place p = f.at(threadIdx.x, element);
  return p.row * f.columns + p.column;
}
template <int kRegisters>
__device__ void load(unsigned (&registers)[kRegisters], const Fragment& f, const float* x) {
  for (int i = 0; i < kRegisters; ++i) registers[i] = pair(x, at(f, 2 * i), at(f, 2 * i + 1));
}
template <int kRegisters>
__device__ void load_rounded(unsigned (&registers)[kRegisters], const Fragment& f, const float* x) {
  for (int i = 0; i < kRegisters; ++i) registers[i] = __float_as_uint(x[at(f, i)]);
}
template <int kRegisters>
__device__ void store(const float (&registers)[kRegisters], const Fragment& f, float* x) {
  for (int i = 0; i < kRegisters; ++i) x[at(f, i)] = registers[i];
}

extern "C" __global__ void mma_16x8x8(const float* a, const float* b, float* out) {
  unsigned x[2], y[1];
  float d[4] = {};
  load(x, kMma16x8x8.a, a);
  load(y, kMma16x8x8.b, b);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},"
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x[0]), "r"(x[1]), "r"(y[0]));
  store(d, kMma16x8x8.d, out);
}

extern "C" __global__ void mma_16x8x8_tf32(const float* a, const float* b, float* out) {
  unsigned x[4], y[2];
  float d[4] = {};
  load_rounded(x, kMma16x8x8Tf32.a, a);
  load_rounded(y, kMma16x8x8Tf32.b, b);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},"
               "{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  store(d, kMma16x8x8Tf32.d, out);
}

__device__ void multiply(float (&d)[4], const unsigned (&x)[4], const unsigned (&y)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},"
               "{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}

extern "C" __global__ void mma_16x8x16(const float* a, const float* b, float* out) {
  unsigned x[4], y[2];
  float d[4] = {};
  load(x, kMma16x8x16.a, a);
  load(y, kMma16x8x16.b, b);
  multiply(d, x, y);
  store(d, kMma16x8x16.d, out);
}

// Operand a through shared memory and ldmatrix.
extern "C" __global__ void ldmatrix_16x8x16(const float* a, const float* b, float* out) {
  __shared__ alignas(16) unsigned short tile[16][16];
  for (int i = threadIdx.x; i < 256; i += 32) tile[i / 16][i % 16] = __float_as_uint(a[i]) >> 16;
  __syncwarp();
  unsigned x[4], y[2];
  float d[4] = {};
  const Place row = ldmatrix_row_of_a(threadIdx.x);
  const unsigned address = __cvta_generic_to_shared(&tile[row.row][row.column]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
  load(y, kMma16x8x16.b, b);
  multiply(d, x, y);
  store(d, kMma16x8x16.d, out);
}
)";

// Operand a from registers, b in shared memory without swizzle: cores of 8 columns (n) by 8 rows
// (k), 128 bytes each, the two along k beside each other (PTX ISA, "Matrix descriptor format").
constexpr const char* kWgmma = R"(
extern "C" __global__ void wgmma_64x24x16(const float* a, const float* b, float* out) {
  __shared__ alignas(128) unsigned short cores[24 / 8][2][8][8];
  for (int i = threadIdx.x; i < 16 * 24; i += 128) {
    const int k = i / 24, n = i % 24;
    cores[n / 8][k / 8][n % 8][k % 8] = __float_as_uint(b[i]) >> 16;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  constexpr auto mm = wgmma64xNx16(24);
  unsigned x[4];
  float d[12] = {};
  load(x, mm.a, a);
  const unsigned long long first = __cvta_generic_to_shared(cores);
  const unsigned long long along_k = 128, along_n = 256;
  const unsigned long long descriptor = first >> 4 | along_k >> 4 << 16 | along_n >> 4 << 32;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11},{%12,%13,%14,%15},%16,1,1,1,0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(descriptor));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  store(d, mm.d, out);
}
)";

cuda::KernelSource source(const std::string& text) {
  std::ifstream file(TENSOR_TEST_DATA "/../../src/kernels/cuda/templates/fragments.h");
  std::ostringstream header;
  header << file.rdbuf();
  return {"fragments.cu",
          text,
          cuda::Headers::List{{"fragments.h", header.str()}},
          {"-default-device"}};
}

TEST(Fragments, CompileForEveryArchitectureThatHasThem) {
  if (const std::string reason = cuda::no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const cuda::Compiler& compiler = cuda::Compiler::get();
  for (const int architecture : compiler.architectures()) {
    if (architecture < kMma16x8x16.architecture) continue;  // bf16 came with m16n8k16
    EXPECT_NO_THROW(compiler.compile(source(kKernels), "sm_" + std::to_string(architecture)));
  }
  EXPECT_NO_THROW(compiler.compile(source(std::string(kKernels) + kWgmma), "sm_90a"));
}

class FragmentsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = &cuda::Device::get();
      cuda::Compiler::get();
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void expect_product(const std::string& text, const std::string& name, const MatrixMultiply& mm) {
    std::mt19937 random(11);
    std::vector<float> a(static_cast<std::size_t>(mm.m * mm.k)),
        b(static_cast<std::size_t>(mm.k * mm.n)), got(static_cast<std::size_t>(mm.m * mm.n));
    for (auto* x : {&a, &b})
      for (float& value : *x) value = static_cast<float>(random() % 33) - 16;  // exact in bf16
    const auto bytes = [](std::vector<float>& x) { return std::as_writable_bytes(std::span(x)); };
    const auto buffer = [&](std::vector<float>& x) {
      return cuda::Buffer(*device_, std::ssize(x) * 4);
    };
    cuda::Buffer on_a = buffer(a), on_b = buffer(b), on_out = buffer(got);
    on_a.upload(bytes(a));
    on_b.upload(bytes(b));
    for (float& value : got) value = -1e9f;  // what is not written stays seen
    on_out.upload(bytes(got));
    const auto architecture = device_->info().architecture();
    cuda::Kernel kernel(*device_, cuda::Compiler::get().compile(source(text), architecture), name);
    cuda::Stream stream(*device_);
    kernel(stream, {.block = {static_cast<unsigned>(mm.d.lanes)}}, on_a.address(), on_b.address(),
           on_out.address());
    stream.synchronize();
    on_out.download(bytes(got));
    for (int i = 0; i < mm.m; ++i)
      for (int j = 0; j < mm.n; ++j) {
        float expected = 0;
        for (int k = 0; k < mm.k; ++k)
          expected +=
              a[static_cast<std::size_t>(i * mm.k + k)] * b[static_cast<std::size_t>(k * mm.n + j)];
        EXPECT_EQ(got[static_cast<std::size_t>(i * mm.n + j)], expected) << i << ", " << j;
      }
  }
  cuda::Device* device_ = nullptr;
};

TEST_F(FragmentsOnGpu, AreThoseOfMma) {
  if (device_->info().capability < 80)
    GTEST_SKIP() << device_->info().name << " multiplies no bf16: need sm_80 or newer";
  expect_product(kKernels, "mma_16x8x8", kMma16x8x8);
  expect_product(kKernels, "mma_16x8x16", kMma16x8x16);
  expect_product(kKernels, "mma_16x8x8_tf32", kMma16x8x8Tf32);
  expect_product(kKernels, "ldmatrix_16x8x16", kMma16x8x16);
}

TEST_F(FragmentsOnGpu, AreThoseOfWgmma) {
  if (device_->info().capability != 90)
    GTEST_SKIP() << device_->info().name << " has no wgmma instructions: need a Hopper GPU (sm_90)";
  expect_product(std::string(kKernels) + kWgmma, "wgmma_64x24x16", wgmma64xNx16(24));
}

}  // namespace
}  // namespace tensor::device
