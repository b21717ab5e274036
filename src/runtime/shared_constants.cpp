#include "src/runtime/shared_constants.h"

namespace tensor::detail {

SharedConstants::~SharedConstants() {
  stop_watching();
  for (const auto& [storage, id] : watched_) --impl((*graph_)[id].constant).storage->watchers;
}

void SharedConstants::watch(const Graph& graph) {
  graph_ = &graph;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_constant(id)) continue;
    Storage& storage = *impl(graph[id].constant).storage;
    if (watched_.try_emplace(&storage, id).second) ++storage.watchers;
  }
  start_watching();
}

void SharedConstants::before_write(const Storage& storage, bool is_certain) {
  if (const auto found = watched_.find(&storage); is_certain && found != watched_.end())
    written_ = found->second;
}

void SharedConstants::refuse() const {
  const Node& node = (*graph_)[written_];
  fail("run", "the constant ", node.where, node.where.empty() ? "(" : " (", node.type,
       ") was written into after the function was compiled, which computes with some old and some ",
       "new values: compile it again, or write into a copy()");
}

}  // namespace tensor::detail
