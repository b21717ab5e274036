#include "src/kernels/cuda/attention/match.h"

#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"

namespace tensor::cuda {
namespace {

// Of queries, keys and values.
std::int64_t most_columns(DType dtype) { return dtype == f32 ? 256 : 128; }

// The result, or the scores, as those of a product.
Product seen_as(const ScoresGroup& m, std::int64_t columns) {
  Product product;
  product.batches = m.batches;
  product.m = m.queries;
  product.n = columns;
  return product;
}

Source source(const LaidOutGraph& laid, const Group& group, const ScoresGroup& m, ValueId id,
              bool is_turned, const Machine& machine, Lowered& lowered) {
  const auto& reads = group.reads;
  const Pointer memory{Pointer::Base::operand,
                       static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin()),
                       0};
  const Factor f = Factor::of(laid.layouts[at(id)], id, m.batch, is_turned).settled();
  if (f.fits_boxes()) return {f, memory};
  return copied(f, memory, m.batches, m.dtype, machine, lowered);
}

}  // namespace

std::optional<ScoresGroup> scores_group(const Graph& graph, const AttentionWeights& a) {
  ScoresGroup m;
  m.q = a.q, m.k = a.k, m.scores = a.scores, m.scale = a.scale, m.nodes = a.middle.nodes;
  m.dtype = graph.type(a.q).dtype;
  const bool is_known = m.dtype == f16 || m.dtype == bf16 || m.dtype == f32;
  if (!is_known || graph.type(a.k).dtype != m.dtype) return std::nullopt;
  m.batch = graph.type(a.scores).shape;
  m.keys = m.batch.back();
  m.batch.erase(m.batch.rank() - 1);
  m.queries = m.batch.back();
  m.batch.erase(m.batch.rank() - 1);
  m.batches = num_elements(m.batch);
  m.depth = graph.type(a.q).shape.back();
  if (m.depth > most_columns(m.dtype) || m.batches * m.queries * m.keys > INT32_MAX)
    return std::nullopt;
  m.has_middle = !m.nodes.empty() || !(m.scale > 0);
  if (m.nodes.empty()) {
    m.middle.results[m.scores] = "sum";
    return m;
  }
  auto code = element_code(graph, m.nodes, {{m.scores, "sum"}});
  if (!code) return std::nullopt;
  for (const auto& load : code->loads)
    if (num_elements(load.as) != m.batches * m.queries * m.keys) return std::nullopt;
  m.middle = std::move(*code);
  return m;
}

std::optional<AttentionGroup> match_attention_group(const Graph& graph, const Group& group) {
  const auto a = match_attention(graph, group);
  if (!a) return std::nullopt;
  auto scores = scores_group(graph, *a);
  if (!scores || graph.type(a->v).dtype != scores->dtype) return std::nullopt;
  const TensorType& result = graph.type(a->result);
  AttentionGroup m{std::move(*scores), a->v, a->result, {}, {}};
  m.after.results = {{a->result, "sum"}};
  if (a->rounding) {
    auto code = element_code(graph, a->rounding->nodes(), m.after.results);
    if (!code) return std::nullopt;
    for (const auto& load : code->loads)
      if (num_elements(load.as) != num_elements(result.shape)) return std::nullopt;
    m.after = std::move(*code);
  }
  m.problem = {m.batches, m.queries, m.keys, m.depth, result.shape.back(), m.operations()};
  m.problem.staged = item_size(result.dtype) == 2;
  m.problem.item_bytes = static_cast<int>(item_size(m.dtype));
  const AttentionProblem& p = m.problem;
  if (p.features > most_columns(m.dtype) || p.features % 8 != 0 ||
      p.batches * p.queries * p.features > INT32_MAX)
    return std::nullopt;
  return m;
}

std::optional<AttentionProblem> attention_problem(const Graph& graph, const Group& group) {
  const auto m = match_attention_group(graph, group);
  return m ? std::optional(m->problem) : std::nullopt;
}

