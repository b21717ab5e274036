// link: messages become a model. Names become places of values, operators rows of the table, and
// nodes are divided into those of constants alone and the others. What cannot run is collected, so
// that one error names all of it.
#include <algorithm>
#include <set>

#include "src/io/source.h"
#include "src/onnx/elements.h"
#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

constexpr std::int64_t kNewestOpset = 26;

bool is_standard(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

// The kind of an attribute in a row's list of them; 0 where it is not there.
char kind_in(std::string_view list, std::string_view name) {
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(' ', at), list.size());
    const std::string_view entry = list.substr(at, end - at);
    if (entry.size() == name.size() + 2 && entry.starts_with(name) && entry[name.size()] == ':')
      return entry.back();
    at = end + 1;
  }
  return 0;
}

char kind_of(std::int64_t type) {
  constexpr std::string_view kKinds = "?fistgFIS";
  const bool is_known = type > 0 && type < static_cast<std::int64_t>(kKinds.size());
  return is_known ? kKinds[static_cast<std::size_t>(type)] : '?';
}

class Linker {
 public:
  Linker(const ModelMessage& message, const std::string& name, ElementReader& elements)
      : message_(message), elements_(elements), model_(std::make_shared<Model>()) {
    model_->name = constants_->name = name;
    model_->constants = constants_;
  }

  std::shared_ptr<const Model> link() {
    describe_model();
    const GraphMessage& graph = message_.graph;
    std::set<std::string> stored;
    for (const TensorMessage& tensor : graph.initializers) stored.insert(tensor.name);
    for (const ValueMessage& input : graph.inputs)  // before IR 4 initializers are inputs, too
      if (!stored.contains(input.name)) model_->inputs.push_back(value(input, "input"));
    for (const ValueMessage& output : graph.outputs)
      model_->outputs.push_back(value(output, "output"));
    Graph whole = link(graph);
    complain();
    model_->files = elements_.files();
    divide(std::move(whole));
    return model_;
  }

 private:
  using Scope = std::map<std::string, int>;

  void describe_model() {
    model_->producer = message_.producer;
    if (!message_.producer_version.empty()) model_->producer += " " + message_.producer_version;
    for (const auto& [domain, version] : message_.opsets)
      if (is_standard(domain)) model_->opset = version;
    if (model_->opset < 1 || model_->opset > kNewestOpset)
      problem("opset " + std::to_string(model_->opset) + " (1 to " + std::to_string(kNewestOpset) +
              " are known)");
    if (message_.is_training) problem("training");
    if (message_.has_functions) problem("functions of its own");
  }

  void problem(const std::string& what, const std::string& who = {}) {
    problems_[what].push_back(who);
  }

  void complain() const {
    if (problems_.empty()) return;
    constexpr std::size_t kNamed = 3;
    std::string text;
    for (const auto& [what, who] : problems_) {
      text += (text.empty() ? "" : "; ") + what;
      for (std::size_t i = 0; i < std::min(who.size(), kNamed); ++i)
        if (!who[i].empty()) text += (i == 0 ? " at " : ", ") + in_quotes(who[i]);
      if (who.size() > kNamed) text += " and " + std::to_string(who.size() - kNamed) + " more";
    }
    fail(model_->name, "needs what this library does not run: ", text,
         " (docs/onnx.md lists what it does): export the model otherwise");
  }

  OnnxValue value(const ValueMessage& message, const std::string& role) {
    OnnxValue result{message.name, f32, std::nullopt};
    const auto dtype = dtype_of_onnx(message.type);
    if (message.kind != "tensor")
      problem("an " + role + " that is " + message.kind, message.name);
    else if (!dtype)
      problem("an " + role + " of the type " + type_name(message.type), message.name);
    else
      result.dtype = *dtype;
    if (!message.shape) return result;
    result.shape.emplace();
    for (const DimensionMessage& d : *message.shape)
      result.shape->push_back({std::max<std::int64_t>(d.extent.value_or(-1), -1), d.name});
    return result;
  }

  // ---- Names

  int make(const std::string& name) {
    const auto number = static_cast<int>(model_->values.size());
    model_->values.push_back(name);
    if (!name.empty() && !scopes_.back().emplace(name, number).second)
      fail(model_->name, "is damaged: the value ", in_quotes(name), " is made twice");
    return number;
  }

  int find(const std::string& name, const std::string& reader) const {
    if (name.empty()) return Node::kNone;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return found->second;
    fail(model_->name, "is damaged: ", reader, " reads ", in_quotes(name),
         ", which is not there before it");
  }

  Graph link(const GraphMessage& message) {
    Graph graph;
    scopes_.emplace_back();
    if (message.has_sparse) problem("sparse initializers", message.name);
    for (const TensorMessage& tensor : message.initializers) {
      const int number = make(tensor.name);
      if (const Tensor x = stored(tensor, tensor.name); x.defined()) {
        constants_->initializers.emplace_back(number, x);
        model_->parameters.emplace_back(tensor.name, x);
      }
    }
    for (const ValueMessage& input : message.inputs)
      if (!scopes_.back().contains(input.name)) graph.inputs.push_back(make(input.name));
    for (const NodeMessage& node : message.nodes) graph.nodes.push_back(link(node));
    for (const ValueMessage& output : message.outputs)
      graph.outputs.push_back(find(output.name, "the output"));
    if (std::ranges::count(graph.outputs, Node::kNone))
      fail(model_->name, "is damaged: an output without a name");
    scopes_.pop_back();
    return graph;
  }

  // Undefined, and a problem, where there is no such type.
  Tensor stored(const TensorMessage& tensor, const std::string& name) {
    if (dtype_of_onnx(tensor.type) && !tensor.is_foreign) return elements_.read(tensor);
    problem("a tensor of the type " + type_name(tensor.type), name);
    return {};
  }

