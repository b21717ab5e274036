// How the rows and columns of a product are divided among threads and caches.
#pragma once

#include "src/kernels/cpu/product/strips.h"

namespace tensor::cpu {

/// So few strips that sums of all of them are made at a time.
inline constexpr std::int64_t kFewStrips = 4;

/// What a product's kernel is, as far as it matters here.
struct ProductSize {
  std::int64_t m = 1, n = 1;  // columns of a bundle
  std::int64_t bundles = 1, k_words = 1;
  bool in_place = false;     // rows are read where they lie
  bool is_whole = false;     // k is not taken in parts
  bool is_direct = false;    // sums are made where the result lies
  bool has_program = false;  // sums go through a block program
  // Rows that share what they are made of, so that k does not tell how many fit a cache:
  // lines of so many, and how many rows fit; 0: they share nothing.
  std::int64_t line_rows = 0, fitting_rows = 0;
};

struct Blocking {
  int threads = 1;
  std::int64_t block_rows = 1;                   // of sums at a time
  std::int64_t finished_rows = 1;                // of these that are finished and stored at a time
  std::int64_t part_rows = 1;                    // of a task
  std::int64_t strips_at_once = 1;               // of sums
  std::int64_t k_words = 1;                      // of a row at a time
  std::int64_t row_parts = 1, column_parts = 1;  // tasks of a bundle
  bool is_by_rows = false;                       // the strips stay in the cache, not the rows
  std::int64_t next_lines = 0;  // of the weights to bring nearer, where that is worth while
};

Blocking blocking_of(const ProductSize& size, const Unit& unit, const Machine& machine);

}  // namespace tensor::cpu
