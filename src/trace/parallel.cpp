#include "src/trace/parallel.h"

#include <algorithm>
#include <map>

#include "src/core/key.h"
#include "src/ops/eight_bits.h"
#include "src/trace/derived.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// Of weights in eight bits, which lie in strips, whole strips can be side by side.
bool is_product(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  if (graph.is_op(id, Op::quantized_matmul))
    return graph.is_constant(node.inputs[1]) && graph.is_constant(node.inputs[2]) &&
           node.type.shape.back() % kByteColumns == 0;
  return graph.is_op(id, Op::matmul) && graph.is_constant(node.inputs[1]) &&
         graph.type(node.inputs[1]).shape.rank() == 2;
}

// A constant that is one number, or has one for every column.
bool lies_along_columns(const Shape& shape, std::int64_t columns) {
  const std::int64_t size = num_elements(shape);
  return size == 1 || (size == columns && shape.back() == columns);
}

// Whether `id` is an elementwise operator on `value` and constants only, one result a value.
bool continues(const Graph& graph, ValueId id, ValueId value) {
  const Node& node = graph[id];
  if (info(node.op).pattern != Pattern::elementwise ||
      !(node.type.shape == graph.type(value).shape) ||
      std::count(node.inputs.begin(), node.inputs.end(), value) != 1)
    return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input == value || (graph.is_constant(input) &&
                              lies_along_columns(graph.type(input).shape, node.type.shape.back()));
  });
}

// The scales of a product's rows, which are those of the rows of parallel ones; -1 without any.
ValueId row_scales(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  return graph.is_op(id, Op::quantized_matmul) && node.inputs.size() > 3 ? node.inputs[3] : -1;
}

// What two chains must have in common at this operator.
std::string signature(const Graph& graph, ValueId id, ValueId value) {
  const Node& node = graph[id];
  Key key;
  key << node.op << node.attrs << node.type.dtype << node.inputs.size();
  for (const ValueId input : node.inputs)
    key << (input == row_scales(graph, id) ? input : -1) << (input == value)
        << graph.type(input).dtype;
  return key.take();
}

// Whether every view of a value can be one of some columns of wider rows.
bool views_stay_free(const Graph& graph, const std::vector<std::vector<ValueId>>& consumers,
                     ValueId id, const Strides& strides) {
  std::vector<std::pair<ValueId, Strides>> open = {{id, strides}};
  while (!open.empty()) {
    const auto [seen, lies] = std::move(open.back());
    open.pop_back();
    for (const ValueId reader : consumers[at(seen)]) {
      if (is_compute(graph, reader)) continue;
      const auto view = info(graph[reader].op).view(graph.type(seen), lies, graph[reader].attrs);
      if (!view) return false;
      open.emplace_back(reader, view->strides);
    }
  }
  return true;
}

Strides wide_rows(const Shape& shape) {
  Shape wider = shape;
  wider[shape.rank() - 1] += shape.back() + 1;
  return row_major(wider);
}

// The constants that parallel operators read at one place, as one: matrices side by side, vectors
// one after the other, a single number for each of its columns.
Tensor joined(std::vector<Tensor> parts, const std::vector<std::int64_t>& columns, bool matrices) {
  if (!matrices) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i] = broadcast_to(reshape(parts[i], {-1}), {columns[i]});
    return concatenate(parts, 0);
  }
  if (parts.front().rank() == 4) return concatenate(parts, 0);  // strips
  // A weight that is used transposed stays so.
  if (parts.front().strides()[0] >= parts.front().strides()[1]) return concatenate(parts, 1);
  for (Tensor& part : parts) part = transpose(part);
  return transpose(concatenate(parts, 0));
}

