// Lines: operators that work along one axis see it as a row of wide numbers, whatever the layout
// and type.
#pragma once

#include <span>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/core/parallel.h"

namespace tensor {

template <class D>
D without_axis(D dims, int axis) {
  dims.erase(axis);
  return dims;
}

/// Copies each line of x (elements of type T) along `axis` into a row of accumulators (double for
/// floating types, int64 for the others), calls change(row), and writes the row, converted, to the
/// same line of `out` (elements of type R). Threads share the lines: `change` bears several calls
/// at a time. x and out have one shape, but that lines of `out` may be shorter: they get the row's
/// first elements.
template <class T, class R, class Change>
void transform_lines(const ConstView& x, int axis, const View& out, Change&& change) {
  if (num_elements(x.shape) == 0) return;  // a row may be long all the same
  const std::int64_t extent = x.shape[axis], from_step = x.strides[axis],
                     to_step = out.strides[axis];
  using Row = std::vector<Accumulator<T>>;
  const auto line = [&](Row& row, std::int64_t from_offset, std::int64_t to_offset) {
    const T* from = x.as<T>() + from_offset;
    R* to = out.as<R>() + to_offset;
    for (std::int64_t i = 0; i < extent; ++i)
      row[static_cast<std::size_t>(i)] = static_cast<Compute<T>>(from[i * from_step]);
    change(std::span(row));
    for (std::int64_t i = 0; i < out.shape[axis]; ++i)
      to[i * to_step] = convert<R>(row[static_cast<std::size_t>(i)]);
  };
  const Shape lines = without_axis(x.shape, axis);
  const Strides from_steps = without_axis(x.strides, axis),
                to_steps = without_axis(out.strides, axis);
  int shared = 0;  // the outermost axis of several lines
  while (shared + 1 < lines.rank() && lines[shared] == 1) ++shared;
  constexpr std::int64_t kElements = 1 << 12;  // of a piece: some tens of microseconds
  const std::int64_t count = lines.rank() > 0 ? lines[shared] : 1;
  const std::int64_t piece = std::max<std::int64_t>(kElements * count / num_elements(x.shape), 1);
  cpu::for_pieces(count, piece, [&](std::int64_t begin, std::int64_t end) {
    Row row(static_cast<std::size_t>(extent));
    Shape part = lines;
    std::int64_t from = 0, to = 0;
    if (lines.rank() > 0) {
      part[shared] = end - begin;
      from = begin * from_steps[shared], to = begin * to_steps[shared];
    }
    for_each_index(
        part,
        [&](std::int64_t from_offset, std::int64_t to_offset) {
          line(row, from + from_offset, to + to_offset);
        },
        from_steps, to_steps);
  });
}

}  // namespace tensor
