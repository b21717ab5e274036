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
      for (int i = 0; i < 2 * kCount; ++i) {
        const int f = feature + i / 2 * kStep + i % 2;
        if constexpr (S::kPairs) {
          if (i % 2 == 0 && has_feature(f))
            *reinterpret_cast<Pack<Sum, 2>*>(to + f) = {sums[i], sums[i + 1]};
        } else {
          if (has_feature(f)) to[f] = sums[i];
        }
      }
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
      for (int part = 0; part < S::kParts; ++part) {
        const auto of_part =
            *reinterpret_cast<const Pack<Sum, kAcross>*>(from + part * i64(problem.kPartElements));
#pragma unroll
        for (int j = 0; j < kAcross; ++j) sums[j] += of_part.items[j];
      }
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
/// and in the tile; in the tile also where kRowsInner. kChunk elements are moved together. To is
/// what the tile holds.
template <class F, class To, int kTileRows, int kTileDepth, int kThreads, bool kTurned, int kChunk,
          int kPad, bool kRowsInner = false>
struct FactorTile {
  using Element = typename F::Element;
  using Held = To;
  static constexpr bool kIsTurned = kTurned;
  static constexpr int kItems = kChunk;
  static constexpr int kAcross = kTurned ? kTileRows : kTileDepth;
  static constexpr int kLines = kTurned ? kTileDepth : kTileRows;
  static constexpr bool kHeldTurned = kTurned || kRowsInner;
  static constexpr bool kTransposes = kHeldTurned && !kTurned;
  static constexpr int kPitch = (kHeldTurned ? kTileRows : kTileDepth) + kPad;  // elements
  static constexpr int kBytes =
      ((kHeldTurned ? kTileDepth : kTileRows) * kPitch * sizeof(To) + 127) / 128 * 128;
  static constexpr int kOfLine = kAcross / kChunk;  // chunks
  static constexpr int kChunks = kLines * kOfLine;
  static constexpr int kEach = (kChunks + kThreads - 1) / kThreads;  // chunks of a thread

