#include "src/kernels/cuda/attention.h"

#include <algorithm>
#include <cmath>

namespace tensor::cuda {
namespace {

constexpr std::int64_t kMostColumns = 128;  // of queries, keys and values

// The result, or the scores, as those of a product.
Product seen_as(const AttentionProblem& p, std::int64_t columns) {
  Product product;
  product.batches = p.batches;
  product.rows = p.queries;
  product.features = columns;
  return product;
}

Source source(const LaidOutGraph& laid, const Group& group, const AttentionGroup& m, ValueId id,
              bool is_turned, const Machine& machine, Lowered& lowered) {
  const auto& reads = group.reads;
  const Pointer memory{Pointer::Base::operand,
                       static_cast<int>(std::find(reads.begin(), reads.end(), id) - reads.begin()),
                       0};
  const Factor f = Factor::of(laid.layouts[at(id)], id, m.batch, is_turned).settled();
  if (f.fits_boxes()) return {f, memory};
  return copied(f, memory, m.problem.batches, m.dtype, machine, lowered);
}

}  // namespace

std::optional<AttentionGroup> match_attention_group(const Graph& graph, const Group& group) {
  const auto a = cpu::match_attention(graph, group);
  if (!a) return std::nullopt;
  AttentionGroup m{*a, {}, graph.type(a->result).shape, graph.type(a->q).dtype, false, {}};
  if (m.dtype != f16 && m.dtype != bf16) return std::nullopt;
  if (graph.type(a->k).dtype != m.dtype || graph.type(a->v).dtype != m.dtype) return std::nullopt;
  AttentionProblem& p = m.problem;
  const int rank = m.batch.rank();
  p.features = m.batch[rank - 1];
  p.queries = m.batch[rank - 2];
  m.batch.erase(rank - 1);
  m.batch.erase(rank - 2);
  p.batches = num_elements(m.batch);
  p.keys = graph.type(a->scores).shape.back();
  p.depth = graph.type(a->q).shape.back();
  if (p.depth > kMostColumns || p.features > kMostColumns || p.features % 8 != 0)
    return std::nullopt;
  if (p.batches * p.queries * std::max(p.keys, p.features) > INT32_MAX) return std::nullopt;
  m.has_middle = !a->middle.nodes.empty() || !(a->scale > 0);
  if (a->middle.nodes.empty()) {
    m.middle.results[a->scores] = "sum";
  } else {
    auto code = element_code(graph, a->middle.nodes, {{a->scores, "sum"}});
    if (!code) return std::nullopt;
    for (const auto& load : code->loads)
      if (num_elements(load.as) != p.batches * p.queries * p.keys) return std::nullopt;
    m.middle = std::move(*code);
    p.operations = 2 * static_cast<double>(a->middle.nodes.size());
  }
  p.staged = item_size(graph.type(a->result).dtype) == 2;
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
  f.item_bytes = 2;
  f.operations = p.operations, f.written_bytes = p.staged ? 2 : 4;
  f.flops = 2 * f.batches * f.rows * f.columns * (f.depth + f.second);
  f.memory_bytes =
      f.batches * (f.item_bytes * (f.rows * f.depth + f.columns * (f.depth + f.second)) +
                   f.rows * f.second * f.written_bytes);
  set_machine(f, machine);
  return f;
}

double AttentionGroup::kernel_scale() const {
  return attention.scale * (has_middle ? 1 : std::log2(std::exp(1.0)));
}

Product AttentionGroup::result() const {
  Product product = seen_as(problem, problem.features);
  product.code.results = {{attention.result, "sum"}};
  return product;
}

Epilogue AttentionGroup::middle_text(const LaidOutGraph& laid, const Group& group) const {
  Product scores = seen_as(problem, problem.keys);
  scores.elementwise = attention.middle.nodes;
  scores.code = middle;
  Group of_scores = group;
  of_scores.writes = {attention.middle.nodes.empty() ? attention.scores
                                                     : attention.middle.nodes.back()};
  return epilogue_of(laid, of_scores, scores, {.write = 0}, "Middle");
}

Source AttentionGroup::queries(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                               Lowered& lowered) const {
  return source(laid, group, *this, attention.q, false, machine, lowered);
}
Source AttentionGroup::keys(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                            Lowered& lowered) const {
  return source(laid, group, *this, attention.k, true, machine, lowered);
}
Source AttentionGroup::values(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                              Lowered& lowered) const {
  return source(laid, group, *this, attention.v, false, machine, lowered);
}

AttentionParameters attention_parameters(const Epilogue& middle, const Epilogue& epilogue) {
  AttentionParameters result;
  const auto members = [&](const Epilogue& part, const std::string& prefix) {
    std::string names;
    for (const std::string& parameter : part.parameters) {
      const std::size_t space = parameter.rfind(' ') + 1;
      const std::string name = prefix + parameter.substr(space);
      result.declarations += ",\n    " + parameter.substr(0, space) + name;
      names += (names.empty() ? "" : ", ") + name;
    }
    return names;
  };
  result.of_middle = members(middle, "middle_");
  result.of_epilogue = members(epilogue, "result_");
  return result;
}

}  // namespace tensor::cuda