  // ---- Nodes

  Node link(const NodeMessage& message) {
    Node node;
    node.name = message.name, node.type = message.type, node.opset = model_->opset;
    if (node.name.empty() && !message.outputs.empty()) node.name = message.outputs.front();
    ++model_->operators[node.type];
    for (const std::string& input : message.inputs)
      node.inputs.push_back(find(input, describe(node)));
    const bool is_known = check(message, node);
    const auto before = static_cast<int>(model_->values.size());
    for (const AttributeMessage& attribute : message.attributes)
      if (is_known) node.attributes.push_back(link(attribute, node, before));
    for (const std::string& output : message.outputs)
      node.outputs.push_back(output.empty() ? Node::kNone : make(output));
    if (is_known && node.op->refuses)
      if (const std::string why = node.op->refuses(node); !why.empty())
        problem(node.type + " with " + why, node.name);
    return node;
  }

  Attribute link(const AttributeMessage& message, Node& node, int before) {
    Attribute result;
    result.name = message.name, result.type = static_cast<AttributeType>(message.type);
    result.integer = message.integer, result.number = message.number, result.text = message.text;
    result.integers = message.integers, result.numbers = message.numbers;
    result.texts = message.texts;
    if (message.type == kTensor && message.tensor)
      result.tensor = stored(*message.tensor, node.name);
    if (message.type != kGraph) return result;
    const Graph inner = link(*message.graph);
    const auto capture = [&](int number) {
      if (number < before && number != Node::kNone) node.captured.push_back(number);
    };
    for (const Node& n : inner.nodes) {
      for (const int number : n.inputs) capture(number);
      for (const int number : n.captured) capture(number);
    }
    for (const int number : inner.outputs) capture(number);
    result.graph = std::make_shared<Graph>(inner);
    return result;
  }

  // Whether the node has a row, and attributes as that wants them.
  bool check(const NodeMessage& message, Node& node) {
    const auto complain = [&](const std::string& what) {
      problem(node.type + " (opset " + std::to_string(node.opset) + ")" + what, node.name);
      return false;
    };
    if (!is_standard(message.domain))
      return complain(" of the domain " + in_quotes(message.domain));
    const auto row = operator_table().find(node.type);
    if (row == operator_table().end()) return complain("");
    const Operator& op = *(node.op = row->second);
    if (node.opset < op.since) return complain(", from opset " + std::to_string(op.since) + " on");
    const auto inputs = static_cast<int>(node.inputs.size());
    if (inputs < op.least_inputs || (op.most_inputs != Operator::kAny && inputs > op.most_inputs))
      return complain(" with " + std::to_string(inputs) + " inputs");
    for (std::size_t i = 0; i < message.outputs.size(); ++i)
      if (op.most_outputs != Operator::kAny && static_cast<int>(i) >= op.most_outputs &&
          !message.outputs[i].empty())
        return complain(" with output " + std::to_string(i));
    for (const AttributeMessage& a : message.attributes) {
      const char kind = kind_in(op.attributes, a.name);
      if (kind == 0) return complain(" with the attribute " + in_quotes(a.name));
      const bool is_there = (kind != 't' || a.tensor) && (kind != 'g' || a.graph);
      if (kind != kind_of(a.type) || !is_there)
        return complain(" with the attribute " + in_quotes(a.name) + " of another type");
    }
    return true;
  }

  // ---- What depends on constants alone

  void divide(Graph whole) {
    std::vector<bool> is_constant(model_->values.size());
    const auto constant = [&](int number) {
      return number == Node::kNone || is_constant[static_cast<std::size_t>(number)];
    };
    for (const auto& [number, x] : constants_->initializers)
      is_constant[static_cast<std::size_t>(number)] = true;
    constants_->count = model_->values.size();
    Graph& rest = model_->graph;
    rest.inputs = std::move(whole.inputs), rest.outputs = std::move(whole.outputs);
    std::set<int> read(rest.outputs.begin(), rest.outputs.end());
    for (Node& node : whole.nodes) {
      if (std::ranges::all_of(node.inputs, constant) &&
          std::ranges::all_of(node.captured, constant)) {
        for (const int number : node.outputs)
          if (number != Node::kNone) is_constant[static_cast<std::size_t>(number)] = true;
        constants_->nodes.nodes.push_back(std::move(node));
      } else {
        read.insert(node.inputs.begin(), node.inputs.end());
        read.insert(node.captured.begin(), node.captured.end());
        rest.nodes.push_back(std::move(node));
      }
    }
    add_inner_constants(read);
    for (const int number : read)
      if (number != Node::kNone && constant(number)) constants_->nodes.outputs.push_back(number);
    model_->graph.find_ends();
  }

  // Initializers of branches and loops are read within them.
  void add_inner_constants(std::set<int>& read) const {
    std::set<int> top;
    for (const auto& node : constants_->nodes.nodes)
      top.insert(node.inputs.begin(), node.inputs.end());
    for (const auto& [number, x] : constants_->initializers)
      if (!top.contains(number)) read.insert(number);
  }

  const ModelMessage& message_;
  ElementReader& elements_;
  std::shared_ptr<Model> model_;
  const std::shared_ptr<Constants> constants_ = std::make_shared<Constants>();
  std::vector<Scope> scopes_;
  std::map<std::string, std::vector<std::string>> problems_;
};

}  // namespace

std::shared_ptr<const Model> link(const ModelMessage& message, const std::string& name,
                                  ElementReader& elements) {
  return Linker(message, name, elements).link();
}

}  // namespace tensor::onnx
