#include "src/runtime/plan_constants.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/core/storage.h"
#include "src/runtime/contents.h"
#include "src/trace/content.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace tensor::detail {
namespace {

using Part = PlanConstants::Part;

Tensor slice_of(const Tensor& whole, const Part& part) {
  const Slice range = slice(part.begin, part.begin + part.extent);
  return part.axis == 0 ? whole(range) : whole(all_of_axis, range);
}

// Where `x` lies in `whole`, both in rows, as neighbouring rows or columns: what becomes of weights
// and biases that products side by side have as one. Those before it are looked for where they are
// of widths like its own, as queries, keys and values are: one that is not found is there twice.
std::optional<Part> place_in(const Tensor& whole, const Tensor& x) {
  constexpr std::int64_t kLeast = 1024;  // bytes: a name takes nearly as many
  constexpr int kMostLooks = 16;         // where elements repeat, each may look like a beginning
  if (x.dtype() != whole.dtype() || x.rank() != whole.rank() || x.rank() < 1 || x.rank() > 2 ||
      x.nbytes() < kLeast || x.nbytes() >= whole.nbytes() || !x.is_contiguous() ||
      !whole.is_contiguous())
    return std::nullopt;
  const int axis = x.rank() == 2 && x.shape(0) == whole.shape(0) ? 1 : 0;
  if (x.rank() == 2 && x.shape(1 - axis) != whole.shape(1 - axis)) return std::nullopt;
  const std::int64_t stride = whole.strides()[axis] * item_size(x.dtype());
  const std::int64_t step = std::gcd(x.shape(axis), whole.shape(axis));
  const auto row = static_cast<std::size_t>(x.shape(-1) * item_size(x.dtype()));
  const std::byte *first = stored(x).first(), *there = stored(whole).first();
  int looks = 0;
  for (std::int64_t i = 0; i + x.shape(axis) <= whole.shape(axis); i += step) {
    if (std::memcmp(there + i * stride, first, row) != 0) continue;
    const Part part{{}, axis, i, x.shape(axis)};
    if (has_same_elements(slice_of(whole, part), x)) return part;
    if (++looks == kMostLooks) break;
  }
  return std::nullopt;
}

}  // namespace

void PlanConstants::add_part(const std::string& where, const std::string& name, const Part& part) {
  const auto whole = all_.find(part.of);
  if (whole == all_.end() || parts_.contains(part.of))
    fail(where, "the plan holds no tensor \"", part.of, '"');
  const Tensor& x = whole->second;
  const bool has_axis = part.axis >= 0 && part.axis < std::min(x.rank(), 2);
  const std::int64_t extent = has_axis ? x.shape(static_cast<int>(part.axis)) : 0;
  if (!has_axis || part.begin < 0 || part.extent < 0 || part.begin > extent ||
      part.extent > extent - part.begin)
    fail(where, "got ", part.extent, " from ", part.begin, " on along axis ", part.axis, ", of ",
         x.type());
  if (!all_.emplace(name, slice_of(x, part)).second)
    fail(where, "the plan holds another tensor \"", name, '"');
  parts_.emplace(name, part);
}

std::string PlanConstants::add(const Tensor& x) {
  std::string name = content_name(x);
  for (; all_.contains(name); name += '+')
    if (has_same_elements(all_.at(name), x)) return name;
  for (const auto& [whole, y] : all_) {
    if (parts_.contains(whole)) continue;
    if (auto part = place_in(y, x)) {
      part->of = whole;
      parts_.emplace(name, *part);
      all_.emplace(name, slice_of(y, *part));
      return name;
    }
  }
  std::map<std::string, Part> places;
  for (const auto& [smaller, y] : all_)
    if (!parts_.contains(smaller))
      if (auto part = place_in(x, y)) places.emplace(smaller, *part);
  all_.emplace(name, x);
  for (const auto& [smaller, place] : places) absorb(smaller, name, place);
  return name;
}

// Slices of what becomes a slice itself are slices along the same axis, or it stays as it is.
void PlanConstants::absorb(const std::string& part, const std::string& whole, const Part& place) {
  const auto is_across = [&](const auto& entry) {
    return entry.second.of == part && entry.second.axis != place.axis;
  };
  if (std::any_of(parts_.begin(), parts_.end(), is_across)) return;
  const auto put = [&](const std::string& name, Part at) {
    at.of = whole;
    all_[name] = slice_of(all_.at(whole), at);
    parts_[name] = at;
  };
  for (auto& [name, at] : parts_)
    if (at.of == part) put(name, {whole, at.axis, at.begin + place.begin, at.extent});
  put(part, place);
}

const Tensor* PlanConstants::find(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : &found->second;
}

std::map<std::string, Tensor> PlanConstants::stored() const {
  std::map<std::string, Tensor> result;
  for (const auto& [name, x] : all_)
    if (!parts_.contains(name)) result.emplace(name, x);
  return result;
}

}  // namespace tensor::detail
