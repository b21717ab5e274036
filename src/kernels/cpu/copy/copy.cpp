// The copy family: copy, concatenate, pad and take of any type, as strided copies of parts.
#include "src/kernels/cpu/copy/copy.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "src/core/parallel.h"
#include "src/core/view.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/host/strided_copy.h"
#include "src/ops/gather.h"

namespace tensor::cpu {
namespace {

// A part of the result from all of one operand.
struct Part {
  std::size_t operand;
  StridedCopy copy;
  std::int64_t offset;  // of its place in the result, in bytes
};

class PartsKernel : public Kernel {
 public:
  PartsKernel(std::vector<Part> parts, std::size_t result, int threads)
      : parts_(std::move(parts)), result_(result), threads_(threads) {}
  void run(std::span<std::byte* const> operands, std::byte*) const override {
    for (const Part& part : parts_)
      part.copy.run(operands[part.operand], operands[result_] + part.offset, threads_);
  }
  std::string description() const override { return "copy"; }

 private:
  std::vector<Part> parts_;
  std::size_t result_;
  int threads_;
};

class TakeKernel : public Kernel {
 public:
  TakeKernel(const Layout& x, const Layout& indices, const Layout& out, int axis, bool is_clipped,
             DType dtype, std::array<std::size_t, 2> operands, int threads)
      : shape_(x.shape),
        axis_(axis),
        is_clipped_(is_clipped),
        step_(x.strides[axis] * item_size(dtype)),
        operands_(operands),
        threads_(threads),
        indices_(indices) {
    Shape rest = x.shape;
    Strides from = x.strides, to = out.strides;
    rest.erase(axis), from.erase(axis);
    for (int i = 0; i < indices.shape.rank(); ++i) {
      places_.push_back(out.strides[axis + i] * item_size(dtype));
      to.erase(axis);
    }
    slice_ = StridedCopy(rest, from, to, item_size(dtype));
    index_step_ = step_of(indices.shape, indices.strides);
    place_step_ = step_of(indices.shape, places_);
    from_step_ = step_of(rest, from), to_step_ = step_of(rest, to);
    line_ = num_elements(rest), item_ = item_size(dtype);
  }

  void run(std::span<std::byte* const> operands, std::byte*) const override {
    const auto* indices = reinterpret_cast<const std::int64_t*>(operands[operands_[1]]);
    const std::int64_t count = num_elements(indices_.shape);
    // Before anything is written, and not in a thread of OpenMP, which must not throw.
    if (!is_clipped_ || shape_[axis_] == 0)
      for (std::int64_t i = 0; i < count; ++i) resolved(indices[offset(i, indices_.strides)]);
    // A few long lines are divided among threads below.
    const bool is_line = from_step_ && to_step_ && (count >= threads_ || line_ <= kElements);
    if (index_step_ && place_step_ && is_line)
      return take_lines(indices, count, operands[operands_[0]], operands.back());
    const int apart = count >= threads_ ? threads_ : 1;
    parallel_for(apart, count, [&](std::int64_t i, int) {
      const std::int64_t index = resolved(indices[offset(i, indices_.strides)]);
      slice_.run(operands[operands_[0]] + index * step_, operands.back() + offset(i, places_),
                 apart > 1 ? 1 : threads_);
    });
  }
  std::string description() const override { return "copy"; }

 private:
  static constexpr std::int64_t kElements = 4096;  // that a thread takes at once, about

  // The step from each element to the next, where it is the same for all.
  static std::optional<std::int64_t> step_of(const Shape& shape, const Strides& strides) {
    std::int64_t step = 0, inside = 1;  // of the axes that were passed
    for (int axis = shape.rank(); axis-- > 0;) {
      if (shape[axis] == 1) continue;
      if (inside == 1)
        step = strides[axis];
      else if (strides[axis] != step * inside)
        return std::nullopt;
      inside *= shape[axis];
    }
    return step;
  }

