#include "src/kernels/cuda/gemm/sm90.h"

#include <algorithm>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/operands.h"
#include "src/kernels/cuda/wgmma.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

class GemmSm90Builder {
 public:
  GemmSm90Builder(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                  Product product)
      : laid_(laid),
        group_(group),
        machine_(machine),
        product_(std::move(product)),
        numbers_(machine.any_extent) {}

  // A group's own schedule is taken if it has one, unless `level0` is wanted.
  Lowered run(const GemmSchedule& level0, bool is_wanted) {
    if (product_.is_shared && product_.batches > 1) {
      const Product merged = with_merged_rows(product_);
      if (left_factor(laid_, merged)) product_ = merged;
    }
    problem_ = gemm_problem(laid_.graph, group_, product_);
    boxed_.write = boxed_write(laid_, group_, product_, true);
    problem_.staged_bytes = boxed_.write < 0 ? 0 : item_bytes(boxed_.write);
    const Boxed addend = boxed_addend(laid_, group_, product_);
    problem_.addend_bytes = addend.write < 0 ? 0 : item_bytes(addend.write);
    GemmSchedule schedule = is_wanted ? level0 : of_group(level0);
    check_row_sums();
    const Source inputs = left_source();
    const Source weights = right_source();
    if (weights.is_turned) schedule.shares = 1;
    if (schedule.boxes_addend(problem_)) boxed_ = addend;
    if (!schedule.stages_outputs(problem_)) boxed_ = {};
    if (const std::string fault = schedule.fault(machine_.device.shared_block_bytes, problem_);
        !fault.empty())
      internal_error("gemm_sm90", schedule.name(), ": ", fault);
    add_kernel(schedule, weights, inputs);
    return std::move(lowered_);
  }

 private:
  GemmSchedule of_group(const GemmSchedule& level0) const {
    return gemm_schedule_of(gemm_sm90_space(problem_, machine_, level0).of(group_.schedule));
  }

  // The kernel counts on how they lie.
  void check_row_sums() const {
    for (const ValueId id : {product_.row_sums, product_.norm ? product_.norm->sums : -1}) {
      if (id < 0) continue;
      const Layout& layout = laid_.layouts[at(id)];
      if (layout.strides != row_major(layout.shape) || layout.offset != 0)
        internal_error("gemm_sm90", "row_sums that do not lie in rows");
    }
  }

  ValueId written(int write) const { return group_.writes[static_cast<std::size_t>(write)]; }
  int item_bytes(int write) const {
    return static_cast<int>(item_size(laid_.graph.type(written(write)).dtype));
  }

  int operand(ValueId id) const { return operand_of(group_, id, false); }

  Pointer memory_of(const Factor& f) const { return {Pointer::Base::operand, operand(f.value), 0}; }

  Source left_source() {
    const Factor f = left_factor(laid_, product_)->settled();
    if (f.fits_boxes(product_.dtype)) return {f, memory_of(f)};
    return copied(f, memory_of(f), product_.batches, product_.dtype, machine_, lowered_);
  }

  Source right_source() {
    if (product_.dtype == i8)
      return packed_right(laid_, product_, operand(laid_.graph[product_.matmul].inputs[1]),
                          lowered_);
    const Factor f = right_factor(laid_, product_).settled();
    if (product_.norm) return normalized_right(f.value);
    if (f.fits_boxes()) return {f, memory_of(f)};
    if (product_.is_constant) return packed_right(laid_, product_, operand(f.value), lowered_);
    if (f.turned().settled().fits_boxes())
      return {f.turned().settled().turned(), memory_of(f), true};
    return copied(f, memory_of(f), product_.batches, product_.dtype, machine_, lowered_);
  }

  // What norm.h makes of the weights.
  Source normalized_right(ValueId right) {
    const NormalizedWeights form{product_.k, product_.n, in_chunks(product_.k), product_.dtype};
    const Norm& norm = *product_.norm;
    lowered_.packed.push_back({{operand(right), operand(norm.weight), operand(norm.bias)},
                               "normalized, in rows of " + std::to_string(form.pitch),
                               [form](const std::vector<Tensor>& constants) {
                                 return form.pack(constants[0], constants[1], constants[2]);
                               }});
    const Pointer packed{Pointer::Base::packed, static_cast<int>(lowered_.packed.size()) - 1, 0};
    corrections_ = {packed.base, packed.index, form.corrections_at()};
    return {Factor::dense(right, 1, product_.n, product_.k, form.pitch), packed};
  }

  // What is moved in boxes as factors: tokens as rows, features as k.
  Source output_source() const {
    return {rows_of_features(laid_, written(boxed_.write), product_)->settled(),
            {Pointer::Base::operand, static_cast<int>(group_.reads.size()) + boxed_.write, 0}};
  }
  Source addend_source() const {
    const ValueId id = product_.code.loads[static_cast<std::size_t>(boxed_.load)].value;
    const Factor f = rows_of_features(laid_, id, product_)->settled();
    return {f, memory_of(f)};
  }

