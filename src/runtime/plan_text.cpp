// The texts of a plan: one program as JSON, the laid-out graph node by node, and the groups.
// Reading infers every type again and checks the partition, so that what is damaged or foreign is
// refused; kernels are built anew for the machine at hand, with the schedules of the text where
// they fit it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/kernels/schedule.h"
#include "src/runtime/plan_data.h"
#include "tensor/json.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using Text = nlohmann::ordered_json;

// ---- Writing

Text attrs_json(const Attrs& attrs) {
  Text result = Text::object();
  for (const auto& [name, value] : attrs.entries())
    std::visit(
        [&, key = name]<class V>(const V& v) {
          if constexpr (std::is_same_v<V, std::monostate>)
            result[key] = nullptr;
          else if constexpr (std::is_same_v<V, double>) {
            // JSON has no infinities.
            if (std::isfinite(v))
              result[key] = v;
            else
              result[key] = {{"number", std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"}};
          } else
            result[key] = v;
        },
        value.get());
  return result;
}

using NameConstant = std::function<std::string(const Tensor&)>;

Text node_json(const Graph& graph, ValueId id, const NameConstant& name_constant) {
  const Node& node = graph[id];
  Text json;
  if (node.kind == NodeKind::input) {
    json["input"] = Ints(node.type.shape.begin(), node.type.shape.end());
    json["dtype"] = std::string(name(node.type.dtype));
  } else if (node.kind == NodeKind::constant) {
    const detail::InMemoryOrder constant(node.constant);
    json["constant"] = name_constant(constant.rows);
    if (!constant.order.empty()) json["order"] = Ints(constant.order.begin(), constant.order.end());
  } else {
    json["op"] = std::string(info(node.op).name);
    json["in"] = node.inputs;
    json["attrs"] = attrs_json(node.attrs);
  }
  if (!node.where.empty()) json["where"] = node.where;
  return json;
}

// The nodes alone, or beside them what measurements chose: family and schedule. Another machine may
// like others better, so what the families of this one took of themselves is left out.
Text group_json(const LaidOutGraph& laid, const Group& group, const detail::Target& target) {
  const std::vector<Offer> offers = target.offers->of(isolate(laid, group));
  const auto own = std::find_if(offers.begin(), offers.end(),
                                [&](const Offer& offer) { return offer.family == group.family; });
  const bool is_usual = group.schedule.empty() || (own != offers.end() && own->space() &&
                                                   group.schedule == own->space()->chosen.text());
  if (is_usual && own != offers.end() && &*own == cheapest(offers)) return group.nodes;
  Text json = {{"nodes", group.nodes}, {"family", std::string(target.offers->name(group.family))}};
  if (!is_usual) json["schedule"] = group.schedule;
  return json;
}

// ---- Reading

ValueId value_id(const Json& json, ValueId limit) {
  const std::int64_t id = json.integer();
  if (id < 0 || id >= limit)
    fail(json.path(), "got the value ", id, ", need one of the ", limit, " before it");
  return static_cast<ValueId>(id);
}

std::vector<ValueId> value_ids(const Json& json, ValueId limit) {
  std::vector<ValueId> result;
  for (std::size_t i = 0; i < json.size(); ++i) result.push_back(value_id(json[i], limit));
  return result;
}

Attrs attrs_of(const Json& json) {
  Attrs attrs;
  for (const std::string& key : json.keys()) {
    const Json value = json[key];
    if (key == "checked")
      fail(value.path(), "says that indices were checked, which no file can know: leave it out");
    if (!value.is_object()) {
      attrs.set(key, value.attribute());
      continue;
    }
    const std::string text = value.text("number", "nan");
    double number = std::numeric_limits<double>::quiet_NaN();
    std::from_chars(text.data(), text.data() + text.size(), number);
    attrs.set(key, number);
  }
  return attrs;
}

Op op_named(const Json& json) {
  const std::string wanted = json.text();
  for (const OpInfo& row : op_table())
    if (row.name == wanted) return row.op;
  fail(json.path(), "there is no operator \"", wanted, "\" in this version of tensor");
}

// A constant of the file, with its axes as the graph has them.
Tensor in_order(const Tensor& rows, const Json& json) {
  if (!json.has("order")) return rows;
  const Dims order(json["order"].ints());
  Dims inverse = Dims::filled(rows.rank(), rows.rank());  // no axis: transpose refuses it
  for (int i = 0; i < order.rank(); ++i)
    inverse[normalize_axis(order[i], rows.rank(), json.path())] = i;
  return transpose(rows, inverse);
}

using FindConstant = std::function<Tensor(const Json& name)>;

void add_node(Graph& graph, const Json& json, const FindConstant& constant) {
  const std::string where = json.text("where", "");
  if (json.has("input")) {
    const Shape shape(json["input"].ints());
    num_elements(shape);
    graph.add_input({shape, parse_dtype(json["dtype"].text())}, where);
  } else if (json.has("constant")) {
    graph.add_constant(in_order(constant(json["constant"]), json), where);
  } else {
    const Op op = op_named(json["op"]);
    std::vector<ValueId> inputs = value_ids(json["in"], graph.size());
    Attrs attrs = attrs_of(json["attrs"]);
    try {
      graph.add(op, std::move(inputs), std::move(attrs), where);
    } catch (const UserError& error) {
      fail(json.path(), error.what());
    }
  }
}

Graph graph_of(const Json& json, const FindConstant& constants,
               std::shared_ptr<DerivedConstants> derived) {
  Graph graph;
  graph.derive_with(std::move(derived));
  const Json nodes = json["nodes"];
  for (std::size_t i = 0; i < nodes.size(); ++i) add_node(graph, nodes[i], constants);
  graph.set_outputs(value_ids(json["outputs"], graph.size()));
  if (json.has("checks")) {
    std::vector<std::string> checks;
    for (std::size_t i = 0; i < json["checks"].size(); ++i)
      checks.push_back(json["checks"][i].text());
    if (checks.size() > graph.outputs().size())
      fail(json["checks"].path(), "got ", checks.size(), " checks of ", graph.outputs().size(),
           " outputs");
    graph.set_checks(std::move(checks));
  }
  return graph;
}

// No machine has so much, and sums of such sizes are far from what 64 bits hold.
void check_size(const Graph& graph, const std::string& path) {
  constexpr double kMost = 0x1p56;
  double bytes = 0;
  for (const Node& node : graph.nodes()) {
    double size = static_cast<double>(item_size(node.type.dtype));
    for (const auto extent : node.type.shape)
      size *= static_cast<double>(std::max<std::int64_t>(extent, 1));
    bytes += size;
  }
  if (bytes > kMost) fail(path, "its values would take ", bytes, " bytes, need 2^56 at most");
}

// "" where the file leaves it to the family.
std::string schedule_of(const Json& json) {
  if (!json.is_object() || !json.has("schedule")) return {};
  const Json text = json["schedule"];
  try {
    return Schedule::parse(text.text()).text();
  } catch (const UserError& error) {
    fail(text.path(), "no schedule of a kernel (", error.what(), "): compile the model again");
  }
}

// Of the family that the file names, where this device has it and it takes the group; otherwise of
// the best by estimate.
GroupCost cost_of(const Json& json, const LaidOutGraph& laid, const Group& group,
                  const detail::Target& target) {
  const std::string name = json.is_object() ? json.text("family", "") : "";
  const std::vector<Offer> offers = target.offers->of(isolate(laid, group));
  const auto named = std::find_if(offers.begin(), offers.end(),
                                  [&](const Offer& offer) { return offer.name == name; });
  const Offer* offer = named == offers.end() ? cheapest(offers) : &*named;
  return offer ? GroupCost{offer->family, offer->microseconds, schedule_of(json)} : GroupCost();
}

// What compile() makes of a graph and families expect: a few operators that are connected, of which
// somebody reads what the group writes.
void check_group(const Json& json, const Wiring& wires, const Group& group) {
  constexpr std::size_t kMost = 16;
  if (group.nodes.size() > kMost)
    fail(json.path(), "a group of ", group.nodes.size(), " operators, need ", kMost, " at most");
  if (group.writes.empty()) fail(json.path(), "a group of which nothing is read");
  const auto reads = [&](ValueId reader, ValueId written) {
    const auto& readers = wires.readers[static_cast<std::size_t>(written)];
    return std::find(readers.begin(), readers.end(), reader) != readers.end();
  };
  std::vector<ValueId> connected = {group.nodes.back()}, others = group.nodes;
  others.pop_back();
  for (std::size_t i = 0; i < connected.size(); ++i)
    std::erase_if(others, [&](ValueId other) {
      const bool is_next = reads(connected[i], other) || reads(other, connected[i]);
      if (is_next) connected.push_back(other);
      return is_next;
    });
  if (!others.empty())
    fail(json.path(), "the value ", others.front(), " is not connected with the last one, ",
         group.nodes.back());
}

// Every operator in one group, and groups in an order in which their inputs are there.
FusionPlan plan_of(const Json& json, const LaidOutGraph& laid, const detail::Target& target) {
  const Graph& graph = laid.graph;
  const Wiring wires = wiring(graph);
  std::vector<bool> done(static_cast<std::size_t>(graph.size()), false);
  for (ValueId id = 0; id < graph.size(); ++id)
    done[static_cast<std::size_t>(id)] = graph[id].kind != NodeKind::operation;
  FusionPlan plan;
  for (std::size_t g = 0; g < json.size(); ++g) {
    std::vector<ValueId> nodes =
        value_ids(json[g].is_object() ? json[g]["nodes"] : json[g], graph.size());
    if (nodes.empty()) fail(json[g].path(), "an empty group");
    for (const ValueId id : nodes) {
      if (!is_compute(graph, id) || done[static_cast<std::size_t>(id)])
        fail(json[g].path(), "the value ", id, " is no operator that is left to run");
      done[static_cast<std::size_t>(id)] = true;
    }
    Group group = make_group(graph, wires, std::move(nodes));
    check_group(json[g], wires, group);
    for (const ValueId id : group.reads)
      if (!done[static_cast<std::size_t>(wires.root[static_cast<std::size_t>(id)])])
        fail(json[g].path(), "reads the value ", id, " before it is computed");
    const GroupCost c = cost_of(json[g], laid, group, target);
    if (c.family < 0)
      fail(json[g].path(), "no kernel of this build runs this group: compile the model again");
    group.family = c.family;
    group.microseconds = c.microseconds;
    group.schedule = c.schedule;
    plan.microseconds += c.microseconds;
    plan.groups.push_back(std::move(group));
  }
  for (ValueId id = 0; id < graph.size(); ++id)
    if (is_compute(graph, id) && !done[static_cast<std::size_t>(id)])
      fail(json.path(), "no group runs the value ", id);
  return plan;
}

}  // namespace

std::string detail::text_of(const Program& program, const NameConstant& name) {
  const Graph& graph = program.laid.graph;
  Text text;
  text["nodes"] = Text::array();
  for (ValueId id = 0; id < graph.size(); ++id) text["nodes"].push_back(node_json(graph, id, name));
  text["outputs"] = graph.outputs();
  if (!graph.checks().empty()) text["checks"] = graph.checks();
  text["groups"] = Text::array();
  for (const Group& group : program.plan.groups)
    text["groups"].push_back(group_json(program.laid, group, program.target));
  return text.dump(-1, ' ', false, Text::error_handler_t::replace);  // names may be any bytes
}

std::shared_ptr<const detail::Program> detail::read_program(const PlanData& plan,
                                                            const PlannedSize& size, Target target,
                                                            const std::shared_ptr<Common>& common) {
  // What text_of() writes takes 6 bytes a value and more.
  const Json json = Json::parse(size.text, plan.name + ": " + list_of({size.inputs}),
                                std::max(Json::kMostValues, size.text.size() / 6));
  const auto constant = [&](const Json& name) {
    const Tensor* found = plan.constants.find(name.text());
    if (!found) fail(name.path(), "the plan holds no tensor \"", name.text(), '"');
    const Tensor x = found->is_contiguous() ? *found : found->copy();  // as it was
    return common ? common->contents().share(name.text(), x) : x;
  };
  const Graph graph =
      graph_of(json, constant, common ? common->derived() : std::make_shared<DerivedConstants>());
  check_size(graph, json.path());
  const ValueId written = graph.size();
  LaidOutGraph laid = lay_out(graph);
  if (laid.graph.size() != written)
    fail(json.path(), "its graph has a view that no layout can express: compile the model again");
  FusionPlan groups = plan_of(json["groups"], laid, target);
  auto kernels = target.lower(laid, groups);
  auto program = link(std::move(laid), std::move(groups), std::move(kernels), std::move(target),
                      common, plan.computes);
  if (program->inputs != size.inputs)
    fail(json.path(), "its graph takes ", list_of({program->inputs}),
         ": the file is damaged, compile the model again");
  return program;
}

}  // namespace tensor