  // What is taken for every index is a line of elements, which are one run of bytes perhaps.
  void take_lines(const std::int64_t* indices, std::int64_t count, const std::byte* from,
                  std::byte* to) const {
    const std::int64_t at_once =
        std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, line_));
    // Copies: what is written might be a member, for all that the compiler knows.
    const auto take = [=, extent = shape_[axis_], step = step_, place_step = *place_step_,
                       index_step = *index_step_](std::int64_t first, std::int64_t last,
                                                  auto copy) {
      for (std::int64_t i = first; i < last; ++i)
        copy(to + i * place_step, from + within(indices[i * index_step], extent) * step);
    };
    const bool is_run = line_ == 1 || (from_step_ == 1 && to_step_ == 1);
    const auto run_bytes = static_cast<std::size_t>(line_ * item_);
    const std::int64_t from_bytes = *from_step_ * item_, to_bytes = *to_step_ * item_;
    // Of elements of a size that is known when this is compiled.
    const auto stepped = [&](auto size) {
      return [=, this](std::byte* a, const std::byte* b) {
        for (std::int64_t k = 0; k < line_; ++k)
          std::memcpy(a + k * to_bytes, b + k * from_bytes, decltype(size)::value);
      };
    };
    const auto whole = [](auto size) {
      return [](std::byte* a, const std::byte* b) { std::memcpy(a, b, decltype(size)::value); };
    };
    using Four = std::integral_constant<std::size_t, 4>;
    using Eight = std::integral_constant<std::size_t, 8>;
    using Twelve = std::integral_constant<std::size_t, 12>;  // a pixel of a picture
    using Sixteen = std::integral_constant<std::size_t, 16>;
    parallel_for(threads_, (count + at_once - 1) / at_once, [&](std::int64_t block, int) {
      const std::int64_t first = block * at_once, last = std::min(count, first + at_once);
      if (is_run && run_bytes == 4) return take(first, last, whole(Four()));
      if (is_run && run_bytes == 8) return take(first, last, whole(Eight()));
      if (is_run && run_bytes == 12) return take(first, last, whole(Twelve()));
      if (is_run && run_bytes == 16) return take(first, last, whole(Sixteen()));
      if (is_run)
        return take(first, last,
                    [=](std::byte* a, const std::byte* b) { std::memcpy(a, b, run_bytes); });
      if (item_ == 4) return take(first, last, stepped(Four()));
      if (item_ == 8) return take(first, last, stepped(Eight()));
      if (item_ == 2) return take(first, last, stepped(std::integral_constant<std::size_t, 2>()));
      take(first, last, stepped(std::integral_constant<std::size_t, 1>()));
    });
  }

  // An index that was checked, or is clipped.
  static std::int64_t within(std::int64_t index, std::int64_t extent) {
    index = std::clamp(index, -extent, extent - 1);
    return index < 0 ? index + extent : index;
  }

  // Of index number i.
  std::int64_t offset(std::int64_t i, const Strides& strides) const {
    std::int64_t result = 0;
    for (int axis = strides.rank(); axis-- > 0; i /= indices_.shape[axis])
      result += i % indices_.shape[axis] * strides[axis];
    return result;
  }
  std::int64_t resolved(std::int64_t index) const {
    return resolve_index(index, shape_, axis_, "take", is_clipped_);
  }

