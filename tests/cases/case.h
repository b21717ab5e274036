// A case of an operator: what its inputs are (shape, type, memory layout, values) and its
// attributes. The tables of cases in this folder are written once; the generated tests check them
// and benchmarks can time them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/attrs.h"
#include "tensor/handle.h"

namespace tensor::cases {

/// How the elements of an input lie in memory.
enum class Layout : std::uint8_t {
  contiguous,  // row-major without gaps
  transposed,  // column-major
  sliced,      // every second element of a larger block, on every axis
  negative,    // backwards along the last axis and every second one before it
  broadcast,   // one axis with stride 0
};
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced,
                                      Layout::negative, Layout::broadcast};

/// What the elements of an input are; `low` and `high` are cut to what the type holds.
enum class Values : std::uint8_t {
  integers,  // whole numbers in [low, high]: sums and products of them are exact in every floating
             // type
  reals,     // numbers in [low, high]
  distinct,  // whole numbers from low upwards, each once, in random order
  specials,  // NaN, infinities, zeros of both signs, the extremes of the type, then numbers in
             // [low, high]
  mask,      // 0, or minus infinity in about a third of the places but the first of each row
};

struct Input {
  Shape shape;
  DType dtype = f32;
  Values values = Values::integers;
  double low = -8, high = 8;
  Layout layout = Layout::contiguous;
};

struct Case {
  std::string op;
  std::vector<Input> inputs;
  Attrs attrs;
};
using Cases = std::vector<Case>;

inline constexpr DType kAllTypes[] = {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64};
inline constexpr DType kWholeTypes[] = {boolean, u8, i8, i16, i32, i64};
inline constexpr DType kNumberTypes[] = {u8, i8, i16, i32, i64, f16, bf16, f32, f64};
inline constexpr DType kFloatingTypes[] = {f16, bf16, f32, f64};

/// "matmul f32(2, 3) transposed integers[-8,8], f32(3,) contiguous ...; axis=1": names a case
/// uniquely.
inline std::string id(const Case& c) {
  static constexpr std::string_view kLayoutNames[] = {"contiguous", "transposed", "sliced",
                                                      "negative", "broadcast"};
  static constexpr std::string_view kValueNames[] = {"integers", "reals", "distinct", "specials",
                                                     "mask"};
  std::ostringstream text;
  text << c.op;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& in = c.inputs[i];
    text << (i > 0 ? ", " : " ") << TensorType{in.shape, in.dtype} << ' '
         << kLayoutNames[static_cast<std::size_t>(in.layout)] << ' '
         << kValueNames[static_cast<std::size_t>(in.values)] << '[' << in.low << ',' << in.high
         << ']';
  }
  if (!c.attrs.entries().empty()) text << "; " << c.attrs;
  return text.str();
}

/// Choices that are the same on every run, so that a case keeps its name: splitmix64 from a text.
class Draw {
 public:
  explicit Draw(std::string_view name) {
    for (const char letter : name)
      state_ = (state_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }
  template <class T>
  T pick(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<std::int64_t>(choices.size())))];
  }
  bool coin() { return below(2) == 1; }

  /// An extent that vector code and tiles find awkward, at most `limit`.
  std::int64_t extent(std::int64_t limit) {
    static const std::vector<std::int64_t> kExtents = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65};
    const auto end =
        std::upper_bound(kExtents.begin(), kExtents.end(), std::max<std::int64_t>(limit, 1));
    return kExtents[static_cast<std::size_t>(below(end - kExtents.begin()))];
  }
  /// A shape of this rank with at most `limit` elements.
  Shape shape(int rank, std::int64_t limit = 1200) {
    Shape result;
    for (int axis = 0; axis < rank; ++axis) {
      result.push_back(extent(limit));
      limit /= result.back();
    }
    for (int axis = rank - 1; axis > 0; --axis)
      std::swap(result[axis], result[static_cast<int>(below(axis + 1))]);
    return result;
  }
  /// The same with one extent 0.
  Shape empty_shape(int rank) {
    Shape result = shape(rank);
    result[static_cast<int>(below(rank))] = 0;
    return result;
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

/// The i-th layout, in turn.
inline Layout layout_of(std::size_t i) { return kLayouts[i % std::size(kLayouts)]; }

}  // namespace tensor::cases