  struct alignas(sizeof(Element) * kChunk) Piece {
    Element items[kChunk];
  };
  static int place(int row, int depth) {
    return kHeldTurned ? depth * kPitch + row : row * kPitch + depth;
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
      const int line = chunk / kOfLine, along = chunk % kOfLine * kChunk;
      const int row = kTurned ? along : line, depth = kTurned ? line : along;
      const int r = first_row + row, d = first_depth + depth;
      int count = kTurned ? f.kRows - r : f.kDepth - d;
      if (kTurned ? d >= f.kDepth : r >= f.kRows) count = 0;
      count = count < 0 ? 0 : count > kChunk ? kChunk : count;
      const i64 offset = count > 0 ? i64(r) * f.kRowStride + i64(d) * f.kDepthStride : 0;
      each(i, place(row, depth), from.elements + offset, count);
    }
  }

  /// Chunks come by cp.async, as the thread has them.
  static void copy_later(u32 to, const FactorMemory<F>& factor, int first_row, int first_depth) {
    if constexpr (kRowsInner)
      copy_lines_later(to, factor, first_row, first_depth);
    else
      copy_chunks_later(to, factor, first_row, first_depth);
  }
  static void copy_chunks_later(u32 to, const FactorMemory<F>& factor, int first_row,
                                int first_depth) {
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
  static void copy_chunk(u32 to, const Element* from, int count) {
    static_assert(kSame<To, Element> && (sizeof(Piece) == 16 || sizeof(Piece) == 4));
    if constexpr (sizeof(Piece) == 16)
      copy_16(to, from, count * sizeof(Element));
    else
      copy_4(to, from, count * sizeof(Element));
  }
  // The same where a thread's chunks lie below each other: from step to step one address changes.
  // F also names kWholeRows and kWholeDepth, where no tile reaches beyond the last.
  static void copy_lines_later(u32 to, const FactorMemory<F>& from, int first_row,
                               int first_depth) {
    static_assert(kThreads % kOfLine == 0 && !(kTransposes && kChunk > 1));
    constexpr int kDown = kThreads / kOfLine;  // lines from one to the next
    const F& f = from.factor;
    int line = threadIdx.x / kOfLine, along = threadIdx.x % kOfLine * kChunk;
    if constexpr (kTransposes) {
      // A warp has eight elements of four lines, so that its stores meet in no bank.
      constexpr int kPatches = kAcross / 8;
      static_assert(kDown % 4 == 0);
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      line = warp / kPatches * 4 + lane / 8, along = warp % kPatches * 8 + lane % 8;
    }
    const int row = first_row + (kTurned ? along : line);
    const int depth = first_depth + (kTurned ? line : along);
    const int rows = F::kWholeRows ? kTileRows : f.kRows - row;
    const int depths = F::kWholeDepth ? kTileDepth : f.kDepth - depth;
    const int lines = kTurned ? depths : rows;
    int count = kTurned ? rows : depths;
    count = count < 0 || lines <= 0 ? 0 : count > kChunk ? kChunk : count;
    const i64 offset = count > 0 ? i64(row) * f.kRowStride + i64(depth) * f.kDepthStride : 0;
    const i64 apart = i64(kDown) * (kTurned ? f.kDepthStride : f.kRowStride);
    const Element* const source = from.elements + offset;
    to += place(kTurned ? along : line, kTurned ? line : along) * sizeof(Element);
    constexpr int kStep = kDown * (kTransposes ? 1 : kPitch);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (kChunks % kThreads != 0 && static_cast<int>(threadIdx.x) + i * kThreads >= kChunks) break;
      const bool is_there = count > 0 && i * kDown < lines;  // addresses of nothing are not formed
      copy_chunk(to + i * kStep * sizeof(Element), source + (is_there ? i * apart : 0),
                 is_there ? count : 0);
    }
  }
  static Piece piece_of(const Element* from, int count) {
    if (count == kChunk) return *reinterpret_cast<const Piece*>(from);
    Piece piece;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) piece.items[i] = i < count ? from[i] : Element{};
    return piece;
  }
  // A warp has two chunks of 16 lines of floats that are turned over: its stores meet in no bank.
  static constexpr bool kHasPatches = kTransposes && kChunk == 4;
  // Calls each(i, place, row, depth).
  template <class Each>
  static void each_patch(int first_row, int first_depth, Each&& each) {
    static_assert(kLines % 16 == 0 && kAcross % 8 == 0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int chunk = threadIdx.x + i * kThreads, patch = chunk / 32, lane = chunk % 32;
      if (kChunks % kThreads != 0 && chunk >= kChunks) break;
      const int line = patch / (kAcross / 8) * 16 + lane / 2;
      const int along = patch % (kAcross / 8) * 8 + lane % 2 * 4;
      each(i, place(line, along), first_row + line, first_depth + along);
    }
  }
  static void fetch(Piece (&pieces)[kEach], const FactorMemory<F>& factor, int first_row,
                    int first_depth) {
    if constexpr (kHasPatches) {
      const F& f = factor.factor;
      each_patch(first_row, first_depth, [&](int i, int, int row, int depth) {
        // Beyond the last row comes that again, without a branch: nobody asks for its sums.
        const int r = F::kWholeRows || row < f.kRows ? row : f.kRows - 1;
        const Element* const line = factor.elements + i64(r) * f.kRowStride;
        const int count = F::kWholeDepth ? kChunk : f.kDepth - depth;
        pieces[i] = piece_of(line + (count > 0 ? depth : 0), count > kChunk ? kChunk : count);
      });
    } else {
      each_chunk(factor, first_row, first_depth, [&](int i, int, const Element* from, int count) {
        pieces[i] = piece_of(from, count);
      });
    }
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
    const auto put_chunk = [&](int i, int at) {
      if constexpr (kSame<To, Element> && !kTransposes) {
        *reinterpret_cast<Piece*>(tile + at) = pieces[i];
      } else {
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
          tile[at + j * (kTransposes ? kPitch : 1)] = value_of(pieces[i].items[j]);
      }
    };
    if constexpr (kHasPatches)
      each_patch(0, 0, [&](int i, int at, int, int) { put_chunk(i, at); });
    else
      each_chunk(factor, 0, 0, [&](int i, int at, const Element*, int) { put_chunk(i, at); });
  }
};

}  // namespace tensor::device