  void add_kernel(const GemmSchedule& s, const Source& weights, const Source& inputs) {
    const Epilogue epilogue =
        epilogue_of(laid_, group_, product_, boxed_, numbers_, "Epilogue", corrections_);
    const bool staged = boxed_.write >= 0;
    const Source outputs = staged ? output_source() : inputs;
    const Source addends = boxed_.load >= 0 ? addend_source() : outputs;
    const DType others = product_.dtype == i8 ? f16 : product_.dtype;
    const DType output_type = staged ? laid_.graph.type(written(boxed_.write)).dtype : others;
    Call call;
    call.source.text = text_of(s, epilogue, weights, inputs, outputs, addends, output_type);
    const int cluster = s.splits * s.shares;
    const std::int64_t blocks = s.tiles(problem_) * s.splits;
    const std::int64_t most =
        s.splits > 1 ? blocks : machine_.device.multiprocessors / cluster * cluster;
    call.launch.grid.x = static_cast<unsigned>(std::min(blocks, most));
    call.launch.cluster = static_cast<unsigned>(cluster);
    call.launch.block.x = static_cast<unsigned>(s.threads(problem_));
    call.launch.shared_bytes = static_cast<unsigned>(s.needed_shared_bytes(problem_));
    call.launch.overlaps_previous = true;
    call.arguments = {weights.map(product_.dtype, s.tile_n / s.shares),
                      inputs.map(product_.dtype, s.tile_m), outputs.map(output_type, s.box_rows()),
                      addends.map(output_type, s.box_rows())};
    call.arguments.insert(call.arguments.end(), epilogue.arguments.begin(),
                          epilogue.arguments.end());
    numbers_.add_argument(call.arguments);
    GemmSchedule named = s;
    named.launches_first |= numbers_.are_any();  // then the kernel is told
    std::string what = "gemm_" + std::string(name(product_.dtype)) + sums_name(product_.dtype) +
                       named.name(problem_.tile_k());
    if (product_.norm) what += "_norm";
    if (product_.row_sums >= 0) what += "_sums";
    if (!epilogue.name.empty()) what += "_" + epilogue.name;
    name_kernel(call, machine_, what);
    lowered_.description = description_of(call);
    lowered_.calls.push_back(std::move(call));
  }

  // Whether the epilogue reads nothing but what is a constant for each feature.
  static bool has_feature_inputs(const Epilogue& epilogue) {
    return epilogue.loads == 0 && epilogue.reads_constants;
  }

  // Whether there are registers for all that the epilogue reads, besides the sums.
  bool reads_first(const GemmSchedule& s, const Epilogue& epilogue) const {
    const int most = s.groups == 3                      ? 72
                     : s.groups == 2 && !s.hands_over() ? 56
                     : s.blocks == 2                    ? 96
                                                        : 128;
    // By the sums of rows, and their way; by scales.
    const int taken = product_.row_sums >= 0 ? 32 : product_.dtype == i8 ? 24 : 0;
    const int inputs = epilogue.loads * s.my_columns() / 2 * s.blocks;
    return s.swapped && (inputs > 0 || has_feature_inputs(epilogue)) &&
           inputs + s.columns() / 2 * s.blocks + taken <= most;
  }

  bool is_one_round(const GemmSchedule& s) const {
    return s.tiles(problem_) * s.splits <= machine_.device.multiprocessors;
  }

  // The struct Schedule.
  std::string schedule_text(const GemmSchedule& s, const Epilogue& epilogue, const Source& weights,
                            DType output_type) const {
    // Of any number of tokens the last tile may reach beyond them.
    const bool has_whole_tokens = !machine_.any_extent && product_.m % (s.tile_m * s.shares) == 0;
    return "struct Schedule {\n  using Input = " + std::string(device_type(product_.dtype)) +
           ";\n  using Output = " + std::string(device_type(output_type)) + ";\n" +
           constant_text("kTokens", s.tile_m) + constant_text("kFeatures", s.tile_n) +
           constant_text("kStages", s.stages) + constant_text("kGroups", s.groups) +
           constant_text("kBlocks", s.blocks) + constant_text("kBand", s.band) +
           flag_text("kSwapped", s.swapped) + flag_text("kHandsOver", s.hands_over()) +
           flag_text("kTakesTurns", s.takes_turns) + flag_text("kTurned", weights.is_turned) +
           flag_text("kWeightsFirst", product_.is_constant) +
           flag_text("kStaged", boxed_.write >= 0) + flag_text("kAddend", boxed_.load >= 0) +
           flag_text("kPairs", product_.n % 2 == 0) +
           flag_text("kWholeFeatures", product_.n % s.tile_n == 0) +
           flag_text("kWholeTokens", has_whole_tokens) + constant_text("kSplits", s.splits) +
           constant_text("kShares", s.shares) + flag_text("kReadFirst", reads_first(s, epilogue)) +
           flag_text("kFeatureInputs", has_feature_inputs(epilogue)) +
           flag_text("kNormalizes", product_.norm.has_value()) +
           flag_text("kRowSums", product_.row_sums >= 0) + "};\n";
  }

