// What kernels of products on registers share, whatever they multiply with: which tile a block has,
// and what is done with finished sums.
#pragma once

#include "fragments.h"
#include "numbers.h"

namespace tensor::device {

/// A number that kIsFar says whether an int holds.
template <bool kIsFar>
inline auto number_of(i64 number) {
  if constexpr (kIsFar)
    return number;
  else
    return static_cast<int>(number);
}

/// P names the product: kRows, kFeatures; kSteps of the depth; kTilesDown, kTiles of a batch, and
/// kTilesOfBand of kBand tiles of rows before the next columns; kPartElements of all batches;
/// kWholeRows and kWholeFeatures where no tile reaches beyond the last. S names the schedule: kRows
/// and kColumns of a tile, kParts of the depth, and kPairs, where features come in twos.
template <class S, class P, class Epilogue>
struct GemmTile {
  const P& problem;
  int row = 0, feature = 0, batch = 0, part = 0;

  static GemmTile of_block(const P& problem, int block) {
    GemmTile tile{problem};
    tile.part = block % S::kParts;
    block /= S::kParts;
    tile.batch = block / problem.kTiles;
    block = block % problem.kTiles;
    const int band = block / problem.kTilesOfBand, in_band = block % problem.kTilesOfBand;
    const int rows_left = problem.kTilesDown - band * P::kBand;
    const int band_rows = rows_left < P::kBand ? rows_left : P::kBand;
    tile.row = (band * P::kBand + in_band % band_rows) * S::kRows;
    tile.feature = in_band / band_rows * S::kColumns;
    return tile;
  }
  /// The steps of this tile's part.
  int first_step() const { return static_cast<int>(i64(problem.kSteps) * part / S::kParts); }
  int last_step() const { return static_cast<int>(i64(problem.kSteps) * (part + 1) / S::kParts); }

  bool has_row(int row) const { return P::kWholeRows || row < problem.kRows; }
  bool has_feature(int feature) const { return P::kWholeFeatures || feature < problem.kFeatures; }

  /// Sums of one row, kCount pairs of neighbouring features kStep apart: finished and stored, or
  /// kept as this part's.
  template <int kCount, int kStep, class Sum>
  void finish(const Epilogue& epilogue, Sum* partials, const Sum (&sums)[2 * kCount], int row,
              int feature) const {
    if (!has_row(row)) return;
    const int place = batch * problem.kRows + row;
    if constexpr (S::kParts > 1) {
      Sum* to = partials + part * i64(problem.kPartElements) + i64(place) * problem.kFeatures;
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i)
        if (const int f = feature + i / 2 * kStep + i % 2; has_feature(f)) to[f] = sums[i];
    } else {
      finish_sums<kCount, kStep>(epilogue, sums, place, feature);
    }
  }

  /// What a sum stands for: itself, or, of i8, times the scales of its row and column.
  template <class Sum>
  static float scaled(const Epilogue& epilogue, Sum sum, int place, int feature) {
    if constexpr (Epilogue::kScales)
      return float(sum) * (epilogue.row_scale(place) * epilogue.column_scale(feature));
    else
      return sum;
  }

  template <int kCount, int kStep, class Sum>
  void finish_sums(const Epilogue& epilogue, const Sum (&sums)[2 * kCount], int place,
                   int feature) const {
    // All are read before any is written: the addresses might be the same, for the compiler.
    typename Epilogue::Inputs in[2 * kCount];
    float numbers[2 * kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int f = feature + i * kStep;
#pragma unroll
      for (int j = 0; j < 2; ++j)
        numbers[2 * i + j] = !Epilogue::kScales || has_feature(f + j)
                                 ? scaled(epilogue, sums[2 * i + j], place, f + j)
                                 : 0;
      if constexpr (S::kPairs) {
        if (has_feature(f)) epilogue.load_pair(in[2 * i], in[2 * i + 1], place, f);
      } else {
        if (has_feature(f)) epilogue.load(in[2 * i], place, f);
        if (has_feature(f + 1)) epilogue.load(in[2 * i + 1], place, f + 1);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int f = feature + i * kStep;
      if (!has_feature(f)) continue;
      const auto first = Epilogue::finish(numbers[2 * i], in[2 * i]);
      if constexpr (S::kPairs) {
        epilogue.store_pair(first, Epilogue::finish(numbers[2 * i + 1], in[2 * i + 1]), place, f);
      } else {
        epilogue.store(first, place, f);
        if (has_feature(f + 1))
          epilogue.store(Epilogue::finish(numbers[2 * i + 1], in[2 * i + 1]), place, f + 1);
      }
    }
  }

  /// The kernel behind one of several parts: adds them in order, and finishes. P also names
  /// kColumns, features or pairs of them, and kIsFar where an int does not count kPartElements.
  template <class Sum>
  static void add_parts(const P& problem, const Epilogue& epilogue, const Sum* partials) {
    constexpr int kAcross = S::kPairs ? 2 : 1;
    wait_for_previous();
    launch_next();
    for (i64 i = blockIdx.x * i64(blockDim.x) + threadIdx.x; i < problem.kPartElements / kAcross;
         i += i64(gridDim.x) * blockDim.x) {
      const auto number = number_of<P::kIsFar>(i);
      const int place = static_cast<int>(number / problem.kColumns);
      const int feature = static_cast<int>(number % problem.kColumns) * kAcross;
      const Sum* from = partials + i64(place) * problem.kFeatures + feature;
      Sum sums[kAcross] = {};
#pragma unroll
      for (int part = 0; part < S::kParts; ++part)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) sums[j] += from[part * i64(problem.kPartElements) + j];
      typename Epilogue::Inputs in[2];
      if constexpr (S::kPairs) {
        epilogue.load_pair(in[0], in[1], place, feature);
        epilogue.store_pair(Epilogue::finish(scaled(epilogue, sums[0], place, feature), in[0]),
                            Epilogue::finish(scaled(epilogue, sums[1], place, feature + 1), in[1]),
                            place, feature);
      } else {
        epilogue.load(in[0], place, feature);
        epilogue.store(Epilogue::finish(scaled(epilogue, sums[0], place, feature), in[0]), place,
                       feature);
      }
    }
  }
};

