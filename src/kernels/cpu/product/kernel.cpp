#include "src/kernels/cpu/product/kernel.h"

#include <algorithm>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "src/core/view.h"
#include "src/kernels/cpu/product/blocking.h"
#include "src/kernels/cpu/product/lines.h"
#include "src/kernels/cpu/product/result.h"
#include "src/trace/derived.h"
#include "tensor/creation.h"
#include "tensor/io.h"

namespace tensor::cpu {
namespace {

// Rows as far apart as this lie in the same lines of the caches and push each other out.
constexpr std::int64_t kAlias = 4096;

// Left factors of more than a second-level cache.
constexpr std::int64_t kFarBytes = 1 << 20;
// Rows that several tasks read are gathered once for all of them, unless that would leave the
// caches.
constexpr std::int64_t kSharedBytes = 4 << 20;
constexpr std::int64_t kPieces = 4;  // for every thread, to be taken over by idle ones
// Windows are read where they lie if so few columns come of a row that gathering it would tell, and
// lines are long enough for tiles, or of so few columns that gathering takes longer than low tiles.
constexpr std::int64_t kFewColumns = 192, kLeastWidth = 12;
constexpr std::int64_t kFewestColumns = 48, kShortWidth = 6;

class ProductKernel : public Kernel {
 public:
  ProductKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                const Machine& machine, const Unit& unit)
      : ProductKernel(laid, group, product, machine, unit, laid.graph[product.anchor]) {}

  ProductKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                const Machine& machine, const Unit& unit, const Node& node)
      : unit_(unit),
        numbers_(laid.graph.type(product.left).dtype, unit.taken),
        lines_(lines_of(node, layout(laid, product.left), layout(laid, node.inputs[1]).shape)),
        rows_(rows_of(node, layout(laid, product.left), layout(laid, node.inputs[1]))),
        strips_(layout(laid, node.inputs[1]), node, order_in(layout(laid, product.left)),
                rows_->k(), lines_ ? lines_->words() : rows_->k(), unit,
                {laid.graph.type(node.inputs[1]).dtype, unit.taken}),
        result_(laid, group, product, unit.is_tiles),
        left_(operand_of(group, product.left)),
        right_(operand_of(group, node.inputs[1])) {
    const Graph& graph = laid.graph;
    // From the channels that a bundle reads to the next one's.
    if (node.op == Op::conv2d)
      bundle_bytes_ = numbers_.stored_bytes() * layout(laid, product.left).strides[1] *
                      layout(laid, node.inputs[1]).shape[1] * strips_.bundles().groups;
    choose_blocks(machine);
    is_far_ = result_.rows() * strips_.k_words() * 4 > kFarBytes;
    result_.plan(laid, blocks_.finished_rows, pitch_);
    if (product.bias >= 0) first_ = in_strips(graph, product.bias, 0);
    if (result_.has_scale()) {
      scales_ = in_strips(graph, product.scale, 1);
      shifts_ = in_strips(graph, product.shift, 0);
    }
    if (graph.is_constant(node.inputs[1]))
      packed_ = packed_constant(graph, graph[node.inputs[1]].constant);
    else
      packed_bytes_ = strips_.count() * strips_.words() * 4;
    place_scratch();
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    const bool is_packed = packed_.defined();
    const auto* strips =
        reinterpret_cast<const float*>(is_packed ? detail::stored(packed_).first() : scratch);
    if (!is_packed)
      pack_all(operands[right_], reinterpret_cast<float*>(scratch), scratch + own_, thread_bytes_);
    if (gathers_first_) gather_all(operands[left_], scratch + shared_);
    const std::int64_t row_parts = blocks_.row_parts, column_parts = blocks_.column_parts;
    const std::int64_t of_bundle = row_parts * column_parts;
    parallel_for(
        blocks_.threads, of_bundle * strips_.bundles().count, [&](std::int64_t task, int thread) {
          const std::int64_t bundle = task / of_bundle, part = task % column_parts;
          const std::int64_t row = task % of_bundle / column_parts * blocks_.part_rows;
          const std::int64_t above = strips_.bundles().are_batches ? bundle * rows_of_bundle() : 0;
          const std::int64_t count = strips_.in_bundle(), first = bundle * count;
          run_part(
              {operands, strips, scratch + shared_, scratch + own_ + thread_bytes_ * thread,
               bundle},
              {above + row, above + std::min(row + blocks_.part_rows, rows_of_bundle())},
              {first + count * part / column_parts, first + count * (part + 1) / column_parts});
        });
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(own_ + thread_bytes_ * blocks_.threads);
  }
  std::vector<Tensor> constants() const override {
    return packed_.defined() ? std::vector<Tensor>{packed_} : std::vector<Tensor>();
  }
  std::string description() const override {
    return std::string(unit_.is_tiles ? "tiles, " : "vectors, ") +
           std::to_string(blocks_.part_rows) + " x " + std::to_string(pitch_) + " at a time" +
           (strips_.are_few() ? ", along the depth" : "") +
           (in_place_        ? ""
            : lines_         ? ", lines"
            : gathers_first_ ? ", rows gathered first"
                             : ", rows gathered") +
           result_.description();
  }

