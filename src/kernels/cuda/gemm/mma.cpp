#include "src/kernels/cuda/gemm/mma.h"

#include <algorithm>
#include <utility>

#include "src/core/rounding.h"
#include "src/kernels/cuda/families.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

// A factor where the kernel reads it, and how many of its elements are moved together.
struct Side : Source {
  int chunk = 1;
};

Side side_of(const Factor& factor, const Pointer& memory, DType dtype) {
  const auto chunk = static_cast<int>(16 / item_size(dtype));
  Side source;
  source.factor = factor.settled();
  source.memory = memory;
  const Factor& f = source.factor;
  source.is_turned = f.row_stride == 1 && f.k_stride != 1;
  const auto is_aligned = [&](std::int64_t n) { return n % chunk == 0; };
  const std::int64_t outer = source.is_turned ? f.k_stride : f.row_stride;
  if ((source.is_turned || f.k_stride == 1) && is_aligned(outer) && is_aligned(f.offset) &&
      std::all_of(f.batch_stride.begin(), f.batch_stride.end(), is_aligned))
    source.chunk = chunk;
  return source;
}

class GemmMmaBuilder {
 public:
  GemmMmaBuilder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                 Product product, Multiplier multiplier)
      : laid_(laid),
        group_(group),
        machine_(machine),
        product_(std::move(product)),
        multiplier_(multiplier) {}

  Lowered run(const TileSchedule* wanted) {
    if (product_.is_shared && product_.batches > 1) {
      const Product merged = with_merged_rows(product_);
      if (left_factor(laid_, merged)) product_ = merged;
    }
    const GemmProblem problem = gemm_problem(laid_.graph, group_, product_);
    schedule_ =
        wanted ? *wanted
        : group_.schedule.empty()
            ? gemm_tile_schedules(problem, multiplier_, machine_).front()
            : tile_schedule_of(gemm_tile_space(problem, multiplier_, machine_).of(group_.schedule));
    const std::int64_t elements = product_.batches * product_.m * product_.n;
    is_far_ = elements > INT32_MAX / 2;
    numbers_ = Extents(are_any());
    epilogue_ = epilogue_of(laid_, group_, product_, {}, numbers_);
    left_ = placed_left();
    right_ = placed_right();
    add_problem();
    if (!machine_.copies_async) schedule_.stages = 2;
    partials_.bytes = lowered_.scratch_bytes;
    if (schedule_.parts > 1)
      lowered_.scratch_bytes += schedule_.parts * elements * std::int64_t{sizeof(float)};
    add_product();
    if (schedule_.parts > 1) add_sum();
    return std::move(lowered_);
  }

 private:
  bool is_plain() const { return multiplier_ == Multiplier::plain; }
  std::string sum_type() const { return product_.dtype == i8 ? "int" : "float"; }
  // More elements than an int counts are divided by constants only.
  bool are_any() const { return machine_.any_extent && !is_far_; }

  int operand(ValueId id) const {
    const auto& reads = group_.reads;
    return static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin());
  }

  Side placed(const Factor& f) const {
    return side_of(f, {Pointer::Base::operand, operand(f.value), 0}, product_.dtype);
  }

  // Tensor Cores take i8 with k innermost only: ldmatrix turns elements of 16 bits.
  Side placed_left() {
    const Factor f = *left_factor(laid_, product_);
    const Side side = placed(f);
    if (multiplier_ != Multiplier::bytes || (side.chunk > 1 && !side.is_turned)) return side;
    const Source dense = copied(f.settled(), side.memory, product_.batches, i8, machine_, lowered_);
    return side_of(dense.factor, dense.memory, i8);
  }

  Side placed_right() {
    if (product_.dtype == i8) {
      const ValueId weights = laid_.graph[product_.matmul].inputs[1];
      const Source packed = packed_right(laid_, product_, operand(weights), lowered_);
      return side_of(packed.factor, packed.memory, i8);
    }
    const Factor f = right_factor(laid_, product_);
    const Side side = placed(f);
    // Plain products have k outermost, and better in memory already.
    const bool is_ready = side.chunk > 1 && (side.is_turned || !is_plain());
    if (is_ready || !product_.is_constant) return side;
    const Source packed = is_plain() ? turned_right(laid_, product_, operand(f.value), lowered_)
                                     : packed_right(laid_, product_, operand(f.value), lowered_);
    return side_of(packed.factor, packed.memory, product_.dtype);
  }

  // Tensor Cores take chunks of 16 bytes. Of plain products what has to be turned over comes
  // through registers, unless it is too much for them: cp.async does it by elements, which takes
  // longer.
  bool is_async(const Side& s, int rows) const {
    if (!machine_.copies_async) return false;
    if (!is_plain()) return s.chunk > 1;
    const int each = rows * schedule_.tile_k(multiplier_) / schedule_.threads();
    return product_.dtype == f32 &&
           (s.is_turned || s.chunk == 1 || each > (schedule_.sums() > 64 ? 16 : 8));
  }

  Extents factor_of(const Side& s, int rows, const char* type, const char* object) const {
    Extents factor = factor_numbers(s.factor, product_.dtype, are_any(), type, object);
    if (is_plain()) {
      const int tile_k = schedule_.tile_k(multiplier_);
      factor.flag("kWholeRows", !are_any() && s.factor.rows % rows == 0);
      factor.flag("kWholeDepth", !are_any() && s.factor.k % tile_k == 0);
    }
    factor.flag("kTurned", s.is_turned);
    factor.constant("kChunk", is_plain() && is_async(s, rows) && !s.is_turned ? 1 : s.chunk);
    factor.flag("kIsAsync", is_async(s, rows));
    return factor;
  }
  Extents left_factor_of() const {
    return factor_of(left_, schedule_.tile_m, "LeftFactor", "left_factor");
  }
  Extents right_factor_of() const {
    return factor_of(right_, schedule_.tile_n, "RightFactor", "right_factor");
  }

  void add_problem() {
    constexpr int kBand = 8;
    const TileSchedule& s = schedule_;
    const Product& p = product_;
    const std::int64_t down = ceil_div(p.m, s.tile_m), across = ceil_div(p.n, s.tile_n);
    const std::int64_t step = s.tile_k(multiplier_);
    const std::int64_t together = p.n % 2 == 0 ? 2 : 1;
    numbers_.number("kRows", p.m);
    numbers_.number("kFeatures", p.n);
    numbers_.number("kSteps", ceil_div(p.k, step));
    numbers_.number("kTilesDown", down);
    numbers_.divisor("kTiles", down * across);
    numbers_.divisor("kTilesOfBand", kBand * across);
    numbers_.constant("kBand", kBand);
    numbers_.number("kPartElements", p.batches * p.m * p.n);
    numbers_.divisor("kColumns", p.n / together);
    numbers_.flag("kIsFar", is_far_);
    numbers_.flag("kWholeRows", !are_any() && p.m % s.tile_m == 0);
    numbers_.flag("kWholeFeatures", p.n % s.tile_n == 0);
  }

  std::string definitions() const {
    const bool is_plain = this->is_plain();
    const TileSchedule& s = schedule_;
    return std::string("#include \"") + (is_plain ? "gemm_plain.h" : "gemm_mma.h") +
           "\"\nusing namespace tensor::device;\n" + left_factor_of().struct_text() +
           right_factor_of().struct_text() +
           "struct Schedule {\n  using Left = LeftFactor;\n  using Right = RightFactor;\n" +
           constant_text("kRows", s.tile_m) + constant_text("kColumns", s.tile_n) +
           constant_text("kParts", s.parts) + flag_text("kPairs", product_.n % 2 == 0) +
           constant_text("kWarpsY", s.down) + constant_text("kWarpsX", s.across) +
           constant_text("kStages", s.stages) +
           (is_plain ? constant_text("kSlices", s.slices) +
                           constant_text("kDepth", s.tile_k(multiplier_))
                     : flag_text("kWide", machine_.copies_async)) +
           flag_text("kRightFirst", product_.is_constant) + "};\n" + numbers_.struct_text() +
           epilogue_.text + "using Gemm = " + (is_plain ? "GemmPlain" : "GemmMma") +
           "<Schedule, Problem, Epilogue>;\n";
  }

  void add(Call call, std::int64_t blocks, int threads, const std::string& what) {
    call.launch.grid.x = static_cast<unsigned>(blocks);
    call.launch.block.x = static_cast<unsigned>(threads);
    call.launch.overlaps_previous = machine_.overlaps_launches;
    name_kernel(call, machine_, what);
    lowered_.calls.push_back(std::move(call));
  }

  int plain_residents() const {
    return machine_.device.registers / (plain_registers(schedule_, machine_) * schedule_.threads());
  }

  void add_product() {
    const bool is_plain = this->is_plain();
    const TileSchedule& s = schedule_;
    const Extents left = left_factor_of(), right = right_factor_of();
    const int threads = s.threads();
    const std::string type(device_type(product_.dtype));
    const std::int64_t shared =
        std::max(s.stages * (stage_bytes(s, multiplier_, left_.is_turned, s.tile_m) +
                             stage_bytes(s, multiplier_, right_.is_turned, s.tile_n)),
                 sum_bytes(s, multiplier_));
    Call call;
    call.source.text =
        definitions() + "static_assert(Gemm::kSharedBytes == " + std::to_string(shared) +
        ");\nextern \"C\" __global__ __launch_bounds__(" + std::to_string(threads) +
        (is_plain ? ", " + std::to_string(plain_residents()) : "") + ") void KERNEL(\n    const " +
        type + "* left, const " + type + "* right, " + sum_type() + "* partials" +
        epilogue_.more_parameters() + numbers_.last_parameter() + left.last_parameter() +
        right.last_parameter() + ") {\n" + numbers_.object_text() + left.object_text() +
        right.object_text() + epilogue_.object_text(numbers_) +
        "  Gemm::run(problem, {left_factor, left}, {right_factor, right}, partials, "
        "epilogue);\n}\n";
    call.launch.shared_bytes = static_cast<unsigned>(shared);
    call.arguments = {left_.memory, right_.memory, partials_};
    call.arguments.insert(call.arguments.end(), epilogue_.arguments.begin(),
                          epilogue_.arguments.end());
    for (const Extents* numbers : {&std::as_const(numbers_), &left, &right})
      numbers->add_argument(call.arguments);
    const std::int64_t blocks = ceil_div(product_.m, s.tile_m) * ceil_div(product_.n, s.tile_n) *
                                product_.batches * s.parts;
    std::string what =
        std::string(is_plain ? "gemm_plain_" : "gemm_mma_") +
        (multiplier_ == Multiplier::tf32 ? "tf32" : std::string(name(product_.dtype))) +
        sums_name(product_.dtype) + s.name();
    if (!epilogue_.name.empty()) what += "_" + epilogue_.name;
    add(std::move(call), blocks, threads, what);
    lowered_.description = description_of(lowered_.calls.back());
  }

  void add_sum() {
    constexpr int kThreads = 256;
    Call call;
    call.source.text = definitions() +
                       "extern \"C\" __global__ __launch_bounds__(256) void KERNEL(\n"
                       "    const " +
                       sum_type() + "* partials" + epilogue_.more_parameters() +
                       numbers_.last_parameter() + ") {\n" + numbers_.object_text() +
                       epilogue_.object_text(numbers_) +
                       "  Gemm::Tile::add_parts(problem, epilogue, partials);\n}\n";
    call.arguments = {partials_};
    call.arguments.insert(call.arguments.end(), epilogue_.arguments.begin(),
                          epilogue_.arguments.end());
    numbers_.add_argument(call.arguments);
    const std::int64_t pairs =
        product_.batches * product_.m * product_.n / (product_.n % 2 == 0 ? 2 : 1);
    const std::int64_t blocks =
        std::clamp<std::int64_t>(ceil_div(pairs, kThreads), 1, 8 * machine_.device.multiprocessors);
    std::string what = "add_parts_f32_p" + std::to_string(schedule_.parts);
    if (!epilogue_.name.empty()) what += "_" + epilogue_.name;
    add(std::move(call), blocks, kThreads, what);
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  Product product_;
  const Multiplier multiplier_;
  TileSchedule schedule_;
  bool is_far_ = false;
  Extents numbers_;
  Epilogue epilogue_;
  Side left_, right_;
  Pointer partials_{Pointer::Base::scratch, 0, 0};
  Lowered lowered_;
};

