// What kernels over rows have in common: the text of a group's members, of elements that a thread
// holds in registers and of numbers that a row has one of.
#pragma once

#include <set>

#include "src/kernels/cuda/generated/row_plan.h"

namespace tensor::cuda {

class RowWriter {
 public:
  RowWriter(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
            const Machine& machine, RowWay way)
      : plan_(shape, laid, group, machine, way),
        graph_(laid.graph),
        group_(group),
        machine_(machine),
        operands_(laid.graph, group),
        numbers_(machine.any_extent) {}

 protected:
  // In names: equal groups have equal texts, whatever their values' numbers in the graph.
  std::string number_of(ValueId id) const;
  bool is_member(ValueId id) const {
    return std::binary_search(group_.nodes.begin(), group_.nodes.end(), id);
  }
  /// The member that a value is, or is a view of.
  ValueId member_behind(ValueId id) const;
  bool is_of_row(ValueId id) const { return plan_.shape.members.at(id) == BlockExtent::row; }

  std::string array(std::string_view type, const std::string& name) const;
  /// A loop over a thread's packs; `checked`: those that lie inside of the row.
  std::string begin_packs(bool checked) const;
  std::string begin_elements() const;

  /// Operands from memory, each loaded once: the name of the array, or of the row's number.
  std::string load_elements(ValueId id, const Shape& as);
  std::string load_row(ValueId id, const Shape& as);
  /// The array with the elements of an operator's operand.
  std::string elements_of(ValueId operand);

  void write_elementwise(ValueId id);
  /// Elements from those of `from`, by an expression of x.
  void write_change(ValueId id, const std::string& from, const std::string& expression);
  std::string layer_norm_expression(ValueId id);
  /// What it scales by, from the sum of squares.
  void write_layer_norm_scale(ValueId id, const std::string& squares);
  void write_quotient(ValueId id, const std::string& sum, double count);
  double degrees_of_freedom(ValueId id) const;
  const std::string& count_text();
  void write_store(ValueId id);

  /// States that the blocks of a row leave to the next kernel, in scratch memory.
  struct Partial {
    std::string parameter;
    std::int64_t bytes;  // from its beginning
  };
  /// A kernel of this body; the end of its name says `how`.
  Call call(const std::string& body, const std::vector<Partial>& partials, const std::string& how);

  const RowPlan plan_;
  const Graph& graph_;
  const Group& group_;
  const Machine& machine_;
  Operands operands_;
  Extents numbers_;
  std::string columns_;               // of a row, or where a block's end
  std::string count_;                 // of columns, a float
  std::string early_, loads_, code_;  // before and after earlier kernels have ended, and the rest
  std::set<std::string> loaded_;

 private:
  std::map<ValueId, std::string> given(BlockExtent extent) const;
};

/// What calculating takes, once for every member.
double row_computing_us(const BlockShape& shape, const Graph& graph, const Group& group,
                        const Machine& machine);

/// Kernels that go through rows window by window, for groups that long_rows_us takes.
Lowered lower_long_rows(const BlockShape& shape, const LaidOutGraph& laid, const Group& group,
                        const Machine& machine, RowWay way);
/// Their time; nullopt where the group writes nothing that has an element for each of a row's,
/// which other families do.
std::optional<double> long_rows_us(const BlockShape& shape, const LaidOutGraph& laid,
                                   const Group& group, const Machine& machine, RowWay way);

}  // namespace tensor::cuda