 private:
  // One task's surroundings.
  struct Place {
    std::span<std::byte* const> operands;
    const float* strips;
    const std::byte* shared;
    std::byte* scratch;
    std::int64_t bundle;
  };

  static const Layout& layout(const LaidOutGraph& laid, ValueId id) { return laid.layouts[at(id)]; }
  std::unique_ptr<ProductRows> rows_of(const Node& node, const Layout& left,
                                       const Layout& right) const {
    if (node.op != Op::conv2d) return matrix_rows(left, node.type.shape, numbers_);
    return window_rows(left, node, {right.shape[2], right.shape[3]},
                       right.shape[1] * bundles_of(node, right.shape, unit_).groups, numbers_,
                       order_in(left));
  }
  WindowOrder order_in(const Layout& left) const {
    return lines_ || left.shape.rank() != 4 ? WindowOrder::channels_last : window_order(left);
  }

  std::int64_t rows_of_bundle() const {
    const Bundles& bundles = strips_.bundles();
    return bundles.are_batches ? result_.rows() / bundles.count : result_.rows();
  }

  std::optional<WindowLines> lines_of(const Node& node, const Layout& image,
                                      const Shape& filters) const {
    if (node.op != Op::conv2d || unit_.is_tiles) return std::nullopt;
    if (numbers_.taken_bytes() != 4 || !numbers_.are_same()) return std::nullopt;
    const Bundles bundles = bundles_of(node, filters, unit_);
    const std::int64_t columns = filters[0] / bundles.count;
    if (filters[2] * filters[3] == 1 || columns > kFewColumns) return std::nullopt;
    const auto lines =
        WindowLines::of(image, node, {filters[2], filters[3]}, filters[1] * bundles.groups);
    const std::int64_t least = columns > kFewestColumns ? kLeastWidth : kShortWidth;
    return lines && lines->width() >= least && lines->row_bytes() % kAlias != 0 ? lines
                                                                                : std::nullopt;
  }

  // Sums are made where the result lies if nothing else is done with them.
  void choose_blocks_of_lines(const Machine& machine) {
    ProductSize size{rows_of_bundle(),
                     strips_.columns(),
                     strips_.bundles().count,
                     strips_.k_words(),
                     true,
                     true};
    size.has_program = result_.has_program();
    size.is_direct = result_.row_stride() && !size.has_program && !result_.is_stored_last();
    size.line_rows = lines_->width();
    size.fitting_rows =
        lines_->rows_within(static_cast<std::int64_t>(machine.near_cache_bytes / 2));
    blocks_ = blocking_of(size, unit_, machine);
    pitch_ = blocks_.strips_at_once * kStrip;
    is_direct_ = size.is_direct;
  }

  void choose_blocks(const Machine& machine) {
    if (lines_) {
      choose_blocks_of_lines(machine);
      return;
    }
    const auto stride = rows_->row_bytes();
    // Vectors step from row to row in words, which two numbers in bf16 share.
    const auto suits_vectors = [&] {
      return *stride % 4 == 0 && (*stride % kAlias != 0 || result_.rows() == 1);
    };
    in_place_ = stride && rows_->k() == strips_.k() && (unit_.is_tiles || suits_vectors());
    ProductSize size{rows_of_bundle(), strips_.columns(), strips_.bundles().count,
                     strips_.k_words(), in_place_};
    size.has_program = result_.has_program();
    // Sums are made where the result lies if nothing else is done with them, or with all columns.
    const auto row = result_.row_stride();
    const bool is_even = strips_.columns() % kStrip == 0;
    size.is_direct = row && (!unit_.is_tiles || is_even) && !result_.is_stored_last();
    if (size.has_program)
      size.is_direct = size.is_direct && is_even && *row == strips_.columns() &&
                       (unit_.is_tiles || strips_.count() <= kFewStrips);
    blocks_ = blocking_of(size, unit_, machine);
    row_pitch_ = strips_.k_words() * 4 + kGatherSlack;
    gathers_first_ = !in_place_ && blocks_.column_parts > 1 && size.bundles == 1 &&
                     size.m * row_pitch_ <= kSharedBytes;
    if (gathers_first_) {
      size.in_place = true;
      blocks_ = blocking_of(size, unit_, machine);
    }
    pitch_ = blocks_.strips_at_once * kStrip;
    is_direct_ = size.is_direct && (!size.has_program || pitch_ == strips_.columns());
    gathers_parts_ = !in_place_ && !gathers_first_ && blocks_.k_words < strips_.k_words();
    // So rows of a multiple of 1 KiB do not meet in the same lines of the cache.
    if (gathers_parts_) row_pitch_ = blocks_.k_words * 4 + kGatherSlack;
  }

