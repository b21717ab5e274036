#include "src/trace/passes/clean.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "src/core/key.h"
#include "src/core/storage.h"
#include "src/trace/derived.h"
#include "src/trace/rewrite.h"

namespace tensor {
namespace {

// A key that two nodes share only if they compute the same value. Small constants are compared by
// value, large ones by the memory they lie in.
std::string key_of(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  Key key;
  key << node.kind;
  if (node.kind == NodeKind::input) {
    key << id;
  } else if (node.kind == NodeKind::constant) {
    constexpr std::int64_t kComparedByValue = 256;
    const detail::TensorImpl& impl = detail::stored(node.constant);
    key << node.type;
    if (node.constant.nbytes() <= kComparedByValue) {
      const Tensor packed = node.constant.copy();
      key << std::string_view(reinterpret_cast<const char*>(detail::stored(packed).first()),
                              static_cast<std::size_t>(packed.nbytes()));
    } else {
      const detail::Storage& storage = *impl.storage;
      key << (storage.late ? static_cast<const void*>(&storage) : storage.data) << impl.offset
          << impl.strides;
    }
  } else {
    key << node.op << node.attrs;
    for (const ValueId input : node.inputs) key << input;
  }
  return key.take();
}

Graph merge_equal(const Graph& graph) {
  std::unordered_map<std::string, ValueId> seen;
  Rewriter rewriter(graph);
  for (ValueId id = 0; id < graph.size(); ++id) {
    const ValueId kept = rewriter.keep(id);
    // A duplicate stays behind as dead code: the graph is append-only, and the next step drops it.
    rewriter.replace(id, seen.try_emplace(key_of(rewriter.to(), kept), kept).first->second);
  }
  return rewriter.finish();
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  return rewrite(graph, [](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    std::vector<Tensor> values;
    for (const ValueId id : r.inputs(node)) {
      if (!r.to().is_constant(id)) return std::nullopt;
      values.push_back(r.to()[id].constant);
    }
    Key what;
    what << info(node.op).name << node.attrs;
    const Tensor value = derived_for_others(
        r.to(), what.bytes(), values,
        [op = node.op, attrs = node.attrs, values] { return apply_op(op, values, attrs); });
    return r.to().add_constant(value, node.where);
  });
}

Graph drop_dead(const Graph& graph) {
  std::vector<bool> live(static_cast<std::size_t>(graph.size()), false);
  for (const ValueId id : graph.inputs()) live[at(id)] = true;
  for (const ValueId id : graph.outputs()) live[at(id)] = true;
  for (ValueId id = graph.size() - 1; id >= 0; --id)
    if (live[at(id)])
      for (const ValueId input : graph[id].inputs) live[at(input)] = true;
  Rewriter rewriter(graph);
  for (ValueId id = 0; id < graph.size(); ++id)
    if (live[at(id)]) rewriter.replace(id, rewriter.keep(id));
  return rewriter.finish();
}

Graph eliminate_common_and_dead(const Graph& graph) { return drop_dead(merge_equal(graph)); }

}  // namespace tensor