  void add_problem(const GemmSchedule& s, const Source& weights, const Source& inputs,
                   const Source& outputs, const Source& addends) {
    const std::int64_t token_tiles = round_up(ceil_div(product_.m, s.tile_m), s.shares);
    const std::int64_t feature_tiles = ceil_div(product_.n, s.tile_n);
    if (product_.norm)
      numbers_.text("static constexpr float kEps = " + literal(product_.norm->eps, f32) + ";");
    numbers_.number("kTokens", product_.m);
    numbers_.number("kFeatures", product_.n);
    numbers_.number("kDepth", product_.k);
    numbers_.number("kBatches", product_.batches);
    numbers_.number("kSteps", problem_.steps());
    numbers_.number("kTokenTiles", token_tiles);
    numbers_.number("kTiles", token_tiles * feature_tiles * product_.batches);
    numbers_.divisor("kTilesOfBatch", token_tiles * feature_tiles);
    numbers_.divisor("kTilesOfBand", s.band * feature_tiles);
    numbers_.choice("kOnce", product_.is_constant && is_one_round(s));
    numbers_.choice("kLaunchFirst", s.launches_first && is_one_round(s));
    weights.add_corner(numbers_, "weights");
    inputs.add_corner(numbers_, "inputs");
    outputs.add_corner(numbers_, "outputs");
    addends.add_corner(numbers_, "addends");
  }

  std::string text_of(const GemmSchedule& s, const Epilogue& epilogue, const Source& weights,
                      const Source& inputs, const Source& outputs, const Source& addends,
                      DType output_type) {
    const bool leaves_room =
        s.leaves_room(problem_) &&
        2 * (s.needed_shared_bytes(problem_) + 2048) <= machine_.device.shared_bytes;
    const WgmmaForm form{s.columns(), product_.dtype, false, weights.is_turned && s.swapped,
                         weights.is_turned && !s.swapped};
    add_problem(s, weights, inputs, outputs, addends);
    return "#include \"gemm_sm90.h\"\nusing namespace tensor::device;\n" +
           schedule_text(s, epilogue, weights, output_type) + numbers_.struct_text() +
           wgmma_text("Wgmma", form) + epilogue.text +
           "using Gemm = GemmSm90<Schedule, Problem, Wgmma, Epilogue>;\n"
           "static_assert(Gemm::kSharedBytes == " +
           std::to_string(s.needed_shared_bytes(problem_)) +
           " && Gemm::kThreads == " + std::to_string(s.threads(problem_)) +
           ");\nextern \"C\" __global__ __launch_bounds__(Gemm::kThreads, " +
           std::to_string(leaves_room ? 2 : 1) +
           ") void KERNEL(\n"
           "    const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap "
           "inputs,\n    const __grid_constant__ TensorMap outputs, const __grid_constant__ "
           "TensorMap addends" +
           epilogue.more_parameters() + numbers_.last_parameter() + ") {\n" +
           numbers_.object_text() + epilogue.object_text(numbers_) +
           "  Gemm::run(problem, weights, inputs, outputs, addends, epilogue);\n}\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Machine& machine_;
  Product product_;
  GemmProblem problem_;
  Boxed boxed_;
  Extents numbers_;
  std::optional<Pointer> corrections_;  // of a normalised product
  Lowered lowered_;
};

std::optional<Product> accepted(const Graph& graph, const Group& group, const Machine& machine) {
  if (!machine.has_wgmma) return std::nullopt;
  auto product = match_product(graph, group);
  if (!product) product = match_normalized_product(graph, group);
  if (!product || (item_size(product->dtype) > 2)) return std::nullopt;
  const std::int64_t rows = product->m * product->batches;
  const bool fits_int = std::max({rows, product->n, product->k}) < INT32_MAX / 2;
  if (!fits_int) return std::nullopt;
  return product;
}

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto product = accepted(graph, alone.group, machine);
  if (!product) return std::nullopt;
  const GemmProblem problem =
      gemm_problem(graph, alone.group, product->is_shared ? with_merged_rows(*product) : *product);
  const GemmSchedule best = gemm_sm90_schedules(problem, machine).front();
  return Implementation{
      machine.launch_us + model_gemm_sm90(problem, best, machine).total,
      [=](const Isolated& group) {
        return GemmSm90Builder(group.laid, group.group, machine, *product).run(best, false);
      },
      [=] { return gemm_sm90_space(problem, machine, best); }};
}

}  // namespace

Lowered lower_gemm_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                        const GemmSchedule& schedule) {
  return GemmSm90Builder(laid, group, machine, *accepted(laid.graph, group, machine))
      .run(schedule, true);
}

const Family kGemmSm90 = {"gemm_sm90", consider};

}  // namespace tensor::cuda
