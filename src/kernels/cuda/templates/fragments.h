// Which lane holds which element of a matrix in which of its registers: the register-level
// abstraction of Tensor Cores (GTCO, section V) as data. Kernels, what they fuse and the tests read
// these rows. Compiled by NVRTC as well as by the host, so it includes nothing.
#pragma once

namespace tensor::device {

struct Place {
  int row = 0, column = 0;
  constexpr bool operator==(const Place&) const = default;
};

/// A matrix spread over the lanes of a warp or warpgroup. Bit i of the lane's number adds lane[i]
/// to the place of an element, bit i of the element's number within the lane adds element[i].
struct Fragment {
  int rows, columns;
  int lanes, elements;  // elements a lane
  Place lane[7], element[7];

  static constexpr Place sum(const Place (&bits)[7], int number) {
    Place place;
    for (int bit = 0; bit < 7; ++bit) {
      place.row += (number >> bit & 1) * bits[bit].row;
      place.column += (number >> bit & 1) * bits[bit].column;
    }
    return place;
  }
  constexpr Place of_lane(int number) const { return sum(lane, number); }
  constexpr Place of_element(int number) const { return sum(element, number); }
  constexpr Place at(int lane_number, int element_number) const {
    const Place a = of_lane(lane_number), b = of_element(element_number);
    return {a.row + b.row, a.column + b.column};
  }
};

/// d[m, n] += a[m, k] * b[k, n], with float32 sums, by all lanes together. Operands are 16-bit
/// floats but for kMma16x8x8Tf32 and kMma16x8x32Bytes, whose sums are ints.
struct MatrixMultiply {
  int m, n, k;
  int architecture;  // the first that has it: 75 for sm_75
  Fragment a, b, d;
};

// PTX ISA, "Matrix fragments for mma.m16n8k8" and "... mma.m16n8k16": lanes in groups of four along
// a row, eight groups down the rows.
constexpr MatrixMultiply kMma16x8x8 = {
    16,
    8,
    8,
    75,
    {16, 8, 32, 4, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}}},
    {8, 8, 32, 2, {{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}, {{1, 0}}},
    {16, 8, 32, 4, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}}}};

constexpr MatrixMultiply kMma16x8x16 = {
    16,
    8,
    16,
    80,
    {16, 16, 32, 8, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}, {0, 8}}},
    {16, 8, 32, 4, {{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}, {{1, 0}, {8, 0}}},
    {16, 8, 32, 4, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}}}};

/// Of floats that were rounded to tf32, one in each register.
constexpr MatrixMultiply kMma16x8x8Tf32 = {
    16,
    8,
    8,
    80,
    {16, 8, 32, 4, {{0, 1}, {0, 2}, {1, 0}, {2, 0}, {4, 0}}, {{8, 0}, {0, 4}}},
    {8, 8, 32, 2, {{1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 4}}, {{4, 0}}},
    kMma16x8x8.d};

/// Of i8, four in each register: those of kMma16x8x16 where two of them are one 16-bit element.
constexpr MatrixMultiply kMma16x8x32Bytes = {
    16,
    8,
    32,
    80,
    {16, 32, 32, 16, {{0, 4}, {0, 8}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {0, 2}, {8, 0}, {0, 16}}},
    {32, 8, 32, 8, {{4, 0}, {8, 0}, {0, 1}, {0, 2}, {0, 4}}, {{1, 0}, {2, 0}, {16, 0}}},
    kMma16x8x16.d};

/// wgmma.m64nNk16 by the 128 lanes of a warpgroup, n from 8 to 256 in steps of 8: `a` is its
/// fragment when it comes from registers; b lies in shared memory, so its rows name no lanes. Of i8
/// k is 32, and sums lie alike.
constexpr MatrixMultiply wgmma64xNx16(int n) {
  return {64,
          n,
          16,
          90,
          {64,
           16,
           128,
           8,
           {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}, {16, 0}, {32, 0}},
           {{0, 1}, {8, 0}, {0, 8}}},
          {16, n, 0, 0, {}, {}},
          {64,
           n,
           128,
           n / 2,
           {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}, {16, 0}, {32, 0}},
           {{0, 1}, {8, 0}, {0, 8}, {0, 16}, {0, 32}, {0, 64}, {0, 128}}}};
}

/// Sums of eight columns, whatever the instruction: 16 rows by a warp, 64 by a warpgroup.
constexpr Fragment kWarpSums = kMma16x8x16.d, kGroupSums = wgmma64xNx16(8).d;
/// Where a lane's elements of such sums begin, as their of_lane has it, in fewer instructions:
/// where most registers are taken, bit by bit is too many. With a width of 1, of operand a of
/// kMma16x8x8Tf32, and turned of b.
constexpr Place place_of_lane(int thread, int width = 2) {
  return {thread / 32 * 16 + thread % 32 / 4, thread % 4 * width};
}

/// ldmatrix of four 8 x 8 matrices of 16-bit elements, one below the other: lane i names the
/// address of row i, and receives these elements. With .trans every matrix arrives transposed.
constexpr Fragment kLdmatrix4 = {
    32, 8, 32, 8, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}, {16, 0}}};
constexpr Fragment kLdmatrix4Transposed = {
    32, 8, 32, 8, {{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}, {{1, 0}, {8, 0}, {16, 0}}};

/// The row of a tile [16 of m, 2 width of k] whose address lane i names so that ldmatrix gives
/// operand a, the four quarters in the order left top, left bottom, right top, right bottom. So lie
/// two operands b of neighbouring columns in a tile [16 of k, 16 of n] for ldmatrix with .trans,
/// and two units of sums in a tile [16, 16] for stmatrix. `width`: elements in 16 bytes.
constexpr Place ldmatrix_row_of_a(int lane, int width = 8) {
  return {lane % 16, lane / 16 * width};
}
/// Those of two operands b in a tile [16 of n, 2 width of k]: quarters left top, right top, left
/// bottom, right bottom.
constexpr Place ldmatrix_row_of_b(int lane, int width = 8) {
  return {lane / 16 * 8 + lane % 8, lane / 8 % 2 * width};
}

}  // namespace tensor::device