/// A factor, or one of its matrices, in memory. F names the factor: Element, kRows, kDepth,
/// kRowStride, kDepthStride in elements, and where a matrix begins: at(batch).
template <class F>
struct FactorMemory {
  const F& factor;
  const typename F::Element* elements;

  FactorMemory matrix(int batch) const { return {factor, elements + factor.at(batch)}; }
};

/// A tile of a factor on its way to shared memory. kTurned: rows lie next to each other, in memory
/// and in the tile. kChunk elements are moved together. To is what the tile holds.
template <class F, class To, int kTileRows, int kTileDepth, int kThreads, bool kTurned, int kChunk,
          int kPad>
struct FactorTile {
  using Element = typename F::Element;
  static constexpr bool kIsTurned = kTurned;
  static constexpr int kItems = kChunk;
  static constexpr int kAcross = kTurned ? kTileRows : kTileDepth;
  static constexpr int kLines = kTurned ? kTileDepth : kTileRows;
  static constexpr int kPitch = kAcross + kPad;  // elements
  static constexpr int kBytes = (kLines * kPitch * sizeof(To) + 127) / 128 * 128;
  static constexpr int kChunks = kLines * kAcross / kChunk;
  static constexpr int kEach = (kChunks + kThreads - 1) / kThreads;  // chunks of a thread

  struct alignas(sizeof(Element) * kChunk) Piece {
    Element items[kChunk];
  };
  static int place(int row, int depth) {
    return kTurned ? depth * kPitch + row : row * kPitch + depth;
  }

  /// Calls each(i, place, source, how many of kChunk exist) for the chunks of this thread, or for
  /// kMany of them from `begin` on.
  template <int kMany = kEach, class Each>
  static void each_chunk(const FactorMemory<F>& from, int first_row, int first_depth, Each&& each,
                         int begin = 0) {
    const F& f = from.factor;
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      const int chunk = threadIdx.x + (begin + i) * kThreads;
      if ((kChunks % kThreads != 0 || kEach % kMany != 0) && chunk >= kChunks) break;
      const int line = chunk / (kAcross / kChunk), along = chunk % (kAcross / kChunk) * kChunk;
      const int row = kTurned ? along : line, depth = kTurned ? line : along;
      const int r = first_row + row, d = first_depth + depth;
      int count = kTurned ? f.kRows - r : f.kDepth - d;
      if (kTurned ? d >= f.kDepth : r >= f.kRows) count = 0;
      count = count < 0 ? 0 : count > kChunk ? kChunk : count;
      const i64 offset = count > 0 ? i64(r) * f.kRowStride + i64(d) * f.kDepthStride : 0;
      each(i, place(row, depth), from.elements + offset, count);
    }
  }

  static void copy_later(u32 to, const FactorMemory<F>& factor, int first_row, int first_depth) {
    static_assert(kChunk * sizeof(Element) == 16);
    constexpr int kMany = kEach <= 8 ? kEach : 4;  // at once: each has an address in registers
#pragma unroll 1
    for (int begin = 0; begin < kEach; begin += kMany)
      each_chunk<kMany>(
          factor, first_row, first_depth,
          [&](int, int at, const Element* from, int count) {
            copy_16(to + at * sizeof(Element), from, count * sizeof(Element));
          },
          begin);
  }
  static Piece piece_of(const Element* from, int count) {
    if (count == kChunk) return *reinterpret_cast<const Piece*>(from);
    Piece piece;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) piece.items[i] = i < count ? from[i] : Element{};
    return piece;
  }
  static void fetch(Piece (&pieces)[kEach], const FactorMemory<F>& factor, int first_row,
                    int first_depth) {
    each_chunk(factor, first_row, first_depth, [&](int i, int, const Element* from, int count) {
      pieces[i] = piece_of(from, count);
    });
  }
  /// Through registers, a few chunks at a time.
  static void copy_now(To* tile, const FactorMemory<F>& factor, int first_row, int first_depth) {
    static_assert(kSame<To, Element>);
    constexpr int kMany = kEach < 4 ? kEach : 4;
#pragma unroll 1
    for (int begin = 0; begin < kEach; begin += kMany) {
      Piece pieces[kMany];
      each_chunk<kMany>(
          factor, first_row, first_depth,
          [&](int i, int, const Element* from, int count) { pieces[i] = piece_of(from, count); },
          begin);
      each_chunk<kMany>(
          factor, first_row, first_depth,
          [&](int i, int at, const Element*, int) {
            *reinterpret_cast<Piece*>(tile + at) = pieces[i];
          },
          begin);
    }
  }
  static void put(To* tile, const Piece (&pieces)[kEach], const FactorMemory<F>& factor) {
    each_chunk(factor, 0, 0, [&](int i, int at, const Element*, int) {
      if constexpr (kSame<To, Element>) {
        *reinterpret_cast<Piece*>(tile + at) = pieces[i];
      } else {
#pragma unroll
        for (int j = 0; j < kChunk; ++j) tile[at + j] = value_of(pieces[i].items[j]);
      }
    });
  }
};

}  // namespace tensor::device