  std::vector<float> in_strips(const Graph& graph, ValueId constant, float otherwise) const {
    const std::int64_t last = strips_.count() - 1,
                       columns = strips_.column(last) + columns_of(last, 1);
    const std::vector<float> values = column_numbers(graph, constant, columns, otherwise);
    std::vector<float> result(static_cast<std::size_t>(strips_.count() * kStrip));
    for (std::int64_t strip = 0; strip < strips_.count(); ++strip)
      std::copy_n(values.begin() + strips_.column(strip), columns_of(strip, 1),
                  result.begin() + strip * kStrip);
    return result;
  }

  Tensor packed_constant(const Graph& graph, const Tensor& weights) const {
    return derived(graph, strips_.text(), {weights}, [&] {
      const Tensor result = empty({strips_.count(), strips_.words()}, f32);
      const std::int64_t room = strips_.room();
      const auto rooms = detail::allocate(room * blocks_.threads);
      pack_all(detail::stored(weights).first(),
               reinterpret_cast<float*>(detail::stored(result).first()), rooms->data, room);
      forget_pages(weights);
      return result;
    });
  }

  void pack_all(const std::byte* from, float* to, std::byte* rooms, std::int64_t room) const {
    parallel_for(blocks_.threads, strips_.count(), [&](std::int64_t strip, int thread) {
      strips_.pack(from, strip, to + strip * strips_.words(), rooms + room * thread);
    });
  }

