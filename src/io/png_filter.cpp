// The filters of PNG's rows.
#include <cstdlib>

#include "src/io/png.h"

namespace tensor {
namespace {

/// What a filter expects a byte to be.
template <int kFilter>
std::uint8_t predicted(int left, int above, int corner) {
  if constexpr (kFilter == 0) return 0;
  if constexpr (kFilter == 1) return static_cast<std::uint8_t>(left);
  if constexpr (kFilter == 2) return static_cast<std::uint8_t>(above);
  if constexpr (kFilter == 3) return static_cast<std::uint8_t>((left + above) / 2);
  const int to_left = std::abs(above - corner), to_above = std::abs(left - corner),
            to_corner = std::abs(left + above - 2 * corner);
  if (to_left <= to_above && to_left <= to_corner) return static_cast<std::uint8_t>(left);
  return static_cast<std::uint8_t>(to_above <= to_corner ? above : corner);
}

template <int kFilter>
void unfilter_by(std::span<std::uint8_t> row, std::span<const std::uint8_t> above,
                 std::size_t step) {
  const std::size_t first = std::min(step, row.size());
  for (std::size_t i = 0; i < first; ++i) row[i] += predicted<kFilter>(0, above[i], 0);
  for (std::size_t i = step; i < row.size(); ++i)
    row[i] += predicted<kFilter>(row[i - step], above[i], above[i - step]);
}

template <int kFilter>
void filter_by(std::span<const std::uint8_t> row, std::span<const std::uint8_t> above,
               std::size_t step, std::span<std::uint8_t> out) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool inside = i >= step;
    const int left = inside ? row[i - step] : 0, corner = inside ? above[i - step] : 0;
    out[i] = static_cast<std::uint8_t>(row[i] - predicted<kFilter>(left, above[i], corner));
  }
}

}  // namespace

void unfilter_row(int filter, std::span<std::uint8_t> row, std::span<const std::uint8_t> above,
                  std::size_t step) {
  constexpr decltype(&unfilter_by<0>) kUnfilter[kPngFilters] = {
      unfilter_by<0>, unfilter_by<1>, unfilter_by<2>, unfilter_by<3>, unfilter_by<4>};
  kUnfilter[filter](row, above, step);
}

void filter_row(int filter, std::span<const std::uint8_t> row, std::span<const std::uint8_t> above,
                std::size_t step, std::span<std::uint8_t> out) {
  constexpr decltype(&filter_by<0>) kFilter[kPngFilters] = {
      filter_by<0>, filter_by<1>, filter_by<2>, filter_by<3>, filter_by<4>};
  kFilter[filter](row, above, step, out);
}

}  // namespace tensor
