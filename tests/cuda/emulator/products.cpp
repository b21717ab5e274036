// Emulated Tensor Cores: mma.sync, ldmatrix, stmatrix and wgmma, by the maps of fragments.h.
#include <array>
#include <bit>
#include <cstring>

#include "src/kernels/cuda/templates/fragments.h"
#include "tensor/dtype.h"
#include "tests/cuda/emulator/engine.h"

namespace tensor::emulator {
namespace {

using device::Fragment;
using device::MatrixMultiply;
using device::Place;
using emulated::Number;

float float_of(u16 bits, Number number) {
  if (number == Number::bfloat16) return std::bit_cast<float>(u32{bits} << 16);
  static const std::vector<float> halves = [] {
    std::vector<float> all(1 << 16);
    for (u32 i = 0; i < all.size(); ++i)
      all[i] = tensor::detail::float_from_half(static_cast<u16>(i));
    return all;
  }();
  return halves[bits];
}

float float_of_byte(u32 bits) { return static_cast<float>(static_cast<std::int8_t>(bits)); }

/// Element `index` of registers that hold two each, or four bytes.
float element_of(const u32* registers, int index, Number number) {
  if (number == Number::byte) return float_of_byte(registers[index / 4] >> index % 4 * 8);
  const u32 both = registers[index / 2];
  return float_of(static_cast<u16>(index % 2 ? both >> 16 : both), number);
}

/// Sum number `index` of those that a thread has; of bytes they are ints.
float sum_of(const void* sums, std::size_t index, Number number) {
  return number == Number::byte ? 0 : static_cast<const float*>(sums)[index];
}
/// It becomes `sum`, or, of bytes, more by that, which is exact: a product has 32 of depth. It
/// wraps around.
void set_sum(void* sums, std::size_t index, float sum, Number number, bool accumulates = true) {
  if (number != Number::byte) {
    static_cast<float*>(sums)[index] = sum;
    return;
  }
  int& to = static_cast<int*>(sums)[index];
  const u32 before = accumulates ? static_cast<u32>(to) : 0;
  to = static_cast<int>(before + static_cast<u32>(static_cast<int>(sum)));
}

struct WarpProduct {
  void* d;
  const u32 *a, *b;
  int k;
  Number number;
};

void execute_in_warp(const std::vector<void*>& lanes) {
  const auto& first = *static_cast<WarpProduct*>(lanes[0]);
  const bool is_tf32 = first.number == Number::tf32;
  const MatrixMultiply& mm = is_tf32         ? device::kMma16x8x8Tf32
                             : first.k == 32 ? device::kMma16x8x32Bytes
                             : first.k == 16 ? device::kMma16x8x16
                                             : device::kMma16x8x8;
  float a[16][32], b[32][8];
  const auto gather = [&](const Fragment& f, int lane, const u32* registers, auto set) {
    for (int e = 0; e < f.elements; ++e) {
      const Place p = f.at(lane, e);
      // The hardware looks at ten bits after the point.
      set(p.row, p.column,
          is_tf32 ? std::bit_cast<float>(registers[e] & ~0x1fffu)
                  : element_of(registers, e, first.number));
    }
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<WarpProduct*>(lanes[static_cast<std::size_t>(lane)]);
    gather(mm.a, lane, mine.a, [&](int r, int c, float x) { a[r][c] = x; });
    gather(mm.b, lane, mine.b, [&](int r, int c, float x) { b[r][c] = x; });
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto& mine = *static_cast<WarpProduct*>(lanes[static_cast<std::size_t>(lane)]);
    for (int e = 0; e < mm.d.elements; ++e) {
      const Place p = mm.d.at(lane, e);
      const auto index = static_cast<std::size_t>(e);
      float sum = sum_of(mine.d, index, mine.number);
      for (int k = 0; k < mm.k; ++k) sum += a[p.row][k] * b[k][p.column];
      set_sum(mine.d, index, sum, mine.number);
    }
  }
}

/// Of wgmma's sums: row * columns + column of every thread's every element.
const std::vector<int>& places_of_sums(int columns) {
  static std::map<int, std::vector<int>> known;
  std::vector<int>& places = known[columns];
  if (places.empty()) {
    const MatrixMultiply mm = device::wgmma64xNx16(columns);
    for (int thread = 0; thread < 128; ++thread)
      for (int e = 0; e < mm.d.elements; ++e) {
        const Place p = mm.d.at(thread, e);
        places.push_back(p.row * columns + p.column);
      }
  }
  return places;
}

bool are_same(const emulated::GroupProduct& a, const emulated::GroupProduct& b) {
  return a.columns == b.columns && a.number == b.number && a.a_turned == b.a_turned &&
         a.b_turned == b.b_turned && a.has_registers == b.has_registers &&
         a.accumulates == b.accumulates && a.a == b.a && a.b == b.b;
}

}  // namespace

// ---- Warps

void Engine::multiply(void* d, const u32* a, const u32* b, int k, Number number) {
  called_from(__builtin_return_address(0));
  WarpProduct mine{d, a, b, k, number};
  const char* what = k == 32 ? "mma.m16n8k32" : k == 16 ? "mma.m16n8k16" : "mma.m16n8k8";
  together_in_warp(~0u, what, &mine,
                   [](const std::vector<void*>& lanes) { execute_in_warp(lanes); });
}

namespace {
struct WarpMatrices {
  u32 row;
  u32* m;
  bool failed = false;
};

// [lane][element]
constexpr std::array<Place, 32 * 8> all_places(const Fragment& f) {
  std::array<Place, 32 * 8> all;
  for (int i = 0; i < 32 * 8; ++i) all[static_cast<std::size_t>(i)] = f.at(i / 8, i % 8);
  return all;
}
const Place& place_in_matrices(bool transposed, std::size_t lane, int element) {
  static constexpr auto kAll = all_places(device::kLdmatrix4),
                        kTransposed = all_places(device::kLdmatrix4Transposed);
  return (transposed ? kTransposed : kAll)[8 * lane + static_cast<std::size_t>(element)];
}
}  // namespace

void Engine::load_matrices(u32* m, int count, bool transposed, u32 row) {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  const auto lane = static_cast<int>(current_->lane());
  if (lane < 8 * count) {
    if (row % 16 != 0) fault("ldmatrix from a row that is not a multiple of 16 bytes");
    fault_if(shared.read_fault(row, 16));
  }
  WarpMatrices mine{row, m};
  together_in_warp(~0u, "ldmatrix", &mine, [&](const std::vector<void*>& lanes) {
    for (std::size_t to = 0; to < 32; ++to)
      for (int i = 0; i < count; ++i) {
        u16 pair[2];
        for (int j = 0; j < 2; ++j) {
          const device::Place p = place_in_matrices(transposed, to, 2 * i + j);
          const auto* source = static_cast<WarpMatrices*>(lanes[static_cast<std::size_t>(p.row)]);
          std::memcpy(&pair[j], shared.at(source->row + 2 * static_cast<u32>(p.column)), 2);
        }
        static_cast<WarpMatrices*>(lanes[to])->m[i] = u32{pair[0]} | u32{pair[1]} << 16;
      }
  });
}

void Engine::store_matrices(u32 row, const u32* m, int count, bool transposed) {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  const auto lane = static_cast<int>(current_->lane());
  if (lane < 8 * count) {
    if (row % 16 != 0) fault("stmatrix to a row that is not a multiple of 16 bytes");
    fault_if(shared.write_fault(row, 16));
  }
  u32 registers[4];
  std::memcpy(registers, m, static_cast<std::size_t>(count) * sizeof(u32));
  WarpMatrices mine{row, registers};
  together_in_warp(~0u, "stmatrix", &mine, [&](const std::vector<void*>& lanes) {
    for (std::size_t from = 0; from < 32; ++from)
      for (int i = 0; i < count; ++i)
        for (int j = 0; j < 2; ++j) {
          const device::Place p = place_in_matrices(transposed, from, 2 * i + j);
          const auto* target = static_cast<WarpMatrices*>(lanes[static_cast<std::size_t>(p.row)]);
          const auto value =
              static_cast<u16>(static_cast<WarpMatrices*>(lanes[from])->m[i] >> 16 * j);
          std::memcpy(shared.at(target->row + 2 * static_cast<u32>(p.column)), &value, 2);
        }
  });
  if (lane < 8 * count) {
    shared.set(row, 16, ByteState::written);
    current_->unfenced.emplace_back(row, 16);
  }
}

// ---- Warpgroups

void Engine::group_multiply(const emulated::GroupProduct& product) {
  called_from(__builtin_return_address(0));
  Block& block = *current_->block;
  const u32 group = current_->number / 128, member = current_->number % 128;
  if (128 * group + 128 > block_threads_) fault("wgmma by less than 128 threads");
  for (u32 i = 0; i < 128; ++i)
    if (block.threads[128 * group + i]->is_done)
      fault("wgmma with thread " + std::to_string(128 * group + i) + ", which has ended");
  emulated::GroupProduct mine = product;
  WarpgroupProducts& products = block.products[group];
  together(block.warpgroups[group], member, 128, 128, "wgmma", &mine,
           [&](const std::vector<void*>& threads) {
             WarpgroupProducts::Product& p = products.pending.emplace_back();
             p.number = ++products.begun;
             p.what = product;
             for (void* thread : threads) {
               const auto& one = *static_cast<emulated::GroupProduct*>(thread);
               if (!are_same(one, product))
                 fault("wgmma whose threads do not agree on its operands");
               p.sums.push_back(one.sums);
               if (product.has_registers)
                 p.a_registers.push_back({one.a_registers[0], one.a_registers[1],
                                          one.a_registers[2], one.a_registers[3]});
             }
           });
  current_->last_product = products.begun;
  current_->has_uncommitted_products = true;
}

void Engine::group_commit() {
  called_from(__builtin_return_address(0));
  current_->product_groups.push_back(current_->has_uncommitted_products ? current_->last_product
                                                                        : 0);
  current_->has_uncommitted_products = false;
}

void Engine::group_wait(u32 pending) {
  called_from(__builtin_return_address(0));
  u64 last = 0;
  for (; current_->product_groups.size() > pending; current_->product_groups.pop_front())
    last = std::max(last, current_->product_groups.front());
  finish_products(*current_->block, current_->number / 128, last);
}

void Engine::finish_products(Block& block, u32 group, u64 last) {
  WarpgroupProducts& products = block.products[group];
  for (; !products.pending.empty() && products.pending.front().number <= last;
       products.pending.pop_front())
    execute(block, products.pending.front());
}

/// An operand of `count` rows and 32 bytes of k as a descriptor says: [count][16], or, of bytes,
/// [count][32]. PTX ISA, "Matrix descriptor format" and "Shared memory layout", 128-byte swizzle.
void Engine::read_operand(Block& block, u64 descriptor, bool turned, int count, Number number,
                          std::vector<float>& to) {
  const u32 start = static_cast<u32>(descriptor & 0x3fff) << 4;
  const u32 leading = static_cast<u32>(descriptor >> 16 & 0x3fff) << 4;
  const u32 stride = static_cast<u32>(descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != 1) fault("wgmma of a tile without the 128-byte swizzle is not emulated");
  if ((descriptor >> 49 & 7) != 0) fault("wgmma of a tile with a base offset is not emulated");
  const auto swizzled = [](u32 offset) { return offset ^ (offset >> 7 & 7) << 4; };
  const bool are_bytes = number == Number::byte;
  const int depth = are_bytes ? 32 : 16;
  if (are_bytes && turned) fault("wgmma of bytes that lie turned");
  to.resize(static_cast<std::size_t>(count * depth));
  // Eight elements, or sixteen bytes, lie together: of k, or, turned, of the other axis.
  const int chunks = turned ? count / 8 : 2, lines = turned ? 16 : count;
  for (int line = 0; line < lines; ++line)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const auto l = static_cast<u32>(line), c = static_cast<u32>(chunk);
      const u32 offset = swizzled(start + l / 8 * stride + l % 8 * 128 +
                                  (turned ? c / 8 * leading + c % 8 * 16 : c * 16));
      fault_if(block.shared.engine_read_fault(offset, 16));
      std::uint8_t bytes[16];
      u16 bits[8];
      std::memcpy(bytes, block.shared.at(offset), 16);
      std::memcpy(bits, bytes, 16);
      if (are_bytes) {
        for (int i = 0; i < 16; ++i)
          to[static_cast<std::size_t>(line * depth + 16 * chunk + i)] = float_of_byte(bytes[i]);
        continue;
      }
      for (int i = 0; i < 8; ++i) {
        const int row = turned ? 8 * chunk + i : line, k = turned ? line : 8 * chunk + i;
        to[static_cast<std::size_t>(row * 16 + k)] = float_of(bits[i], number);
      }
    }
}