// "layers.3.attention.{query, key, value}" from the places of the products.
std::string common_place(const std::vector<std::string>& places) {
  const auto split = [](const std::string& place) {
    std::vector<std::string> parts;
    TextReader text(place);
    for (std::string part; std::getline(text, part, '.');) parts.push_back(part);
    return parts;
  };
  std::vector<std::vector<std::string>> all;
  for (const std::string& place : places) all.push_back(split(place));
  std::size_t shortest = all.front().size();
  for (const auto& parts : all) shortest = std::min(shortest, parts.size());
  const auto agree = [&](std::size_t i, bool from_end) {
    return std::all_of(all.begin(), all.end(), [&](const auto& parts) {
      return from_end ? parts[parts.size() - 1 - i] == all[0][all[0].size() - 1 - i]
                      : parts[i] == all[0][i];
    });
  };
  std::size_t head = 0, tail = 0;
  while (head < shortest && agree(head, false)) ++head;
  while (head + tail < shortest && agree(tail, true)) ++tail;
  const auto join = [](const std::vector<std::string>& parts, std::size_t begin, std::size_t end) {
    std::string text;
    for (std::size_t i = begin; i < end; ++i) text += (i > begin ? "." : "") + parts[i];
    return text;
  };
  std::string text = join(all[0], 0, head), members;
  if (head == shortest && head == all[0].size()) return text;
  for (const auto& parts : all)
    members += (members.empty() ? "" : ", ") + join(parts, head, parts.size() - tail);
  const std::string end = join(all[0], all[0].size() - tail, all[0].size());
  return text + (text.empty() ? "{" : ".{") + members + (end.empty() ? "}" : "}." + end);
}

// The one product of `rows` (the left operand and, perhaps, its scales) and its epilogue, in `to`;
// `constant` makes the constants.
struct WideRows {
  ValueId left, scales;
};
template <class F>
std::vector<ValueId> add_wide(Graph& to, const WideRows& rows, const Graph& graph,
                              const Parallel& chains, F&& constant) {
  std::vector<std::string> places;
  for (const Chain& chain : chains) places.push_back(graph[chain.front()].where);
  const std::string where = common_place(places);
  std::vector<ValueId> nodes;
  for (std::size_t step = 0; step < chains.front().size(); ++step) {
    const Node& node = graph[chains.front()[step]];
    std::vector<ValueId> inputs;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool is_value = step == 0 ? k == 0 : node.inputs[k] == chains.front()[step - 1];
      if (step == 0 && k == 3)
        inputs.push_back(rows.scales);
      else
        inputs.push_back(is_value ? (step == 0 ? rows.left : nodes.back()) : constant(step, k));
    }
    nodes.push_back(to.add(node.op, std::move(inputs), node.attrs, where));
  }
  return nodes;
}

std::vector<std::int64_t> columns_of(const Graph& graph, const Parallel& chains) {
  std::vector<std::int64_t> result;
  for (const Chain& chain : chains) result.push_back(graph.type(chain.front()).shape.back());
  return result;
}

// What layer_norm_by_sums knows of the value that it normalises, -1 of other operators.
ValueId sums_of(const Graph& graph, ValueId id) {
  return graph.is_op(id, Op::layer_norm_by_sums) ? graph[id].inputs[3] : -1;
}

// The one value beside constants and its sums that an operator reads, -1 when it reads more.
ValueId carried(const Graph& graph, ValueId id) {
  ValueId result = -1;
  for (const ValueId input : graph[id].inputs) {
    if (graph.is_constant(input) || input == result || input == sums_of(graph, id)) continue;
    if (result >= 0) return -1;
    result = input;
  }
  return result;
}

bool can_lead(const Graph& graph, ValueId id) {
  if (!is_compute(graph, id) || carried(graph, id) < 0) return false;
  const Pattern pattern = info(graph[id].op).pattern;
  return pattern != Pattern::opaque && pattern != Pattern::complex_out_fusable;
}

ValueId left_of(const Graph& graph, const Parallel& chains) {
  return graph[chains.front().front()].inputs[0];
}

// Whether each operator of the lead is computed from the one before, and the left operand from the
// last.
bool leads_to(const Graph& graph, const Chain& lead, ValueId left) {
  for (std::size_t i = 0; i < lead.size(); ++i) {
    const ValueId read = i + 1 < lead.size() ? carried(graph, lead[i + 1]) : left;
    if (!can_lead(graph, lead[i]) || read < 0 || root_of(graph, read) != lead[i]) return false;
  }
  return true;
}

