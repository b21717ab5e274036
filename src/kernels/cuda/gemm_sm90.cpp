#include "src/kernels/cuda/gemm_sm90.h"

#include <algorithm>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/wgmma.h"
#include "tensor/error.h"
#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace tensor::cuda {
namespace {

constexpr int kDepth = 64;          // of a stage
constexpr std::int64_t kChunk = 8;  // elements of 16 bytes, the unit of the copy engine

int columns_of(const GemmSchedule& s) { return s.swapped ? s.tokens : s.features; }

std::string boolean_text(bool value) { return value ? "true" : "false"; }

// A factor where the kernel reads it.
struct Source {
  Factor factor;
  Pointer memory;
  bool is_turned = false;  // features next to each other
};

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine, Product product)
      : laid_(laid), group_(group), machine_(machine), product_(std::move(product)) {}

  Lowered run(const GemmSchedule* wanted) {
    if (product_.is_shared && product_.batches > 1) {
      const Product merged = with_merged_rows(product_);
      if (left_factor(laid_, merged)) product_ = merged;
    }
    staged_ = boxed_write(laid_, group_, product_);
    GemmProblem problem = gemm_problem(laid_.graph, group_, product_);
    problem.staged = staged_ >= 0;
    const GemmSchedule schedule = wanted ? *wanted : gemm_sm90_schedules(problem, machine_).front();
    if (const std::string fault =
            schedule.fault(machine_.device.shared_block_bytes, problem.staged);
        !fault.empty())
      internal_error("gemm_sm90", schedule.name(), ": ", fault);
    const Source inputs = left_source();
    const Source weights = right_source();
    add_kernel(schedule, weights, inputs);
    return std::move(lowered_);
  }

 private:
  int operand(ValueId id) const {
    const auto& reads = group_.reads;
    return static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin());
  }

  static bool fits(const Factor& f) {
    return f.depth_stride == 1 && f.row_stride > 0 && f.row_stride % kChunk == 0 &&
           f.offset % kChunk == 0 && f.batch.rank() <= 3 &&
           std::all_of(f.batch_stride.begin(), f.batch_stride.end(),
                       [](std::int64_t s) { return s > 0 && s % kChunk == 0; });
  }

  // Strides of axes of extent 1 mean nothing.
  static Factor settled(Factor f) {
    const std::int64_t pitch = (f.depth + kChunk - 1) / kChunk * kChunk;
    if (f.depth == 1) f.depth_stride = 1;
    if (f.rows == 1) f.row_stride = f.depth_stride == 1 ? pitch : 1;
    return f;
  }

  Source copied(const Factor& f) {
    const std::int64_t pitch = (f.depth + kChunk - 1) / kChunk * kChunk;
    const Pointer to{Pointer::Base::scratch, 0, lowered_.scratch_bytes};
    lowered_.calls.push_back(copy_factor(f, product_.batches, product_.dtype, pitch,
                                         {Pointer::Base::operand, operand(f.value), 0}, to,
                                         machine_));
    const std::int64_t bytes = product_.batches * f.rows * pitch * 2;
    lowered_.scratch_bytes += (bytes + 1023) / 1024 * 1024;
    Factor dense{f.value, f.rows, f.depth, pitch, 1, {}, {}, {}, 0};
    if (product_.batches > 1) {
      dense.batch = {product_.batches};
      dense.batch_stride = {f.rows * pitch};
      dense.batch_step = {1};
    }
    return {dense, to};
  }

  Source left_source() {
    const Factor f = settled(*left_factor(laid_, product_));
    if (!fits(f)) return copied(f);
    return {f, {Pointer::Base::operand, operand(f.value), 0}};
  }

  Source right_source() {
    const Factor f = settled(right_factor(laid_, product_));
    const Pointer memory{Pointer::Base::operand, operand(f.value), 0};
    if (fits(f)) return {f, memory};
    if (product_.is_constant) return packed(f);
    Factor turned = f;
    std::swap(turned.row_stride, turned.depth_stride);
    if (turned.rows == 1) turned.depth_stride = 1;
    if (fits(turned)) return {turned, memory, true};
    return copied(f);
  }

  // [..., depth, features] with features as rows, filled up to whole chunks.
  Source packed(Factor f) {
    const std::int64_t pitch = (f.depth + kChunk - 1) / kChunk * kChunk;
    const Shape shape = laid_.graph.type(f.value).shape;
    const auto pack = [pitch](const Tensor& weights) {
      const Tensor rows = weights.swapaxes(-1, -2);
      Tensor result = zeros(
          [&] {
            Shape padded = rows.shape();
            padded[padded.rank() - 1] = pitch;
            return padded;
          }(),
          rows.dtype());
      result(ellipsis, slice(0, rows.shape(-1))) = rows;
      return result;
    };
    lowered_.packed.push_back({operand(f.value), pack});
    // Batches lie as in the constant's shape, row-major.
    Strides strides = row_major(shape);
    f.depth_stride = 1, f.row_stride = pitch, f.offset = 0;
    LaidOutGraph dense{laid_.graph, laid_.layouts};
    const int rank = shape.rank();
    Shape turned = shape;
    std::swap(turned[rank - 1], turned[rank - 2]);
    turned[rank - 1] = pitch;
    strides = row_major(turned);
    std::swap(strides[rank - 1], strides[rank - 2]);
    dense.layouts[static_cast<std::size_t>(f.value)] = {shape, strides, 0};
    return {settled(right_factor(dense, product_)),
            {Pointer::Base::packed, static_cast<int>(lowered_.packed.size()) - 1, 0}};
  }

  TensorMapOf map_of(const Source& s, DType dtype, int box_rows) const {
    const Factor& f = s.factor;
    TensorMapOf map{s.memory, dtype, {f.depth, f.rows}, {f.row_stride * 2}, {kDepth, box_rows}};
    if (s.is_turned) {
      map.extents = {f.rows, f.depth};
      map.box = {64, kDepth};
    }
    for (int axis = f.batch.rank() - 1; axis >= 0; --axis) {
      map.extents.push_back(f.batch[axis]);
      map.stride_bytes.push_back(f.batch_stride[axis] * 2);
      map.box.push_back(1);
    }
    return map;
  }

  // "static Corner<3> weights(int x, int y, int batch) { return {{x, y, batch / 1 % 12}}; }"
  static std::string corner_text(const std::string& name, const Factor& f, bool is_turned) {
    std::string text = is_turned ? "y, x" : "x, y";
    for (int axis = f.batch.rank() - 1; axis >= 0; --axis)
      text +=
          ", batch / " + std::to_string(f.batch_step[axis]) + " % " + std::to_string(f.batch[axis]);
    const std::string axes = std::to_string(2 + f.batch.rank());
    return "  static Corner<" + axes + "> " + name + "(int x, int y, int batch) { return {{" +
           text + "}}; }\n";
  }

  // The boxed write as a factor: tokens as rows, features as depth.
  Source output_source() const {
    const ValueId id = group_.writes[static_cast<std::size_t>(staged_)];
    return {settled(*rows_of_features(laid_, id, product_)),
            {Pointer::Base::operand, static_cast<int>(group_.reads.size()) + staged_, 0}};
  }

  void add_kernel(const GemmSchedule& s, const Source& weights, const Source& inputs) {
    const Epilogue epilogue = epilogue_of(laid_, group_, product_, staged_);
    const bool staged = staged_ >= 0;
    const Source outputs = staged ? output_source() : inputs;
    const DType output_type =
        staged ? laid_.graph.type(group_.writes[static_cast<std::size_t>(staged_)]).dtype
               : product_.dtype;
    Call call;
    call.source.text = text_of(s, epilogue, weights, inputs, outputs, output_type);
    const std::int64_t tiles = (product_.rows + s.tokens - 1) / s.tokens *
                               ((product_.features + s.features - 1) / s.features) *
                               product_.batches;
    call.launch.grid.x =
        static_cast<unsigned>(std::min<std::int64_t>(tiles, machine_.device.multiprocessors));
    call.launch.block.x = static_cast<unsigned>(s.threads());
    call.launch.shared_bytes = static_cast<unsigned>(s.needed_shared_bytes(staged));
    call.launch.overlaps_previous = true;
    call.arguments = {map_of(weights, product_.dtype, s.features),
                      map_of(inputs, product_.dtype, s.tokens),
                      map_of(outputs, output_type, s.swapped ? s.tokens : 64)};
    call.arguments.insert(call.arguments.end(), epilogue.arguments.begin(),
                          epilogue.arguments.end());
    std::string what = "gemm_" + std::string(name(product_.dtype)) + "_f32_" + s.name();
    if (!epilogue.name.empty()) what += "_" + epilogue.name;
    name_kernel(call, machine_, what);
    lowered_.description = call.entry.substr(0, call.entry.find("__"));
    lowered_.calls.push_back(std::move(call));
  }

  std::string text_of(const GemmSchedule& s, const Epilogue& epilogue, const Source& weights,
                      const Source& inputs, const Source& outputs, DType output_type) const {
    const auto number = [](const char* name, std::int64_t value) {
      return std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
    };
    const auto flag = [](const char* name, bool value) {
      return std::string("  static constexpr bool ") + name + " = " + boolean_text(value) + ";\n";
    };
    std::string parameters, members;
    for (const std::string& parameter : epilogue.parameters) {
      parameters += ",\n    " + parameter;
      members += (members.empty() ? "" : ", ") + parameter.substr(parameter.rfind(' ') + 1);
    }
    const WgmmaForm form{columns_of(s), product_.dtype, false, weights.is_turned && s.swapped,
                         weights.is_turned && !s.swapped};
    return "#include \"gemm_sm90.h\"\nusing namespace tensor::device;\nstruct Schedule {\n"
           "  using Output = " +
           std::string(device_type(output_type)) + ";\n" + number("kTokens", s.tokens) +
           number("kFeatures", s.features) + number("kStages", s.stages) +
           number("kGroups", s.groups) + number("kBlocks", s.blocks) + number("kBand", s.band) +
           flag("kSwapped", s.swapped) + flag("kTakesTurns", s.takes_turns) +
           flag("kTurned", weights.is_turned) + flag("kWeightsFirst", product_.is_constant) +
           flag("kStaged", staged_ >= 0) + flag("kPairs", product_.features % 2 == 0) +
           "};\nstruct Problem {\n" + number("kTokens", product_.rows) +
           number("kFeatures", product_.features) + number("kDepth", product_.depth) +
           number("kBatches", product_.batches) +
           corner_text("weights", weights.factor, weights.is_turned) +
           corner_text("inputs", inputs.factor, false) +
           corner_text("outputs", outputs.factor, false) + "};\n" + wgmma_text("Wgmma", form) +
           epilogue.text +
           "using Gemm = GemmSm90<Schedule, Problem, Wgmma, Epilogue>;\n"
           "static_assert(Gemm::kSharedBytes == " +
           std::to_string(s.needed_shared_bytes(staged_ >= 0)) +
           " && Gemm::kThreads == " + std::to_string(s.threads()) +
           ");\nextern \"C\" __global__ __launch_bounds__(Gemm::kThreads, 1) void KERNEL(\n"
           "    const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap "
           "inputs,\n    const __grid_constant__ TensorMap outputs" +
           parameters +
           ") {\n"
           "  const Epilogue epilogue{" +
           members +
           "};\n"
           "  Gemm::run(weights, inputs, outputs, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  Product product_;
  int staged_ = -1;
  Lowered lowered_;
};

std::optional<Product> accepted(const Graph& graph, const Group& group, const Machine& machine) {
  if (machine.device.capability != 90) return std::nullopt;
  auto product = match_product(graph, group);
  if (!product || (product->dtype != f16 && product->dtype != bf16)) return std::nullopt;
  const std::int64_t rows = product->rows * product->batches;
  const bool fits_int = std::max({rows, product->features, product->depth}) < INT32_MAX / 2;
  if (!fits_int) return std::nullopt;
  return product;
}

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  auto product = accepted(graph, group, machine);
  if (!product) return std::nullopt;
  if (product->is_shared) product = with_merged_rows(*product);
  const GemmProblem problem = gemm_problem(graph, group, *product);
  return machine.launch_us +
         model_gemm_sm90(problem, gemm_sm90_schedules(problem, machine).front(), machine);
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Builder(laid, group, machine, *accepted(laid.graph, group, machine)).run(nullptr);
}

}  // namespace

Lowered lower_gemm_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                        const GemmSchedule& schedule) {
  return Builder(laid, group, machine, *accepted(laid.graph, group, machine)).run(&schedule);
}

const Family kGemmSm90 = {"gemm_sm90", estimate, lower};

}  // namespace tensor::cuda
