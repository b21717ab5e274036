// The scan family: cumsum and cumprod, a warp for every line.
#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/lines.h"
#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {
namespace {

constexpr int kScanThreads = 128;  // of a block
constexpr int kLines = kScanThreads / 32;

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  const ValueId id = group.nodes[0], from = laid.graph[id].inputs[0];
  const Node& node = laid.graph[id];
  const int axis = static_cast<int>(node.attrs.integer("axis"));
  const auto layout = [&](ValueId value) { return laid.layouts[at(value)]; };
  const std::int64_t length = node.type.shape[axis];
  const std::int64_t lines = num_elements(node.type.shape) / length;
  const std::string in(device_type(laid.graph.type(from).dtype)), out(device_type(node.type.dtype)),
      total = is_floating(node.type.dtype) ? "double" : "i64";
  const bool is_sum = node.op == Op::cumsum;
  const std::string none = is_sum ? "0" : "1", join = is_sum ? "plus" : "times",
                    running = is_sum ? "running_sum" : "running_product";
  Extents numbers(machine.any_extent);
  const std::string end = numbers.term(length);
  const std::string body =
      "launch_next();\nwait_for_previous();\nconst int lane = threadIdx.x % 32;\n"
      "const int line = blockIdx.x * " +
      std::to_string(kLines) + " + threadIdx.x / 32;\nif (line >= " + numbers.term(lines) +
      ") return;\n" + total + " all = " + none + ";\nfor (int begin = 0; begin < " + end +
      "; begin += 32) {\nconst int j = begin + lane;\n" + total + " x = " + none + ";\nif (j < " +
      end + ") x = convert<" + total + ">(value_of(from[" +
      Lines(layout(from), axis).offset(numbers) + "]));\nx = " + join + "(all, " + running +
      "(x, lane));\nif (j < " + end + ") to[" + Lines(layout(id), axis).offset(numbers) +
      "] = stored<" + out + ">(convert<Compute<" + out +
      ">>(x));\nall = __shfl_sync(0xffffffffu, x, 31);\n}\n";
  Call call;
  call.source.text = "#include \"scan.h\"\nusing namespace tensor::device;\n" +
                     numbers.struct_text() + "extern \"C\" __global__ __launch_bounds__(" +
                     std::to_string(kScanThreads) + ") void KERNEL(const " + in + "* from, " + out +
                     "* to" + numbers.last_parameter() + ") {\n" + body + "}\n";
  call.launch.grid = {static_cast<unsigned>(ceil_div(lines, kLines))};
  call.launch.block = {kScanThreads};
  call.launch.overlaps_previous = machine.overlaps_launches;
  call.arguments.emplace_back(Pointer{Pointer::Base::operand, 0, 0});
  call.arguments.emplace_back(Pointer{Pointer::Base::operand, 1, 0});
  numbers.add_argument(call.arguments);
  name_kernel(call, machine,
              "scan_" + std::string(name(node.type.dtype)) + "_" + std::string(info(node.op).name));
  Lowered lowered;
  lowered.description = description_of(call);
  lowered.calls.push_back(std::move(call));
  return lowered;
}

std::optional<Implementation> consider_scan(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const Group& group = alone.group;
  if (group.nodes.size() != 1) return std::nullopt;
  const Node& node = graph[group.nodes[0]];
  const Shape& shape = node.type.shape;
  const std::int64_t count = num_elements(shape);
  if ((node.op != Op::cumsum && node.op != Op::cumprod) || count == 0 ||
      count >= std::int64_t{1} << 31)
    return std::nullopt;
  const auto steps =
      static_cast<double>((shape[static_cast<int>(node.attrs.integer("axis"))] + 31) / 32);
  return Implementation{machine.launch_us + machine.times.generated.scan_us * steps +
                            moving_us(machine, work_of(graph, group).bytes),
                        [=](const Isolated& one) { return lower(one.laid, one.group, machine); }};
}

}  // namespace

const Family kScan = {"scan", consider_scan};

}  // namespace tensor::cuda