void Engine::execute(Block& block, const WarpgroupProducts::Product& product) {
  const auto& what = product.what;
  static std::vector<float> a, b, turned;
  if (what.has_registers) {
    constexpr Fragment kA = device::wgmma64xNx16(8).a;
    a.assign(64 * 16, 0);
    for (int thread = 0; thread < 128; ++thread)
      for (int e = 0; e < kA.elements; ++e) {
        const device::Place p = kA.at(thread, e);
        a[static_cast<std::size_t>(p.row * 16 + p.column)] = element_of(
            product.a_registers[static_cast<std::size_t>(thread)].data(), e, what.number);
      }
  } else {
    read_operand(block, what.a, what.a_turned, 64, what.number, a);
  }
  read_operand(block, what.b, what.b_turned, what.columns, what.number, b);
  const auto n = static_cast<std::size_t>(what.columns), depth = b.size() / n;
  turned.resize(depth * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < depth; ++k) turned[k * n + i] = b[i * depth + k];
  std::vector<float> sums(64 * n, 0.f);
  const std::vector<int>& places = places_of_sums(what.columns);
  const std::size_t each = n / 2;
  if (what.accumulates)
    for (std::size_t i = 0; i < places.size(); ++i)
      sums[static_cast<std::size_t>(places[i])] =
          sum_of(product.sums[i / each], i % each, what.number);
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t k = 0; k < depth; ++k) {
      const float x = a[row * depth + k];
      float* to = &sums[row * n];
      const float* from = &turned[k * n];
      for (std::size_t i = 0; i < n; ++i) to[i] += x * from[i];
    }
  for (std::size_t i = 0; i < places.size(); ++i)
    set_sum(product.sums[i / each], i % each, sums[static_cast<std::size_t>(places[i])],
            what.number, what.accumulates);
}

}  // namespace tensor::emulator