// ---- What each family takes.

std::optional<Product> fitting(const Graph& graph, const Group& group) {
  auto product = match_product(graph, group);
  if (!product || product->dtype == f64 || product->row_sums >= 0) return std::nullopt;
  const std::int64_t rows = product->m * product->batches;
  if (std::max({rows, product->n, product->k}) >= INT32_MAX / 2) return std::nullopt;
  return product;
}

// A product that this multiplies.
Implementation implementation_of(const Isolated& alone, const Product& product,
                                 Multiplier multiplier, const Machine& machine) {
  const GemmProblem problem = gemm_problem(alone.laid.graph, alone.group,
                                           product.is_shared ? with_merged_rows(product) : product);
  const TileSchedule best = gemm_tile_schedules(problem, multiplier, machine).front();
  return {
      machine.launch_us + model_gemm_tiles(problem, best, multiplier, machine).total,
      [=](const Isolated& group) {
        return GemmMmaBuilder(group.laid, group.group, machine, product, multiplier).run(nullptr);
      },
      [=] { return gemm_tile_space(problem, multiplier, machine); }};
}

// Hopper has a family of its own for operands of 16 and eight bits.
std::optional<Implementation> consider_mma(const Isolated& alone, const Machine& machine) {
  const auto product = fitting(alone.laid.graph, alone.group);
  if (!product) return std::nullopt;
  const Multiplier multiplier = multiplier_of(product->dtype, product->is_tf32, machine);
  const bool is_for_wgmma = multiplier == Multiplier::mma || multiplier == Multiplier::bytes;
  if (multiplier == Multiplier::plain || (is_for_wgmma && machine.has_wgmma)) return std::nullopt;
  return implementation_of(alone, *product, multiplier, machine);
}

std::optional<Implementation> consider_plain(const Isolated& alone, const Machine& machine) {
  const auto product = fitting(alone.laid.graph, alone.group);
  if (!product || multiplier_of(product->dtype, product->is_tf32, machine) != Multiplier::plain)
    return std::nullopt;
  return implementation_of(alone, *product, Multiplier::plain, machine);
}

}  // namespace

Lowered lower_gemm_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                       const TileSchedule& schedule) {
  const Product product = *fitting(laid.graph, group);
  const Multiplier multiplier = product.dtype == f32  ? Multiplier::tf32
                                : product.dtype == i8 ? Multiplier::bytes
                                                      : Multiplier::mma;
  return GemmMmaBuilder(laid, group, machine, product, multiplier).run(&schedule);
}
Lowered lower_gemm_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                         const TileSchedule& schedule) {
  return GemmMmaBuilder(laid, group, machine, *fitting(laid.graph, group), Multiplier::plain)
      .run(&schedule);
}

const Family kGemmMma = {"gemm_mma", consider_mma};
const Family kGemmPlain = {"gemm_plain", consider_plain};

}  // namespace tensor::cuda
