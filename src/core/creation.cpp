#include "tensor/creation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "src/core/device_seam.h"
#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/core/view.h"

namespace tensor {
namespace {

// Fills a fresh tensor from a function of the flat index.
template <class F>
Tensor generate(const Shape& shape, DType dtype, F value_at) {
  Tensor result = empty(shape, dtype);
  dispatch(dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    T* out = mutable_view(result).as<T>();
    for (std::int64_t i = 0; i < result.size(); ++i) out[i] = convert<T>(value_at(i));
  });
  return result;
}

std::int64_t byte_count(const Shape& shape, DType dtype) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(shape), item_size(dtype), &bytes))
    fail("shape", "the shape ", shape, " of ", dtype, " takes more than 2^63 bytes");
  return bytes;
}

Tensor foreign(std::byte* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
               const std::optional<Strides>& strides, bool read_only, const Device& device = {}) {
  byte_count(shape, dtype);
  if (strides && strides->rank() != shape.rank())
    fail("from_memory", "got ", strides->rank(), " strides for the shape ", shape, ", need ",
         shape.rank());
  if (device.is_cuda()) detail::allocate_on(device, 0);  // or it tells what there is
  if (dtype == boolean && read_only)                     // other memory may be for results
    check_bools("from_memory", data, shape, strides ? *strides : row_major(shape));
  auto storage = std::make_shared<detail::Storage>();
  storage->data = data;
  // A block nobody owns still needs an identity of its own for shares_storage.
  storage->owner = owner ? std::move(owner) : std::shared_ptr<const void>(data, [](const void*) {});
  storage->read_only = read_only;
  storage->device = device;
  detail::about_to_expose(*storage);  // whoever gave the memory may write into it at any time
  detail::TensorImpl impl;
  impl.type = {shape, dtype};
  impl.strides = strides ? *strides : row_major(shape);
  impl.storage = std::move(storage);
  for (int axis = 0; axis < shape.rank(); ++axis)
    impl.overlapping |= impl.strides[axis] == 0 && shape[axis] > 1;
  return detail::make_tensor(std::move(impl));
}

}  // namespace

void check_bools(std::string_view where, const std::byte* data, const Shape& shape,
                 const Strides& strides) {
  Shape once = shape;  // what is repeated need be seen once
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (strides[axis] == 0) once[axis] = std::min<std::int64_t>(once[axis], 1);
  for_each_index(
      once,
      [&](std::int64_t at) {
        if (const int value = std::to_integer<int>(data[at]); value > 1)
          fail(
              where, "got the bool ", value, ", ", at,
              " elements from the first, need 0 or 1: take the memory as u8 and compare it with 0");
      },
      strides);
}

Tensor empty(const Shape& shape, DType dtype, const Device& device) {
  detail::TensorImpl impl;
  impl.type = {shape, dtype};
  const std::int64_t bytes = byte_count(shape, dtype);
  impl.strides = row_major(shape);
  impl.storage = device.is_cuda() ? detail::allocate_on(device, bytes) : detail::allocate(bytes);
  return detail::make_tensor(std::move(impl));
}

Tensor zeros(const Shape& shape, DType dtype) {
  Tensor result = empty(shape, dtype);
  if (result.nbytes() > 0)
    std::memset(detail::impl(result).first(), 0, static_cast<std::size_t>(result.nbytes()));
  return result;
}

Tensor arange(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step == 0) fail("arange", "got a step of 0, need a positive or negative one");
  // Unsigned, because the distance between two 64-bit integers may need 64 bits itself.
  const auto first = static_cast<std::uint64_t>(start), last = static_cast<std::uint64_t>(stop);
  const std::uint64_t distance = step > 0 ? last - first : first - last;
  const std::uint64_t stride =
      step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const bool nothing = step > 0 ? start >= stop : start <= stop;
  const std::uint64_t count = nothing ? 0 : (distance - 1) / stride + 1;
  if (count >= std::uint64_t{1} << 62)
    fail("arange", "cannot count from ", start, " to ", stop, " in steps of ", step);
  return generate({static_cast<std::int64_t>(count)}, i64, [&](std::int64_t i) {
    return static_cast<std::int64_t>(first + static_cast<std::uint64_t>(i) *
                                                 static_cast<std::uint64_t>(step));
  });
}

Tensor arange(double start, double stop, double step, DType dtype) {
  const double count = std::ceil((stop - start) / step);
  if (!(std::abs(count) < 0x1p62))
    fail("arange", "cannot count from ", start, " to ", stop, " in steps of ", step);
  return generate({static_cast<std::int64_t>(std::max(0.0, count))}, dtype,
                  [&](std::int64_t i) { return start + static_cast<double>(i) * step; });
}

Tensor linspace(double start, double stop, std::int64_t count, bool endpoint, DType dtype) {
  if (count < 0) fail("linspace", "got a count of ", count, ", need at least 0");
  const double steps = static_cast<double>(std::max<std::int64_t>(count - (endpoint ? 1 : 0), 1));
  const bool whole = kind_of(dtype) == Kind::integer;  // NumPy rounds down, not towards 0
  return generate({count}, dtype, [&](std::int64_t i) {
    if (endpoint && count > 1 && i == count - 1) return whole ? std::floor(stop) : stop;
    const double number = start + static_cast<double>(i) * ((stop - start) / steps);
    return whole ? std::floor(number) : number;
  });
}

Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k, DType dtype) {
  return generate({rows, columns}, dtype,
                  [&](std::int64_t i) { return i % columns - i / columns == k; });
}

