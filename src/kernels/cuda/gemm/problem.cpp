#include "src/kernels/cuda/gemm/problem.h"

#include <algorithm>
#include <tuple>

#include "src/kernels/elementwise.h"

namespace tensor::cuda {

EpilogueWork epilogue_work(const Graph& graph, const Group& group, const ElementCode& code,
                           const std::vector<ValueId>& elementwise, std::int64_t elements) {
  EpilogueWork work;
  const auto bytes = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape) *
                               item_size(graph.type(id).dtype)) /
           static_cast<double>(elements);
  };
  for (const auto& load : code.loads) work.read_bytes += bytes(load.value);
  for (const ValueId id : group.writes) work.written_bytes += bytes(id);
  for (const ValueId id : elementwise)
    work.operations += element_cost(graph[id].op).instructions > 2 ? 16 : 1;
  return work;
}

GemmProblem gemm_problem(const Graph& graph, const Group& group, const Product& product) {
  const auto& [batches, m, n] = std::tie(product.batches, product.m, product.n);
  const EpilogueWork work =
      epilogue_work(graph, group, product.code, product.elementwise, batches * m * n);
  int staged_bytes = 0;
  for (const ValueId id : group.writes)
    if (const DType dtype = graph.type(id).dtype; product.n % chunk_of(dtype) == 0)
      staged_bytes = std::max(staged_bytes, boxed_bytes(dtype));
  const std::vector<Boxed> pairs = addends(graph, group, product);
  int addend_bytes = 0;
  if (!pairs.empty() && product.n % 8 == 0) {
    const ValueId sum = group.writes[static_cast<std::size_t>(pairs.front().write)];
    addend_bytes = static_cast<int>(item_size(graph.type(sum).dtype));
  }
  return {batches,
          m,
          n,
          product.k,
          work.read_bytes,
          work.written_bytes,
          work.operations,
          staged_bytes,
          product.is_constant,
          product.norm.has_value(),
          product.row_sums >= 0,
          addend_bytes,
          static_cast<int>(item_size(product.dtype))};
}

Features features_of(const GemmProblem& p, double item_bytes, const Machine& machine) {
  Features f;
  f.batches = static_cast<double>(p.batches), f.rows = static_cast<double>(p.m);
  f.columns = static_cast<double>(p.n), f.depth = static_cast<double>(p.k);
  f.item_bytes = item_bytes;
  f.operations = p.operations, f.read_bytes = p.read_bytes, f.written_bytes = p.written_bytes;
  f.flops = 2 * f.batches * f.rows * f.columns * f.depth;
  f.memory_bytes = f.batches * (f.item_bytes * f.depth * (f.rows + f.columns) +
                                f.rows * f.columns * (f.read_bytes + f.written_bytes));
  set_machine(f, machine);
  return f;
}

}  // namespace tensor::cuda
