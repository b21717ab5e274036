// The sort family: sort and argsort. A block sorts a piece of a line in shared memory; longer lines
// are merged in as many kernels as it takes, from one half of the scratch memory to the other.
#include <algorithm>
#include <bit>

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/lines.h"
#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {
namespace {

constexpr int kSortThreads = 256;              // of a block
constexpr std::int64_t kMostPiece = 2048;      // elements that a block sorts
constexpr std::int64_t kMostSorted = 1 << 30;  // elements: a run has one twice as long beside it

class SortGenerator {
 public:
  SortGenerator(const LaidOutGraph& laid, const Group& group, const Machine& machine)
      : machine_(machine),
        node_(laid.graph[group.nodes[0]]),
        from_(laid.layouts[at(node_.inputs[0])]),
        to_(laid.layouts[at(group.nodes[0])]),
        axis_(static_cast<int>(node_.attrs.integer("axis"))),
        length_(laid.graph.type(node_.inputs[0]).shape[axis_]),
        count_(node_.type.shape[axis_]),
        lines_(num_elements(node_.type.shape) / count_),
        piece_(piece_of(length_)),
        in_(device_type(laid.graph.type(node_.inputs[0]).dtype)),
        placed_("Placed<SortKey<" + in_ + ">>"),
        numbers_(machine.any_extent) {
    const bool is_wide = item_size(laid.graph.type(node_.inputs[0]).dtype) == 8;
    half_bytes_ = round_up(lines_ * length_ * (is_wide ? 16 : 8), 16);
  }

