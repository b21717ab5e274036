#include "src/kernels/cuda/gemm_mma.h"

#include <algorithm>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

enum class Kind : std::uint8_t { mma, plain };

std::string number(const char* name, std::int64_t value) {
  return std::string("  static constexpr int ") + name + " = " + std::to_string(value) + ";\n";
}
std::string long_number(const char* name, std::int64_t value) {
  return std::string("  static constexpr i64 ") + name + " = " + std::to_string(value) + "ll;\n";
}
std::string flag(const char* name, bool value) {
  return std::string("  static constexpr bool ") + name + " = " + (value ? "true" : "false") +
         ";\n";
}

// A factor where the kernel reads it, and how many of its elements are moved together.
struct Side : Source {
  int chunk = 1;
};

Side side_of(const Factor& factor, const Pointer& memory) {
  Side source;
  source.factor = factor.settled();
  source.memory = memory;
  const Factor& f = source.factor;
  source.is_turned = f.row_stride == 1 && f.depth_stride != 1;
  const auto is_aligned = [](std::int64_t n) { return n % kChunk == 0; };
  const std::int64_t outer = source.is_turned ? f.depth_stride : f.row_stride;
  if ((source.is_turned || f.depth_stride == 1) && is_aligned(outer) && is_aligned(f.offset) &&
      std::all_of(f.batch_stride.begin(), f.batch_stride.end(), is_aligned))
    source.chunk = kChunk;
  return source;
}

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine, Product product,
          Kind kind)
      : laid_(laid), group_(group), machine_(machine), product_(std::move(product)), kind_(kind) {}

  Lowered run(const TileSchedule* wanted) {
    if (product_.is_shared && product_.batches > 1) {
      const Product merged = with_merged_rows(product_);
      if (left_factor(laid_, merged)) product_ = merged;
    }
    const GemmProblem problem = gemm_problem(laid_.graph, group_, product_);
    schedule_ =
        wanted ? *wanted : gemm_tile_schedules(problem, kind_ == Kind::plain, machine_).front();
    epilogue_ = epilogue_of(laid_, group_, product_, -1);
    left_ = placed(*left_factor(laid_, product_));
    right_ = placed_right();
    if (kind_ == Kind::plain || machine_.device.capability < 80) schedule_.stages = 2;
    if (schedule_.parts > 1)
      lowered_.scratch_bytes = schedule_.parts * product_.batches * product_.rows *
                               product_.features * std::int64_t{sizeof(float)};
    add_product();
    if (schedule_.parts > 1) add_sum();
    return std::move(lowered_);
  }

 private:
  int operand(ValueId id) const {
    const auto& reads = group_.reads;
    return static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin());
  }

  Side placed(const Factor& f) const {
    Side side = side_of(f, {Pointer::Base::operand, operand(f.value), 0});
    // Plain products keep to single elements: their sums take longer than their tiles.
    if (kind_ == Kind::plain) side.chunk = 1;
    return side;
  }

  Side placed_right() {
    const Factor f = right_factor(laid_, product_);
    const Side side = placed(f);
    if (kind_ == Kind::plain || side.chunk > 1 || !product_.is_constant) return side;
    const Source packed = packed_right(laid_, product_, operand(f.value), lowered_);
    return side_of(packed.factor, packed.memory);
  }

  bool is_async(const Side& s) const {
    return kind_ == Kind::mma && s.chunk == 8 && machine_.device.capability >= 80;
  }

  // "struct Left { using Element = Half; ... };"
  std::string factor_text(const char* name, const Side& s) const {
    const Factor& f = s.factor;
    std::string at = "0";
    for (int axis = 0; axis < f.batch.rank(); ++axis)
      at += " + i64(batch / " + std::to_string(f.batch_step[axis]) + " % " +
            std::to_string(f.batch[axis]) + ") * " + std::to_string(f.batch_stride[axis]) + "ll";
    return std::string("struct ") + name +
           " {\n  using Element = " + std::string(device_type(product_.dtype)) + ";\n" +
           number("kRows", f.rows) + number("kDepth", f.depth) +
           long_number("kRowStride", f.row_stride) + long_number("kDepthStride", f.depth_stride) +
           flag("kTurned", s.is_turned) + number("kChunk", s.chunk) +
           flag("kIsAsync", is_async(s)) + "  static i64 at(int batch) { return " + at +
           "; }\n};\n";
  }

  std::string definitions() const {
    const bool is_plain = kind_ == Kind::plain;
    const TileSchedule& s = schedule_;
    return std::string("#include \"") + (is_plain ? "gemm_plain.h" : "gemm_mma.h") +
           "\"\nusing namespace tensor::device;\n" + factor_text("LeftFactor", left_) +
           factor_text("RightFactor", right_) +
           "struct Schedule {\n  using Left = LeftFactor;\n  using Right = RightFactor;\n" +
           number("kRows", s.rows) + number("kColumns", s.columns) + number("kParts", s.parts) +
           number("kBand", 8) + flag("kPairs", product_.features % 2 == 0) +
           number(is_plain ? "kThreadsY" : "kWarpsY", s.down) +
           number(is_plain ? "kThreadsX" : "kWarpsX", s.across) + number("kStages", s.stages) +
           flag("kWide", machine_.device.capability >= 80) +
           flag("kRightFirst", product_.is_constant) + "};\nstruct Problem {\n" +
           number("kRows", product_.rows) + number("kFeatures", product_.features) +
           number("kDepth", product_.depth) + number("kBatches", product_.batches) + "};\n" +
           epilogue_.text + "using Gemm = " + (is_plain ? "GemmPlain" : "GemmMma") +
           "<Schedule, Problem, Epilogue>;\n";
  }

  // ", PARAMETERS" and "MEMBER, MEMBER".
  std::pair<std::string, std::string> epilogue_parameters() const {
    std::string parameters, members;
    for (const std::string& parameter : epilogue_.parameters) {
      parameters += ",\n    " + parameter;
      members += (members.empty() ? "" : ", ") + parameter.substr(parameter.rfind(' ') + 1);
    }
    return {parameters, members};
  }

  void add(Call call, std::int64_t blocks, int threads, const std::string& what) {
    call.launch.grid.x = static_cast<unsigned>(blocks);
    call.launch.block.x = static_cast<unsigned>(threads);
    call.launch.overlaps_previous = machine_.device.capability >= 90;
    name_kernel(call, machine_, what);
    lowered_.calls.push_back(std::move(call));
  }

  void add_product() {
    const bool is_plain = kind_ == Kind::plain;
    const TileSchedule& s = schedule_;
    const auto [parameters, members] = epilogue_parameters();
    const int threads = s.down * s.across * (is_plain ? 1 : 32);
    const std::string type(device_type(product_.dtype));
    const std::int64_t shared = is_plain ? 0 : shared_bytes();
    Call call;
    call.source.text =
        definitions() +
        (is_plain ? "" : "static_assert(Gemm::kSharedBytes == " + std::to_string(shared) + ");\n") +
        "extern \"C\" __global__ __launch_bounds__(" + std::to_string(threads) +
        ") void KERNEL(\n    const " + type + "* left, const " + type + "* right, float* partials" +
        parameters + ") {\n  const Epilogue epilogue{" + members +
        "};\n  Gemm::run(left, right, partials, epilogue);\n}\n";
    call.launch.shared_bytes = static_cast<unsigned>(shared);
    call.arguments = {left_.memory, right_.memory, Pointer{Pointer::Base::scratch, 0, 0}};
    call.arguments.insert(call.arguments.end(), epilogue_.arguments.begin(),
                          epilogue_.arguments.end());
    const auto along = [](std::int64_t extent, int tile) { return (extent + tile - 1) / tile; };
    const std::int64_t blocks = along(product_.rows, s.rows) * along(product_.features, s.columns) *
                                product_.batches * s.parts;
    std::string what = std::string(is_plain ? "gemm_plain_" : "gemm_mma_") +
                       std::string(name(product_.dtype)) + "_f32_" + s.name();
    if (!epilogue_.name.empty()) what += "_" + epilogue_.name;
    add(std::move(call), blocks, threads, what);
    const std::string& entry = lowered_.calls.back().entry;
    lowered_.description = entry.substr(0, entry.find("__"));
  }

  // As FactorTile::kBytes of both factors, in every stage.
  std::int64_t shared_bytes() const {
    constexpr std::int64_t kDepth = 32, kPad = 8, kItem = 2;
    const auto tile = [](const Side& s, std::int64_t rows) {
      const std::int64_t lines = s.is_turned ? kDepth : rows, across = s.is_turned ? rows : kDepth;
      return (lines * (across + kPad) * kItem + 127) / 128 * 128;
    };
    return schedule_.stages * (tile(left_, schedule_.rows) + tile(right_, schedule_.columns));
  }

  void add_sum() {
    constexpr int kThreads = 256;
    const auto [parameters, members] = epilogue_parameters();
    Call call;
    call.source.text = definitions() +
                       "extern \"C\" __global__ __launch_bounds__(256) void KERNEL(\n"
                       "    const float* partials" +
                       parameters + ") {\n  const Epilogue epilogue{" + members +
                       "};\n  Gemm::Tile::add_parts(epilogue, partials);\n}\n";
    call.arguments = {Pointer{Pointer::Base::scratch, 0, 0}};
    call.arguments.insert(call.arguments.end(), epilogue_.arguments.begin(),
                          epilogue_.arguments.end());
    const std::int64_t pairs =
        product_.batches * product_.rows * product_.features / (product_.features % 2 == 0 ? 2 : 1);
    const std::int64_t blocks = std::clamp<std::int64_t>((pairs + kThreads - 1) / kThreads, 1,
                                                         8 * machine_.device.multiprocessors);
    std::string what = "sum_of_" + std::to_string(schedule_.parts);
    if (!epilogue_.name.empty()) what += "_" + epilogue_.name;
    add(std::move(call), blocks, kThreads, what);
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  Product product_;
  const Kind kind_;
  TileSchedule schedule_;
  Epilogue epilogue_;
  Side left_, right_;
  Lowered lowered_;
};