class Merger {
 public:
  Merger(const LaidOutGraph& laid, const FusionPlan& plan)
      : graph_(laid.graph),
        layouts_(laid.layouts),
        plan_(plan),
        rewriter_(graph_),
        group_of_(at(graph_.size()), -1) {
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      runs_.push_back(run_of(graph_, plan.groups[g]));
      for (const Chain& chain : runs_.back().chains)
        for (const ValueId id : chain) group_of_[at(id)] = static_cast<int>(g);
    }
    wide_.resize(plan.groups.size());
  }

  std::pair<LaidOutGraph, FusionPlan> run() {
    for (ValueId id = 0; id < graph_.size(); ++id) {
      const int group = group_of_[at(id)];
      // Constants that only merged operators read go: they would keep the weights in memory twice.
      if (is_joined(id)) continue;
      if (group < 0)
        rewriter_.replace(id, rewriter_.keep(id));
      else if (wide_[static_cast<std::size_t>(group)].empty())
        merge(static_cast<std::size_t>(group));
    }
    LaidOutGraph laid{rewriter_.finish(), {}};
    laid.layouts = layouts_of(laid.graph);
    FusionPlan plan = plan_of(laid.graph);
    return {std::move(laid), std::move(plan)};
  }

 private:
  bool is_joined(ValueId id) const {
    const auto& readers = readers_[at(id)];
    return graph_.is_constant(id) && !readers.empty() &&
           std::count(graph_.outputs().begin(), graph_.outputs().end(), id) == 0 &&
           std::all_of(readers.begin(), readers.end(),
                       [&](ValueId reader) { return group_of_[at(reader)] >= 0; });
  }

  void merge(std::size_t group) {
    const Parallel& chains = runs_[group].chains;
    const auto columns = columns_of(graph_, chains);
    const ValueId scales = row_scales(graph_, chains.front().front());
    const WideRows rows{rewriter_(left_of(graph_, chains)), scales < 0 ? -1 : rewriter_(scales)};
    wide_[group] =
        add_wide(rewriter_.to(), rows, graph_, chains, [&](std::size_t step, std::size_t input) {
          std::vector<Tensor> parts;
          for (const Chain& chain : chains)
            parts.push_back(graph_[graph_[chain[step]].inputs[input]].constant);
          TextWriter what;
          what << (step == 0 && input == 1 ? "side by side" : "one after the other");
          for (const std::int64_t count : columns) what << ' ' << count;
          const bool matrices = step == 0 && input == 1;
          return rewriter_.to().add_constant(derived_for_others(
              graph_, what.str(), parts,
              [parts, columns, matrices] { return joined(parts, columns, matrices); }));
        });
    const Shape shape = rewriter_.to().type(wide_[group].back()).shape;  // nodes are added below
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < chains.size(); begin += columns[i++]) {
      const ValueId result = chains[i].back();
      Dims start = Dims::filled(shape.rank(), 0);
      start[shape.rank() - 1] = begin;
      const Attrs attrs{{"start", start},
                        {"extent", graph_.type(result).shape},
                        {"step", Dims::filled(shape.rank(), 1)}};
      rewriter_.replace(result, rewriter_.to().add(Op::slice, {wide_[group].back()}, attrs,
                                                   graph_[result].where));
    }
  }

  // Values lie as they did, for which the groups were chosen; what is new in rows, and views as
  // seen from there.
  std::vector<Layout> layouts_of(const Graph& graph) const {
    std::vector<Layout> result;
    for (const Node& node : graph.nodes())
      result.push_back(
          {node.type.shape,
           node.kind == NodeKind::constant ? node.constant.strides() : row_major(node.type.shape),
           0});
    for (ValueId id = 0; id < graph_.size(); ++id)
      if (group_of_[at(id)] < 0 && !is_joined(id)) result[at(rewriter_(id))] = layouts_[at(id)];
    for (ValueId id = 0; id < graph.size(); ++id) {
      const Node& node = graph[id];
      if (node.kind != NodeKind::operation || is_compute(graph, id)) continue;
      const ValueId source = node.inputs[0];
      const Layout& seen = result[at(source)];
      const auto view = info(node.op).view(graph.type(source), seen.strides, node.attrs);
      if (!view) internal_error("parallel products", "a view of ", node.type, " needs a copy");
      result[at(id)] = {view->shape, view->strides, seen.offset + view->offset};
    }
    return result;
  }

  FusionPlan plan_of(const Graph& graph) const {
    const Wiring wires = wiring(graph);
    FusionPlan plan;
    plan.microseconds = plan_.microseconds;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      std::vector<ValueId> nodes = wide_[g];
      for (const ValueId id : nodes.empty() ? plan_.groups[g].nodes : runs_[g].lead)
        nodes.push_back(rewriter_(id));
      Group group = make_group(graph, wires, std::move(nodes));
      group.family = plan_.groups[g].family;
      group.microseconds = plan_.groups[g].microseconds;
      group.schedule = plan_.groups[g].schedule;
      group.is_measured = plan_.groups[g].is_measured;
      plan.groups.push_back(std::move(group));
    }
    return plan;
  }

  const Graph& graph_;
  const std::vector<Layout>& layouts_;
  const FusionPlan& plan_;
  Rewriter rewriter_;
  const std::vector<std::vector<ValueId>> readers_ = consumers(graph_);
  std::vector<int> group_of_;               // of every merged operator, not of leads
  std::vector<ParallelRun> runs_;           // what the groups are; empty for those that stay
  std::vector<std::vector<ValueId>> wide_;  // what became of them
};

}  // namespace

