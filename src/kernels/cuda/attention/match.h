// What families of attention and of its weights share, whatever instructions they multiply with:
// which groups they take, the text of what happens to scores and results, and where their operands
// lie.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/kernels/cuda/gemm/epilogue.h"
#include "src/kernels/match/attention.h"

namespace tensor::cuda {

struct AttentionSchedule;       // sm90.h
struct AttentionMmaSchedule;    // mma.h
struct AttentionPlainSchedule;  // plain.h

struct AttentionProblem {
  std::int64_t batches = 1, queries = 1, keys = 1, depth = 1, features = 1;
  double operations = 0;  // between the products, for each score
  bool staged = true;     // results are stored as boxes, where there are any
  int item_bytes = 2;     // of the operands

  std::int64_t shared_bytes(const AttentionSchedule& schedule) const;
  std::int64_t shared_bytes(const AttentionMmaSchedule& schedule) const;
  std::int64_t shared_bytes(const AttentionPlainSchedule& schedule) const;
  /// Why there is no such kernel, empty if there is.
  std::string fault(const AttentionSchedule& schedule, std::int64_t shared_bytes) const;
  std::string fault(const AttentionMmaSchedule& schedule, const Machine& machine) const;
  std::string fault(const AttentionPlainSchedule& schedule, const Machine& machine) const;
  /// The blocks for which a multiprocessor has room: one or two.
  int resident(const AttentionSchedule& schedule, const DeviceInfo& device) const;
};

/// Queries and keys of an instruction; keys of a block, at most.
inline constexpr int kAttentionStep = 16, kMostBlockKeys = 272;

/// Scores of 16-bit operands, with at most 128 elements in a row of either, or of float32, with
/// 256.
struct ScoresGroup {
  ValueId q = -1, k = -1, scores = -1;
  double scale = 1;
  std::vector<ValueId> nodes;  // of the middle
  std::int64_t batches = 1, queries = 1, keys = 1, depth = 1;
  Shape batch;  // the axes of the scores but the last two
  DType dtype = f16;
  bool has_middle = false;  // or a scale that is not above 0
  ElementCode middle;

  /// By what the kernel multiplies scores: with log2(e) for powers of two where there is no middle.
  double kernel_scale() const;
  /// What the middle calculates for each score, roughly.
  double operations() const { return 2 * static_cast<double>(nodes.size()); }
  /// The struct Middle, which changes a score before the softmax.
  Epilogue middle_text(const LaidOutGraph& laid, const Group& group, Extents& numbers) const;
  /// Queries or keys as rows of the depth; copied by a call of their own where they do not lie in
  /// chunks of 16 bytes.
  Source query_rows(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                    Lowered& lowered) const;
  Source key_rows(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                  Lowered& lowered) const;
};
/// nullopt when their types or extents are others.
std::optional<ScoresGroup> scores_group(const Graph& graph, const AttentionWeights& weights);

/// A group that is attention of such operands, all of one type.
struct AttentionGroup : ScoresGroup {
  ValueId v = -1, attended = -1;
  AttentionProblem problem;
  ElementCode after;  // of a result, the variable `sum`

  /// The result as that of a product with the variable `sum`.
  Product result() const;
  /// Values as rows of features.
  Source value_rows(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                    Lowered& lowered) const;
};

/// nullopt when the group is anything else.
std::optional<AttentionGroup> match_attention_group(const Graph& graph, const Group& group);
/// Of such a group.
std::optional<AttentionProblem> attention_problem(const Graph& graph, const Group& group);
/// The facts of a problem, the same for all schedules and families of attention.
Features features_of(const AttentionProblem& problem, const Machine& machine);

/// Of how many keys a block may be where a row has several: multiples of 16 up to `most`, none for
/// which a smaller one needs as many blocks and calculates less for nothing.
std::vector<int> key_blocks(std::int64_t keys, int most);

/// How many keys the last block of a row has at least, as far as the kernel's text knows.
std::int64_t least_left(std::int64_t keys, int block, const Machine& machine);

/// The parameters of a kernel that middle and epilogue read from: ",\n    const float* middle_r0".
struct AttentionParameters {
  std::string declarations;
  std::string objects;  // `middle` and `epilogue`, declared in the kernel's body
};
AttentionParameters attention_parameters(const Epilogue& middle, const Epilogue& epilogue,
                                         const Extents& numbers);

/// How many queries there are, and how many blocks of keys, of which the last has what is left.
void add_blocks(Extents& numbers, std::int64_t queries, std::int64_t keys, std::int64_t block);

/// Several structs of numbers in a kernel's text, one after the other.
struct ExtentsTexts {
  std::string structs, parameters, objects;
};
ExtentsTexts texts_of(const std::vector<Extents>& all);

}  // namespace tensor::cuda