  static int piece_of(std::int64_t length) {
    return static_cast<int>(
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(length, 2, kMostPiece))));
  }

  Lowered lower() {
    Lowered lowered;
    const bool is_whole = length_ <= piece_;
    lowered.calls.push_back(pieces(is_whole));
    int half = 0;
    for (std::int64_t run = piece_; run < length_; run *= 2, half = 1 - half)
      lowered.calls.push_back(merging(run, half, 2 * run >= length_));
    lowered.scratch_bytes = is_whole ? 0 : 2 * half_bytes_;
    lowered.description = description_of(lowered.calls.front());
    return lowered;
  }

 private:
  bool is_descending() const { return node_.attrs.flag("descending", false); }
  std::string order() const { return is_descending() ? "true" : "false"; }

  Call pieces(bool is_whole) {
    const std::string piece = std::to_string(piece_), length = numbers_.term(length_);
    const std::int64_t count = ceil_div(length_, piece_);
    const std::string pieces_of_line = numbers_.divided_by("pieces", count);
    const int threads = std::clamp(piece_ / 2, 32, kSortThreads);
    const std::string step = std::to_string(threads);
    std::string body =
        "__shared__ " + placed_ + " piece[" + piece + "];\nconst int line = blockIdx.x / " +
        pieces_of_line + ", begin = blockIdx.x % " + pieces_of_line + " * " + piece +
        ";\nfor (int i = threadIdx.x; i < " + piece + "; i += " + step +
        ") {\nconst int j = begin + i;\npiece[i].place = j < " + length +
        " ? j : kNowhere;\npiece[i].key = j < " + length + " ? SortKey<" + in_ +
        ">(value_of(from[" + Lines(from_, axis_).offset(numbers_) + "])) : SortKey<" + in_ +
        ">(0);\n}\nsort_piece<" + order() + ", " + piece + ", " + step +
        ">(piece);\nfor (int i = threadIdx.x; i < " + piece + "; i += " + step +
        ") {\nconst int j = begin + i;\nif (j < " + length + ") {\n";
    body += is_whole ? store("piece[i]") : "merged[i64(line) * " + length + " + j] = piece[i];\n";
    return call(body + "}\n}\n", threads, lines_ * count,
                is_whole ? Memory{"", -1, -1} : Memory{"_pieces", -1, 0});
  }

  Call merging(std::int64_t run, int half, bool is_last) {
    const std::string length = numbers_.divided_by("length", length_),
                      plain = numbers_.term(length_);
    std::string body = "const int i = blockIdx.x * " + std::to_string(kSortThreads) +
                       " + threadIdx.x;\nif (i < " + numbers_.term(lines_ * length_) +
                       ") {\nconst int line = i / " + length + ", own = i % " + length +
                       ";\nconst " + placed_ + "* elements = sorted + i64(line) * " + plain +
                       ";\nconst int j = merged_place<" + order() + ">(elements, " + plain + ", " +
                       numbers_.term(run) + ", own);\n";
    body += is_last ? store("elements[own]")
                    : "merged[i64(line) * " + plain + " + j] = elements[own];\n";
    return call(body + "}\n", kSortThreads, ceil_div(lines_ * length_, kSortThreads),
                is_last ? Memory{"_last", half, -1} : Memory{"_merge", half, 1 - half});
  }

  std::string store(const std::string& element) {
    const std::string out(device_type(node_.type.dtype));
    const std::string is_wanted = count_ < length_ ? "if (j < " + numbers_.term(count_) + ") " : "";
    return is_wanted + "to[" + Lines(to_, axis_).offset(numbers_) + "] = " +
           (node_.op == Op::argsort
                ? "i64(" + element + ".place)"
                : "stored<" + out + ">(Compute<" + out + ">(" + element + ".key))") +
           ";\n";
  }

  // What a kernel is for, and the halves of the scratch memory that it reads and writes instead of
  // the operands.
  struct Memory {
    std::string what;
    int sorted, merged;
  };

  Call call(const std::string& body, int threads, std::int64_t blocks, const Memory& memory) {
    Call call;
    std::string parameters;
    const auto pass = [&](const std::string& parameter, const Pointer& pointer) {
      parameters += (parameters.empty() ? "" : ",\n    ") + parameter;
      call.arguments.emplace_back(pointer);
    };
    const auto half = [&](int which) {
      return Pointer{Pointer::Base::scratch, 0, which * half_bytes_};
    };
    if (memory.sorted < 0)
      pass("const " + in_ + "* from", {Pointer::Base::operand, 0, 0});
    else
      pass("const " + placed_ + "* sorted", half(memory.sorted));
    if (memory.merged < 0)
      pass(std::string(device_type(node_.type.dtype)) + "* to", {Pointer::Base::operand, 1, 0});
    else
      pass(placed_ + "* merged", half(memory.merged));
    call.source.text = "#include \"sort.h\"\nusing namespace tensor::device;\n" +
                       numbers_.struct_text() + "extern \"C\" __global__ __launch_bounds__(" +
                       std::to_string(threads) + ") void KERNEL(" + parameters +
                       numbers_.last_parameter() + ") {\nlaunch_next();\nwait_for_previous();\n" +
                       body + "}\n";
    call.launch.grid = {static_cast<unsigned>(blocks)};
    call.launch.block = {static_cast<unsigned>(threads)};
    call.launch.overlaps_previous = machine_.overlaps_launches;
    numbers_.add_argument(call.arguments);
    name_kernel(call, machine_,
                "sort_" + std::string(name(node_.type.dtype)) + "_" +
                    std::string(info(node_.op).name) + memory.what);
    numbers_ = Extents(machine_.any_extent);
    return call;
  }

  const Machine& machine_;
  const Node& node_;
  const Layout &from_, &to_;
  const int axis_;
  const std::int64_t length_, count_, lines_;  // count_: of the first elements that are wanted
  const int piece_;
  const std::string in_, placed_;
  std::int64_t half_bytes_ = 0;  // of the scratch memory
  Extents numbers_;
};

std::optional<Implementation> consider_sort(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const Group& group = alone.group;
  if (group.nodes.size() != 1) return std::nullopt;
  const Node& node = graph[group.nodes[0]];
  if (node.op != Op::sort && node.op != Op::argsort) return std::nullopt;
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const std::int64_t count = num_elements(shape);
  if (num_elements(node.type.shape) == 0 || count > kMostSorted) return std::nullopt;
  const std::int64_t length = shape[static_cast<int>(node.attrs.integer("axis"))];
  int kernels = 1;
  for (std::int64_t run = SortGenerator::piece_of(length); run < length; run *= 2) ++kernels;
  // A key and a place are moved for every element, and a place is found in as many steps as a piece
  // is sorted in, roughly.
  const double each = machine.launch_us + moving_us(machine, 32.0 * static_cast<double>(count)) +
                      computing_us(machine, Op::softmax, 8.0 * static_cast<double>(count));
  return Implementation{kernels * each, [machine](const Isolated& one) {
                          return SortGenerator(one.laid, one.group, machine).lower();
                        }};
}

}  // namespace

const Family kSort = {"sort", consider_sort};

}  // namespace tensor::cuda
