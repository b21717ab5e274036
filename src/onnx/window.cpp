#include "src/onnx/window.h"

#include <algorithm>

namespace tensor::onnx {
namespace {

constexpr std::int64_t kLargest = (std::int64_t{1} << 31) - 1;

// Before and after, so that there are as many positions as steps in the image.
void pad_automatically(Window& w, std::size_t i, std::int64_t extent, const std::string& how) {
  w.begin[i] = w.end[i] = 0;
  if (how == "VALID") return;
  const std::int64_t steps = (extent + w.stride[i] - 1) / w.stride[i];
  const std::int64_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
  const std::int64_t total = std::max<std::int64_t>((steps - 1) * w.stride[i] + reach - extent, 0);
  w.begin[i] = how == "SAME_LOWER" ? total - total / 2 : total / 2;
  w.end[i] = total - w.begin[i];
}

}  // namespace

bool Window::is_dilated() const {
  return std::ranges::any_of(dilation, [](std::int64_t d) { return d != 1; });
}

bool Window::is_even() const {
  return begin == end && std::ranges::all_of(beyond, [](std::int64_t b) { return b == 0; });
}

Ints spatial(const Call& call, std::string_view name, std::size_t rank, std::int64_t fallback,
             std::int64_t least) {
  const Ints list = call.ints(name, Ints(rank, fallback));
  if (list.size() != rank) fail(name, "got ", list.size(), " numbers, need ", rank);
  for (const std::int64_t number : list)
    if (number < least || number > kLargest)
      fail(name, "got ", AttrValue(list), ", need numbers from ", least, " to below 2^31");
  return list;
}

Window window_of(const Call& call, const Shape& x, const Ints& kernel) {
  const std::size_t rank = kernel.size();
  if (rank == 0 || x.rank() != static_cast<int>(rank) + 2)
    fail("window", "got an image of the shape ", x, " and a kernel of ", rank, " axes");
  Window w{.kernel = kernel,
           .stride = spatial(call, "strides", rank, 1, 1),
           .dilation = spatial(call, "dilations", rank, 1, 1),
           .begin = Ints(rank),
           .end = Ints(rank),
           .out = Ints(rank),
           .beyond = Ints(rank)};
  const Ints pads = spatial(call, "pads", 2 * rank, 0, 0);
  const std::string how = call.text("auto_pad", "NOTSET");
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t extent = x[static_cast<int>(i) + 2];
    if (kernel[i] < 1 || kernel[i] > kLargest || extent > kLargest)
      fail("window", "got a kernel of ", AttrValue(kernel), " over an image of the shape ", x);
    w.begin[i] = pads[i], w.end[i] = pads[i + rank];
    if (how != "NOTSET") pad_automatically(w, i, extent, how);
    const std::int64_t reach = w.dilation[i] * (kernel[i] - 1) + 1;
    const std::int64_t room = extent + w.begin[i] + w.end[i] - reach;
    if (room < 0)
      fail("window", "a kernel of ", AttrValue(kernel),
           " is larger than the padded image of the "
           "shape ",
           x);
    w.out[i] = room / w.stride[i] + 1;
    const bool rounds_up = call.integer("ceil_mode", 0) != 0 && room % w.stride[i] != 0;
    // A position that begins beyond the image and what pads it at the beginning does not count.
    if (rounds_up && w.out[i] * w.stride[i] < extent + w.begin[i])
      w.beyond[i] = w.out[i]++ * w.stride[i] - room;
  }
  return w;
}

Tensor padded(const Tensor& x, const Ints& begin, const Ints& end, const Tensor& value) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(2);
  bool is_any = false;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    widths.emplace_back(begin[i], end[i]);
    is_any |= begin[i] != 0 || end[i] != 0;
  }
  return is_any ? pad(x, widths, value) : x;
}

std::string refuse_auto_pad(const Node& node) {
  return refuse_unless(node, "auto_pad", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
}

}  // namespace tensor::onnx