std::vector<Parallel> parallel_products(const Graph& graph, const Wiring& wiring) {
  const auto readers = consumers(graph);
  std::map<std::string, Parallel> alike;  // by the operators of the chain and what they read
  std::map<ValueId, int> count;           // of products so far, by left operand
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!is_product(graph, id)) continue;
    Chain chain;
    const ValueId left = graph[id].inputs[0];
    std::string text = std::to_string(left) + '/' + std::to_string(count[left]++ / kMostParallel);
    for (ValueId last = left, next = id; next >= 0;) {
      text += signature(graph, next, last);
      chain.push_back(next);
      last = next;
      if (wiring.returned[at(last)]) break;
      if (views_stay_free(graph, readers, last, wide_rows(graph.type(last).shape)))
        alike[text].push_back(chain);
      const auto& list = wiring.readers[at(last)];
      next = list.size() == 1 && continues(graph, list[0], last) ? list[0] : -1;
    }
  }
  // Of the sets of the same products the one with the longest chains.
  std::map<std::vector<ValueId>, Parallel> longest;
  for (auto& [text, chains] : alike) {
    if (chains.size() < 2) continue;
    std::vector<ValueId> products;
    for (const Chain& chain : chains) products.push_back(chain.front());
    Parallel& known = longest[products];
    if (known.empty() || known.front().size() < chains.front().size()) known = std::move(chains);
  }
  std::vector<Parallel> result;
  for (auto& [products, chains] : longest) result.push_back(std::move(chains));
  std::stable_sort(result.begin(), result.end(), [](const Parallel& a, const Parallel& b) {
    return a.front().size() < b.front().size();
  });
  return result;
}

Chain lead_of(const Graph& graph, const Wiring& wiring, const Parallel& chains) {
  std::vector<ValueId> readers;  // that the next operator must have
  for (const Chain& chain : chains) readers.push_back(chain.front());
  std::sort(readers.begin(), readers.end());
  Chain lead;
  for (ValueId id = wiring.root[at(left_of(graph, chains))];
       lead.size() < kLongestLead && can_lead(graph, id) && !wiring.returned[at(id)] &&
       wiring.readers[at(id)] == readers;
       id = wiring.root[at(carried(graph, id))]) {
    lead.insert(lead.begin(), id);
    readers = {id};
  }
  return lead;
}

ParallelRun run_of(const Graph& graph, const Group& group) {
  ParallelRun run;
  Parallel& chains = run.chains;
  for (const ValueId id : group.nodes) {
    if (is_product(graph, id)) {
      chains.push_back({id});
      continue;
    }
    if (chains.empty()) {
      run.lead.push_back(id);
      continue;
    }
    const auto chain = std::find_if(chains.begin(), chains.end(),
                                    [&](const Chain& c) { return continues(graph, id, c.back()); });
    if (chain == chains.end()) return {};
    chain->push_back(id);
  }
  if (chains.size() < 2) return {};
  const ValueId left = left_of(graph, chains);
  const bool are_parallel = std::all_of(chains.begin(), chains.end(), [&](const Chain& c) {
    return graph[c.front()].inputs[0] == left && c.size() == chains[0].size();
  });
  return are_parallel && leads_to(graph, run.lead, left) ? run : ParallelRun();
}

