#include "src/runtime/describe.h"

namespace tensor::detail {

std::string operators_of(const Graph& graph, const Group& group) {
  std::string result;
  for (const ValueId id : group.nodes)
    result += (result.empty() ? "" : ", ") + std::string(info(graph[id].op).name);
  return result;
}

std::string place_of(const Graph& graph, const Group& group) {
  for (const ValueId id : group.nodes)
    if (!graph[id].where.empty()) return graph[id].where;
  return "";
}

}  // namespace tensor::detail