  void place_scratch() {
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t offset = thread_bytes_;
      thread_bytes_ += round_up(bytes, 64);
      return offset;
    };
    const std::int64_t packing = packed_bytes_ > 0 ? strips_.room() : 0;
    shared_ = packed_bytes_;
    own_ = shared_ + (gathers_first_ ? round_up(result_.rows() * row_pitch_, 64) : 0);
    const std::int64_t rows = lines_                        ? lines_->copy_bytes(blocks_.part_rows)
                              : in_place_ || gathers_first_ ? 0
                                                            : blocks_.part_rows * row_pitch_;
    gathered_ = take(std::max(rows, packing));
    sums_ = take(is_direct_ ? 0 : blocks_.block_rows * pitch_ * 4);
    program_ = take(result_.scratch_bytes());
  }

  // Rows of the operand at `from` with zeros behind them, up to a whole step.
  void gather(const std::byte* from, const Range& rows, const Range& words, std::byte* to) const {
    const std::int64_t per_word = 4 / numbers_.taken_bytes();
    const Range k{words.begin * per_word, std::min(words.end * per_word, rows_->k())};
    rows_->gather(from, rows, k, to, row_pitch_);
    const std::int64_t used = numbers_.taken_bytes() * k.size(), whole = 4 * words.size();
    if (used == whole) return;
    for (std::int64_t row = rows.begin; row < rows.end; ++row, to += row_pitch_)
      std::memset(to + used, 0, static_cast<std::size_t>(whole - used));
  }

  void gather_all(const std::byte* from, std::byte* to) const {
    const std::int64_t rows = result_.rows(), piece = ceil_div(rows, kPieces * blocks_.threads);
    parallel_for(blocks_.threads, ceil_div(rows, piece), [&](std::int64_t task, int) {
      const Range some{task * piece, std::min((task + 1) * piece, rows)};
      gather(from, some, {0, strips_.k_words()}, to + some.begin * row_pitch_);
    });
  }

  void run_part(const Place& place, const Range& rows, const Range& strips) const {
    simd::StripProduct p;
    const std::byte* left = place.scratch + gathered_;
    p.a_row_bytes = row_pitch_;
    if (lines_) {
      lines_->copy(image(place), rows, reinterpret_cast<float*>(place.scratch + gathered_));
    } else if (in_place_) {
      p.a_row_bytes = *rows_->row_bytes();
      left = operand(place) + rows.begin * p.a_row_bytes;
    } else if (gathers_first_) {
      left = place.shared + rows.begin * p.a_row_bytes;
    } else if (!gathers_parts_) {
      gather(operand(place), rows, {0, strips_.k_words()}, place.scratch + gathered_);
    }
    p.strip_words = strips_.words(), p.column_words = strips_.k_words();
    p.is_by_rows = blocks_.is_by_rows;
    p.is_far = in_place_ && is_far_;
    p.next_lines = blocks_.next_lines;
    for (Range group{strips.begin, 0}; group.begin < strips.end; group.begin = group.end) {
      group.end = std::min(group.begin + blocks_.strips_at_once, strips.end);
      p.strip_count = group.size();
      p.to_row = is_direct_ ? *result_.row_stride() : group.size() * kStrip;
      p.next = place.strips + group.end * strips_.words();
      for (std::int64_t row = rows.begin; row < rows.end; row += blocks_.block_rows) {
        p.rows = std::min(blocks_.block_rows, rows.end - row);
        p.a = gathers_parts_ ? left : left + (row - rows.begin) * p.a_row_bytes;
        run_block(place, rows, row, group, p);
        p.next = static_cast<const std::byte*>(p.next) +
                 4 * p.next_lines * strips_.k_words() * ceil_div(p.strip_count, 2);
      }
    }
  }

  // The sums of some rows and strips, part of k by part, and what follows.
  void run_block(const Place& place, const Range& all, std::int64_t row, const Range& strips,
                 simd::StripProduct p) const {
    const std::int64_t column = strips_.column(strips.begin);
    const std::int64_t columns = columns_of(strips.begin, strips.size());
    const std::int64_t pitch = strips.size() * kStrip;
    // A program goes over whole strips: subnormal numbers beyond the columns would take it long.
    const std::int64_t whole = result_.has_program() ? kStrip : simd::table().lanes;
    p.to = is_direct_ ? result_.at(place.operands, row, column)
                      : reinterpret_cast<float*>(place.scratch + sums_);
    p.columns =
        is_direct_ || result_.has_addend() ? columns : std::min(round_up(columns, whole), pitch);
    p.first = first_.empty() ? nullptr : first_.data() + strips.begin * kStrip;
    if (!scales_.empty()) {
      p.scales = scales_.data() + strips.begin * kStrip;
      p.shifts = shifts_.data() + strips.begin * kStrip;
    }
    p.add = result_.addend(place.operands, row, column);
    p.add_row = result_.addend_stride();
    p.adds_last = result_.adds_last();
    if (lines_)
      multiply_lines(place, all, row, strips, p);
    else
      multiply_depth(place, row, strips, p);
    if (is_direct_ && !result_.has_program()) return;
    for (std::int64_t done = 0; done < p.rows; done += blocks_.finished_rows) {
      const BlockProgram::Block block{row + done, std::min(blocks_.finished_rows, p.rows - done),
                                      column, columns};
      float* const sums = p.to + done * p.to_row;
      result_.run_program(place.operands, block, pitch, sums, place.scratch + program_);
      if (!is_direct_) result_.store(place.operands, block, pitch, sums);
    }
  }

  // Part of k by part; what is zero of windows beyond the image is left out.
  void multiply_depth(const Place& place, std::int64_t row, const Range& strips,
                      const simd::StripProduct& p) const {
    for (Range k{0, 0}; k.begin < strips_.k_words(); k.begin = k.end) {
      k.end = std::min(k.begin + blocks_.k_words, strips_.k_words());
      const Range rows{row, row + p.rows};
      if (gathers_parts_) gather(operand(place), rows, k, place.scratch + gathered_);
      for (Range some{row, 0}; some.begin < rows.end; some.begin = some.end) {
        const auto [alike, read] = stretch({some.begin, rows.end});
        some.end = alike.end;
        multiply_part(place, row, strips, {some, read}, k, p);
      }
    }
  }

  // In words. Rows without anything have a part that is zeros, for what follows the sums.
  ProductRows::Stretch stretch(const Range& rows) const {
    if (unit_.taken != f32 || in_place_) return {rows, {0, strips_.k_words()}};
    ProductRows::Stretch all = rows_->stretch(rows);
    if (all.k.size() == 0) all.k = {0, strips_.k_words()};
    return all;
  }

  void multiply_part(const Place& place, std::int64_t row, const Range& strips,
                     const ProductRows::Stretch& part, const Range& k, simd::StripProduct p) const {
    const Range words{std::max(k.begin, part.k.begin), std::min(k.end, part.k.end)};
    if (words.size() <= 0) return;
    const std::int64_t above = part.rows.begin - row, rows = p.rows;
    const bool is_first = words.begin == part.k.begin, is_last = words.end == part.k.end;
    const float* const first_strip = place.strips + strips.begin * strips_.words();
    p.a = static_cast<const std::byte*>(p.a) + above * p.a_row_bytes +
          4 * (words.begin - (gathers_parts_ ? k.begin : 0));
    p.rows = part.rows.size();
    p.to += above * p.to_row;
    p.strips = first_strip + words.begin * strips_.step();
    p.k = words.size();
    if (above + p.rows < rows)
      p.next = nullptr;
    else if (k.end < strips_.k_words())
      p.next = first_strip + k.end * strips_.step();
    if (p.add) p.add += above * p.add_row;
    if (p.adds_last ? !is_last : !is_first) p.add = nullptr;
    if (is_last)
      p.bounds = result_.bounds();
    else
      p.scales = p.shifts = nullptr;
    if (!is_first) p.first = nullptr;
    p.goes_on = !is_first;
    multiply(p);
  }

  // Line of results by line; the filter's lines are parts of k.
  void multiply_lines(const Place& place, const Range& all, std::int64_t row, const Range& strips,
                      simd::StripProduct p) const {
    const float* const first_strip = place.strips + strips.begin * strips_.words();
    p.a_row_bytes = lines_->row_bytes();
    p.k = lines_->words(), p.next_part = lines_->next_words();
    p.bounds = result_.bounds();
    const Range rows{row, row + p.rows};
    const auto* const copied = reinterpret_cast<const float*>(place.scratch + gathered_);
    const void* const next = p.next;
    lines_->walk(image(place), copied, all, rows, [&](const WindowLines::Segment& segment) {
      p.rows = segment.rows.size();
      p.a = segment.run;
      p.parts = segment.taps.size();
      p.strips = first_strip + segment.taps.begin * p.k * strips_.step();
      p.next = segment.rows.end == rows.end ? next : nullptr;
      multiply(p);
      p.to += p.rows * p.to_row;
      if (p.add) p.add += p.rows * p.add_row;
    });
  }

  void multiply(const simd::StripProduct& p) const {
    (strips_.are_few() ? simd::table().multiply_few : unit_.multiply)(p);
  }

  const float* image(const Place& place) const {
    return reinterpret_cast<const float*>(operand(place));
  }

  const std::byte* operand(const Place& place) const {
    return place.operands[left_] + place.bundle * bundle_bytes_;
  }
  std::int64_t columns_of(std::int64_t strip, std::int64_t count) const {
    return std::min(count * kStrip, strips_.columns() - strip % strips_.in_bundle() * kStrip);
  }

  Unit unit_;
  Numbers numbers_;                   // of the left factor
  std::optional<WindowLines> lines_;  // else rows are gathered, or lie as those of a matrix
  std::unique_ptr<ProductRows> rows_;
  Strips strips_;
  Tensor packed_;             // constant weights
  std::vector<float> first_;  // the bias, or empty
  std::vector<float> scales_, shifts_;
  ProductResult result_;
  std::size_t left_, right_;  // operands
  std::int64_t bundle_bytes_ = 0;
  bool in_place_ = false, is_far_ = false, is_direct_ = false;
  bool gathers_first_ = false, gathers_parts_ = false;  // else the rows of a task, if not in place
  Blocking blocks_;
  std::int64_t pitch_ = 1, row_pitch_ = 0;
  // In bytes: weights packed in each run, behind them rows gathered for all threads, and from own_
  // on the scratch of each thread, and where its parts begin.
  std::int64_t packed_bytes_ = 0, shared_ = 0, own_ = 0;
  std::int64_t thread_bytes_ = 0, gathered_ = 0, sums_ = 0, program_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> product_kernel(const LaidOutGraph& laid, const Group& group,
                                       const AnchoredProduct& product, const Machine& machine,
                                       const Unit& unit) {
  return std::make_unique<ProductKernel>(laid, group, product, machine, unit);
}

}  // namespace tensor::cpu