Features features_of(const AttentionProblem& p, const Machine& machine) {
  Features f;
  f.batches = static_cast<double>(p.batches), f.rows = static_cast<double>(p.queries);
  f.columns = static_cast<double>(p.keys), f.depth = static_cast<double>(p.depth);
  f.second = static_cast<double>(p.features);
  f.item_bytes = p.item_bytes;
  f.operations = p.operations, f.written_bytes = p.staged ? 2 : 4;
  f.flops = 2 * f.batches * f.rows * f.columns * (f.depth + f.second);
  f.memory_bytes =
      f.batches * (f.item_bytes * (f.rows * f.depth + f.columns * (f.depth + f.second)) +
                   f.rows * f.second * f.written_bytes);
  set_machine(f, machine);
  return f;
}

double ScoresGroup::kernel_scale() const {
  return scale * (has_middle ? 1 : std::log2(std::exp(1.0)));
}

Epilogue ScoresGroup::middle_text(const LaidOutGraph& laid, const Group& group,
                                  Extents& numbers) const {
  Product product = seen_as(*this, keys);
  product.elementwise = nodes;
  product.code = middle;
  Group of_scores = group;
  of_scores.writes = {nodes.empty() ? scores : nodes.back()};
  return epilogue_of(laid, of_scores, product, {.write = 0}, numbers, "Middle");
}

Source ScoresGroup::query_rows(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                               Lowered& lowered) const {
  return source(laid, group, *this, q, false, machine, lowered);
}
Source ScoresGroup::key_rows(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                             Lowered& lowered) const {
  return source(laid, group, *this, k, true, machine, lowered);
}

Product AttentionGroup::result() const {
  Product product = seen_as(*this, problem.features);
  product.code = after;
  return product;
}

Source AttentionGroup::value_rows(const LaidOutGraph& laid, const Group& group,
                                  const Machine& machine, Lowered& lowered) const {
  return source(laid, group, *this, v, false, machine, lowered);
}

std::vector<int> key_blocks(std::int64_t keys, int most) {
  std::vector<int> blocks;
  for (int block = kAttentionStep; block <= most && block < keys; block += kAttentionStep)
    if (block == kAttentionStep || ceil_div(keys, block) < ceil_div(keys, block - kAttentionStep))
      blocks.push_back(block);
  return blocks;
}

std::int64_t least_left(std::int64_t keys, int block, const Machine& machine) {
  const std::int64_t left = keys - (ceil_div(keys, block) - 1) * block;
  if (!machine.any_extent) return left;
  // A block of all keys has them in whole steps; else the last one may have any number.
  return keys <= block && left > block - kAttentionStep ? block - kAttentionStep + 1 : 1;
}

AttentionParameters attention_parameters(const Epilogue& middle, const Epilogue& epilogue,
                                         const Extents& numbers) {
  AttentionParameters result;
  const auto members = [&](const Epilogue& part, const std::string& prefix) {
    std::string names;
    for (const std::string& parameter : part.parameters) {
      const std::size_t space = parameter.rfind(' ') + 1;
      const std::string name = prefix + parameter.substr(space);
      result.declarations += ",\n    " + parameter.substr(0, space) + name;
      names += (names.empty() ? "" : ", ") + name;
    }
    return numbers.member_value(!names.empty()) + names;
  };
  result.objects = "  const Middle middle{" + members(middle, "middle_") + "};\n";
  result.objects += "  const Epilogue epilogue{" + members(epilogue, "result_") + "};\n";
  return result;
}

void add_blocks(Extents& numbers, std::int64_t queries, std::int64_t keys, std::int64_t block) {
  const std::int64_t blocks = ceil_div(keys, block);
  numbers.number("kQueries", queries);
  numbers.number("kBlocks", blocks);
  numbers.number("kLeft", keys - (blocks - 1) * block);
}

ExtentsTexts texts_of(const std::vector<Extents>& all) {
  ExtentsTexts texts;
  for (const Extents& numbers : all) {
    texts.structs += numbers.struct_text();
    texts.parameters += numbers.last_parameter();
    texts.objects += numbers.object_text();
  }
  return texts;
}

}  // namespace tensor::cuda