Fusible propose_parallel(LaidOutGraph laid) {
  Fusible result{std::move(laid)};
  const Graph& graph = result.laid.graph;
  const Wiring wires = wiring(graph);
  result.parallel = parallel_products(graph, wires);
  for (const Parallel& chains : result.parallel)
    for (std::size_t begin = 0; begin < chains.size(); ++begin)
      for (std::size_t end = begin + 2; end <= std::min(chains.size(), begin + kMostParallel);
           ++end) {
        ParallelRun run;
        run.chains.assign(chains.begin() + static_cast<std::ptrdiff_t>(begin),
                          chains.begin() + static_cast<std::ptrdiff_t>(end));
        result.runs.push_back(run);
        Chain lead = lead_of(graph, wires, run.chains);
        for (; !lead.empty(); lead.pop_back()) {
          run.lead.insert(run.lead.begin(), lead.back());
          result.runs.push_back(run);
        }
      }
  return result;
}

Isolated merged_alone(const LaidOutGraph& laid, const ParallelRun& run) {
  const Chain& lead = run.lead;
  const Parallel& chains = run.chains;
  const Graph& graph = laid.graph;
  constexpr ValueId kUsual = 32;  // nodes
  Rewriter rewriter(graph, kUsual);
  Graph& to = rewriter.to();
  std::vector<Layout> layouts;  // of its nodes
  const auto put = [&](ValueId id, ValueId as) {
    rewriter.replace(id, as);
    layouts.push_back(laid.layouts[at(id)]);
  };
  // The lead and the views among it, from what it reads.
  const ValueId left = left_of(graph, chains);
  const ValueId read = lead.empty() ? left : carried(graph, lead.front());
  put(read, to.add_input(graph.type(read)));
  const ValueId scales = row_scales(graph, chains.front().front());
  if (scales >= 0) put(scales, to.add_input(graph.type(scales)));
  for (const ValueId id : lead)
    if (const ValueId sums = sums_of(graph, id); sums >= 0)
      put(sums, to.add_input(graph.type(sums)));
  visit_inputs_first(
      graph, left, [&](ValueId id) { return rewriter(id) >= 0; }, [](ValueId) { return true; },
      [&](ValueId id) { put(id, rewriter.keep(id)); });
  std::vector<ValueId> nodes;
  for (const ValueId id : lead) nodes.push_back(rewriter(id));

  const auto columns = columns_of(graph, chains);
  std::int64_t width = 0;
  for (const std::int64_t n : columns) width += n;
  const WideRows rows{rewriter(left), scales < 0 ? -1 : rewriter(scales)};
  const std::vector<ValueId> wide =
      add_wide(to, rows, graph, chains, [&](std::size_t step, std::size_t input) {
        const TensorType& type = graph.type(graph[chains.front()[step]].inputs[input]);
        Shape shape = {width};
        if (step == 0 && input == 1) {
          shape = type.shape;
          shape[shape.rank() == 4 ? 0 : 1] = shape.rank() == 4 ? width / kByteColumns : width;
        }
        return to.add_constant(broadcast_to(zeros({}, type.dtype), shape));
      });
  for (ValueId id = static_cast<ValueId>(layouts.size()); id < to.size(); ++id)
    layouts.push_back({to.type(id).shape, row_major(to.type(id).shape), 0});
  nodes.insert(nodes.end(), wide.begin(), wide.end());
  to.set_outputs({nodes.back()});
  Isolated result{{std::move(to), std::move(layouts)}, {}};
  result.group = make_group(result.laid.graph, wiring(result.laid.graph), std::move(nodes));
  return result;
}

std::pair<LaidOutGraph, FusionPlan> merge_parallel(const LaidOutGraph& laid,
                                                   const FusionPlan& plan) {
  const bool any = std::any_of(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
    return !run_of(laid.graph, group).empty();
  });
  return any ? Merger(laid, plan).run() : std::pair(laid, plan);
}

}  // namespace tensor