Tensor from_memory(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
                   std::optional<Strides> strides) {
  return foreign(static_cast<std::byte*>(data), shape, dtype, std::move(owner), strides, false);
}
Tensor from_memory(const void* data, const Shape& shape, DType dtype,
                   std::shared_ptr<const void> owner, std::optional<Strides> strides) {
  return foreign(static_cast<std::byte*>(const_cast<void*>(data)), shape, dtype, std::move(owner),
                 strides, true);
}

Tensor from_memory(void* data, const Shape& shape, DType dtype, std::shared_ptr<const void> owner,
                   const Device& device, std::optional<Strides> strides) {
  if (!device.is_cuda())
    fail("from_memory", "got the device ", device, ", need a GPU: leave the device out");
  if (num_elements(shape) == 0) return empty(shape, dtype, device);
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(item_size(dtype)) != 0 ||
      !data)
    fail("from_memory", "got the address ", data, ", need one of elements of ", dtype,
         ", aligned to their size");
  return foreign(static_cast<std::byte*>(data), shape, dtype, std::move(owner), strides, false,
                 device);
}

// ---- Random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011).

std::uint64_t Generator::next() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::uint32_t x[4] = {static_cast<std::uint32_t>(counter_),
                        static_cast<std::uint32_t>(counter_ >> 32), 0, 0};
  std::uint32_t key0 = static_cast<std::uint32_t>(seed_),
                key1 = static_cast<std::uint32_t>(seed_ >> 32);
  ++counter_;
  for (int round = 0; round < 10; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    const std::uint64_t product0 = kMultiplier0 * x[0], product1 = kMultiplier1 * x[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(product1 >> 32) ^ x[1] ^ key0,
                                   static_cast<std::uint32_t>(product1),
                                   static_cast<std::uint32_t>(product0 >> 32) ^ x[3] ^ key1,
                                   static_cast<std::uint32_t>(product0)};
    std::copy(next, next + 4, x);
  }
  spare_ = (static_cast<std::uint64_t>(x[3]) << 32) | x[2];
  has_spare_ = true;
  return (static_cast<std::uint64_t>(x[1]) << 32) | x[0];
}

namespace {
// 53 random bits in [0, 1).
double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// The largest number of T below `bound`.
template <class T>
double below(double bound) {
  T result = convert<T>(bound);
  if (static_cast<double>(result) < bound) return static_cast<double>(result);
  if constexpr (std::is_floating_point_v<T>)
    return std::nextafter(result, -std::numeric_limits<T>::infinity());
  else if (result == 0.0f)
    result.bits = 0x8001;  // the first below 0; otherwise the bits count up with the magnitude
  else
    result.bits = static_cast<std::uint16_t>(result.bits + (result > 0.0f ? -1 : 1));
  return static_cast<double>(result);
}
}  // namespace

Tensor Generator::uniform(const Shape& shape, double low, double high, DType dtype) {
  // What would be rounded up to `high`, which is not in the interval, becomes the number before it.
  double last = low;
  if (low < high)
    last = dispatch_floating(is_floating(dtype) ? dtype : f64, "uniform",
                             [&]<class Tag>(Tag) { return below<typename Tag::type>(high); });
  return generate(shape, dtype, [&](std::int64_t) {
    const double number = low + (high - low) * unit(next());
    return low < high ? std::min(number, last) : number;
  });
}

Tensor Generator::normal(const Shape& shape, double mean, double deviation, DType dtype) {
  Tensor result = empty(shape, dtype);
  const std::int64_t size = result.size(), pairs = (size + 1) / 2;
  dispatch(dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    T* const out = mutable_view(result).as<T>();
    // A pair is made of two draws, by Box and Muller; 1 - u lies in (0, 1], so the logarithm is
    // finite.
    const auto make = [=](Generator& from, std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        const double radius = std::sqrt(-2 * std::log(1 - unit(from.next()))),
                     angle = 2 * std::numbers::pi * unit(from.next());
        out[2 * pair] = convert<T>(mean + deviation * radius * std::cos(angle));
        const double second = radius * std::sin(angle);
        if (2 * pair + 1 < size) out[2 * pair + 1] = convert<T>(mean + deviation * second);
      }
    };
    constexpr std::int64_t kPiece = 1 << 14;  // pairs
    if (has_spare_) return make(*this, 0, pairs);
    // A count makes two draws: everybody begins where the pairs before would have led to.
    cpu::parallel_for(threads(), ceil_div(pairs, kPiece), [&](std::int64_t piece, int) {
      Generator from = *this;
      const std::int64_t begin = piece * kPiece;
      from.counter_ += static_cast<std::uint64_t>(begin);
      make(from, begin, std::min(begin + kPiece, pairs));
    });
    counter_ += static_cast<std::uint64_t>(pairs);
  });
  return result;
}

Tensor Generator::randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype) {
  if (low >= high) fail("randint", "got low ", low, " and high ", high, ", need low < high");
  if (beyond_range(low, dtype) != 0 || beyond_range(high - 1, dtype) != 0)
    fail("randint", "the numbers from ", low, " to ", high - 1, " do not all fit into ", dtype,
         ": name a wider type");
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const std::uint64_t limit =
      ~std::uint64_t{0} - ~std::uint64_t{0} % range;  // reject the uneven rest
  return generate(shape, dtype, [&](std::int64_t) {
    std::uint64_t bits = next();
    while (bits >= limit) bits = next();
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + bits % range);
  });
}

}  // namespace tensor