  Shape shape_;
  int axis_;
  bool is_clipped_;
  std::int64_t step_;  // along the axis, in bytes
  std::array<std::size_t, 2> operands_;
  int threads_;
  Layout indices_;
  Strides places_;  // of the result, along the axes of the indices, in bytes
  StridedCopy slice_;
  // Where they are the same for all: from index to index, from place to place in bytes, and from
  // element to element of what is taken.
  std::optional<std::int64_t> index_step_, place_step_, from_step_, to_step_;
  std::int64_t line_ = 0, item_ = 0;  // elements that an index takes, and their bytes
};

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, int threads)
      : laid_(laid),
        group_(group),
        node_(laid.graph[group.nodes.front()]),
        out_(layout(group.nodes.front())),
        threads_(threads) {}

  std::unique_ptr<Kernel> build() {
    switch (node_.op) {
      case Op::take:
        return std::make_unique<TakeKernel>(
            layout(node_.inputs[0]), layout(node_.inputs[1]), out_,
            normalize_axis(node_.attrs.integer("axis"), layout(node_.inputs[0]).shape.rank(),
                           "take"),
            node_.attrs.flag("clip", false), node_.type.dtype,
            std::array{operand(node_.inputs[0]), operand(node_.inputs[1])}, threads_);
      case Op::concatenate:
        concatenate();
        break;
      case Op::pad:
        pad();
        break;
      default:
        add(node_.inputs[0], out_.shape, Shape::filled(out_.shape.rank(), 0));
    }
    return std::make_unique<PartsKernel>(std::move(parts_), group_.reads.size(), threads_);
  }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }
  std::size_t operand(ValueId id) const {
    return static_cast<std::size_t>(std::find(group_.reads.begin(), group_.reads.end(), id) -
                                    group_.reads.begin());
  }

  // A value broadcast to `shape`, at `start` in the result.
  void add(ValueId from, const Shape& shape, const Dims& start) {
    if (num_elements(shape) == 0) return;
    std::int64_t offset = 0;
    for (int axis = 0; axis < start.rank(); ++axis) offset += start[axis] * out_.strides[axis];
    const std::int64_t item = item_size(node_.type.dtype);
    parts_.push_back(
        {operand(from),
         StridedCopy(shape, broadcast_strides(layout(from).shape, layout(from).strides, shape),
                     out_.strides, item),
         offset * item});
  }

  void concatenate() {
    const int axis = normalize_axis(node_.attrs.integer("axis"), out_.shape.rank(), "concatenate");
    Dims start = Dims::filled(out_.shape.rank(), 0);
    for (const ValueId id : node_.inputs) {
      add(id, layout(id).shape, start);
      start[axis] += layout(id).shape[axis];
    }
  }

  // The inside, then on either side of every axis what the axes before it have left of the border.
  void pad() {
    const Shape& inside = layout(node_.inputs[0]).shape;
    const Dims before = node_.attrs.dims("before");
    add(node_.inputs[0], inside, before);
    Shape shape = out_.shape;
    Dims start = Dims::filled(shape.rank(), 0);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const std::int64_t whole = shape[axis], end = before[axis] + inside[axis];
      shape[axis] = before[axis];
      add(node_.inputs[1], shape, start);
      start[axis] = end;
      shape[axis] = whole - end;
      add(node_.inputs[1], shape, start);
      start[axis] = before[axis];
      shape[axis] = inside[axis];
    }
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Node& node_;
  const Layout& out_;
  const int threads_;
  std::vector<Part> parts_;
};

std::optional<Implementation> consider_copy(const Isolated& alone, const Machine& machine) {
  if (alone.group.nodes.size() != 1) return std::nullopt;
  const Op op = alone.laid.graph[alone.group.nodes.front()].op;
  if (op != Op::copy && op != Op::concatenate && op != Op::pad && op != Op::take)
    return std::nullopt;
  const double bytes = work_of(alone.laid.graph, alone.group).bytes;
  return implementation(
      alone, machine,
      [bytes](const Machine& m) {
        const double rate = bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us + bytes / (rate * 1e3);
      },
      [](const Isolated& one, const Machine& m) {
        return Builder(one.laid, one.group, m.threads).build();
      });
}

}  // namespace

const Family kCopy = {"copy", consider_copy};

std::unique_ptr<Kernel> copy_kernel(const Layout& from, DType dtype, int threads) {
  const StridedCopy copy(from.shape, from.strides, row_major(from.shape), item_size(dtype));
  return std::make_unique<PartsKernel>(std::vector<Part>{{0, copy, 0}}, 1, threads);
}

}  // namespace tensor::cpu