// ---- What each family takes.

std::optional<Product> fitting(const Graph& graph, const Group& group) {
  auto product = match_product(graph, group);
  if (!product || product->dtype == f64) return std::nullopt;
  const std::int64_t rows = product->rows * product->batches;
  if (std::max({rows, product->features, product->depth}) >= INT32_MAX / 2) return std::nullopt;
  return product;
}

bool has_tensor_cores(DType dtype, const Machine& machine) {
  return dtype == f16 || (dtype == bf16 && machine.device.capability >= 80);
}

// Hopper has a family of its own for what its Tensor Cores multiply.
std::optional<Product> for_mma(const Graph& graph, const Group& group, const Machine& machine) {
  if (machine.device.capability == 90) return std::nullopt;
  auto product = fitting(graph, group);
  if (!product || !has_tensor_cores(product->dtype, machine)) return std::nullopt;
  return product;
}
std::optional<Product> for_plain(const Graph& graph, const Group& group, const Machine& machine) {
  auto product = fitting(graph, group);
  if (!product || has_tensor_cores(product->dtype, machine)) return std::nullopt;
  return product;
}

std::optional<double> time_of(std::optional<Product> product, const Graph& graph,
                              const Group& group, const Machine& machine, bool is_plain) {
  if (!product) return std::nullopt;
  if (product->is_shared) product = with_merged_rows(*product);
  const GemmProblem problem = gemm_problem(graph, group, *product);
  const TileSchedule best = gemm_tile_schedules(problem, is_plain, machine).front();
  return machine.launch_us + model_gemm_tiles(problem, best, is_plain, machine);
}

std::optional<double> estimate_mma(const Graph& graph, const Group& group, const Machine& machine) {
  return time_of(for_mma(graph, group, machine), graph, group, machine, false);
}
std::optional<double> estimate_plain(const Graph& graph, const Group& group,
                                     const Machine& machine) {
  return time_of(for_plain(graph, group, machine), graph, group, machine, true);
}

Lowered lower_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Builder(laid, group, machine, *fitting(laid.graph, group), Kind::mma).run(nullptr);
}
Lowered lower_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Builder(laid, group, machine, *fitting(laid.graph, group), Kind::plain).run(nullptr);
}

}  // namespace

Lowered lower_gemm_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                       const TileSchedule& schedule) {
  return Builder(laid, group, machine, *fitting(laid.graph, group), Kind::mma).run(&schedule);
}
Lowered lower_gemm_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                         const TileSchedule& schedule) {
  return Builder(laid, group, machine, *fitting(laid.graph, group), Kind::plain).run(&schedule);
}

const Family kGemmMma = {"gemm_mma", estimate_mma, lower_mma};
const Family kGemmPlain = {"gemm_plain", estimate_plain, lower_plain};

}  // namespace tensor::cuda
