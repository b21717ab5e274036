// Operators that choose elements by their size.
#include <algorithm>
#include <array>
#include <numeric>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// Of equal elements those with the lower index come first.
Results top_k(const Call& c) {
  const int axis = normalize_axis(c.integer("axis", -1), c[0].rank(), "axis");
  const std::int64_t k = c.has(1) ? c.host(1).item<std::int64_t>() : c.attribute("k").integer;
  if (k < 0 || k > c[0].shape(axis))
    fail("top_k", "got k=", k, " of the shape ", c[0].shape(), " along axis ", axis);
  auto [values, indices] = topk(c[0], k, axis, c.integer("largest", 1) != 0);
  return {values, indices};
}

// ---- NonMaxSuppression, on the host: how many boxes are left depends on their elements.

using Box = std::array<double, 4>;  // top, left, bottom, right

Box box_of(std::span<const float> x, bool is_centred) {
  const Box b{x[0], x[1], x[2], x[3]};
  // Centre x, centre y, width and height; or two opposite corners, in any order.
  if (is_centred) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

double area(const Box& x) { return (x[2] - x[0]) * (x[3] - x[1]); }

double overlap(const Box& a, const Box& b) {
  const double height = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const double width = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  if (height <= 0 || width <= 0) return 0;
  const double common = height * width;
  return common / (area(a) + area(b) - common);
}

struct Suppression {
  std::int64_t most = 0;
  double most_overlap = 0;
  std::optional<double> least_score;
};

// The boxes that stay, by falling score. A box is compared with those that begin left of its end
// and less than their greatest width left of its beginning: of boxes that are moved apart by class,
// as exporters do, with its own class alone.
Ints kept(const std::vector<Box>& boxes, std::span<const float> scores, const Suppression& how) {
  Ints order(boxes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::int64_t i) { return scores[static_cast<std::size_t>(i)]; };
  std::erase_if(order, [&](std::int64_t i) {
    return how.least_score && !(static_cast<double>(score(i)) > *how.least_score);
  });
  std::ranges::stable_sort(order, [&](auto a, auto b) { return score(a) > score(b); });
  Ints result;
  std::vector<Box> by_left;
  double greatest_width = 0;
  const auto begins_before = [](const Box& b, double left) { return b[1] < left; };
  for (const std::int64_t i : order) {
    if (static_cast<std::int64_t>(result.size()) >= how.most) break;
    const Box& box = boxes[static_cast<std::size_t>(i)];
    const auto bound = [&](double left) {
      return std::lower_bound(by_left.begin(), by_left.end(), left, begins_before);
    };
    // Boxes that do not meet have an overlap of 0, which none exceeds but a negative bound.
    const bool is_any = how.most_overlap < 0;
    const auto first = is_any ? by_left.begin() : bound(box[1] - greatest_width);
    const auto last = is_any ? by_left.end() : std::max(first, bound(box[3]));
    if (std::any_of(first, last, [&](const Box& b) { return overlap(box, b) > how.most_overlap; }))
      continue;
    result.push_back(i);
    // Without a place in the order, a box that is no number overlaps with none.
    if (box[1] == box[1]) by_left.insert(bound(box[1]), box);
    if (box[3] - box[1] > greatest_width) greatest_width = box[3] - box[1];
  }
  return result;
}

Results non_max_suppression(const Call& c) {
  const Shape boxes = c[0].shape(), scores = c[1].shape();
  if (boxes.rank() != 3 || scores.rank() != 3 || boxes[2] != 4 || boxes[0] != scores[0] ||
      boxes[1] != scores[2])
    fail("non_max_suppression", "got boxes of the shape ", boxes, " and scores of ", scores);
  const std::vector<float> corners = c.host(0).to_vector<float>(),
                           all = c.host(1).to_vector<float>();
  Suppression how;
  how.most = c.has(2) ? c.host(2).item<std::int64_t>() : 0;
  how.most_overlap = c.has(3) ? c.host(3).item() : 0;
  if (c.has(4)) how.least_score = c.host(4).item();
  const bool is_centred = c.integer("center_point_box", 0) != 0;
  Ints rows;
  const auto count = static_cast<std::size_t>(boxes[1]);
  for (std::int64_t image = 0; image < boxes[0]; ++image) {
    std::vector<Box> here;
    for (std::size_t i = 0; i < count; ++i)
      here.push_back(
          box_of(std::span(corners).subspan((static_cast<std::size_t>(image) * count + i) * 4, 4),
                 is_centred));
    for (std::int64_t kind = 0; kind < scores[1]; ++kind) {
      const auto first = static_cast<std::size_t>(image * scores[1] + kind) * count;
      for (const std::int64_t i : kept(here, std::span(all).subspan(first, count), how))
        rows.insert(rows.end(), {image, kind, i});
    }
  }
  return {array(rows, {static_cast<std::int64_t>(rows.size() / 3), 3})};
}

constexpr Operator kSelectRows[] = {
    {"TopK", 1, 1, 2, 2, "axis:i k:i largest:i sorted:i", top_k},
    {"NonMaxSuppression", 10, 2, 5, 1, "center_point_box:i", non_max_suppression},
};

}  // namespace

std::span<const Operator> select_operators() { return kSelectRows; }

}  // namespace tensor::onnx
