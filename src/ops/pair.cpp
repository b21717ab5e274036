#include "src/ops/pair.h"

namespace tensor {

Pair pair_of(const Attrs& attrs, std::string_view name, std::int64_t least,
             std::string_view where) {
  const Ints values = attrs.ints(name);
  if (values.size() != 2)
    fail(where, "got ", values.size(), " numbers for the ", name, ", need height and width");
  for (const std::int64_t value : values)
    if (value < least || value > kLargestExtent)
      fail(where, "got ", value, " in the ", name, " (", values[0], ", ", values[1],
           "), need at least ", least, " and less than 2^31");
  return {values[0], values[1]};
}

AttrValue pair_value(const Pair& pair) { return Ints{pair.h, pair.w}; }

void check_images(const Shape& x, std::string_view where) {
  if (x.rank() != 4)
    fail(where, "got an input of the shape ", x, ", need (batch, channels, height, width)");
  if (x[2] > kLargestExtent || x[3] > kLargestExtent)
    fail(where, "got an input of the shape ", x, ", need a height and width less than 2^31");
}

}  // namespace tensor
