// Parameters of modules: loading from a checkpoint, random initialisation; multi-head attention.
#include "tensor/nn.h"

#include <algorithm>
#include <memory>
#include <set>

#include "src/core/closest.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace tensor::nn {

Tensor parameter(const Shape& shape, DType dtype) {
  num_elements(shape);  // refuses negative extents and overflow
  static const double kZero = 0;
  return from_memory(static_cast<const void*>(&kZero), shape, dtype, nullptr,
                     Strides::filled(shape.rank(), 0));
}

namespace {

/// The source of every parameter, in their order.
std::vector<Source> sources_of(const std::vector<Parameter>& parameters,
                               const LoadOptions& options) {
  std::vector<Source> sources;
  for (const Parameter& p : parameters)
    sources.push_back(options.rename ? options.rename(p.name) : Source{p.name});
  return sources;
}

/// The stored tensor, or its `part`-th block of rows, as `want`; undefined and a problem if it
/// cannot be.
Tensor fitted(const Tensor& stored, const Source& source, const TensorType& want,
              std::string& problem) {
  TextWriter text;
  Shape whole = want.shape;
  const bool is_part =
      0 <= source.part && source.part < source.parts && (source.parts == 1 || !want.shape.empty());
  if (is_part && source.parts > 1) whole[0] *= source.parts;
  if (!is_part)
    text << "no such part: \"" << source.name << "\", part " << source.part << " of "
         << source.parts << " for the shape " << want.shape << ", need parts from 0 to "
         << (want.shape.empty() ? 0 : source.parts - 1);
  else if (!(stored.shape() == whole))
    text << "wrong shape: \"" << source.name << "\" is " << stored.shape() << ", need " << whole;
  else if (is_floating(want.dtype) && !is_floating(stored.dtype()))
    text << "wrong type: \"" << source.name << "\" is " << stored.dtype()
         << ", need a floating type";
  problem = text.str();
  if (!problem.empty()) return {};
  const std::int64_t rows = source.parts > 1 ? want.shape[0] : 0;
  const Tensor block = source.parts > 1
                           ? Tensor(stored(slice(source.part * rows, (source.part + 1) * rows)))
                           : stored;
  return cast(block, want.dtype);
}

constexpr std::size_t kMost = 40;  // problems listed; a hostile file may have a million

/// One problem a line, the first few of them.
std::string listing(const std::vector<std::string>& problems) {
  constexpr std::size_t kLongest = 400;  // a name may take megabytes
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kMost); ++i)
    text += "\n  " + problems[i].substr(0, kLongest) + (problems[i].size() > kLongest ? "..." : "");
  if (problems.size() > kMost)
    text += "\n  and " + std::to_string(problems.size() - kMost) + " more";
  return text;
}

}  // namespace

void load(const std::vector<Parameter>& parameters, const StateDict& state,
          const LoadOptions& options) {
  const std::vector<Source> sources = sources_of(parameters, options);
  std::set<std::string_view> wanted;
  for (const Source& source : sources) wanted.insert(source.name);
  std::vector<std::string_view> unused, absent;  // the candidates for "did you mean"
  for (const auto& [name, tensor] : state)
    if (!wanted.contains(name) && !(options.ignore && options.ignore(name))) unused.push_back(name);
  std::vector<std::string> problems;
  for (const std::string_view name : wanted) {
    const auto foreign = state.foreign.find(std::string(name));
    if (foreign != state.foreign.end())
      problems.push_back(foreign->second);
    else if (!state.contains(std::string(name)))
      absent.push_back(name);
  }

  const auto report = [&](const char* what, std::string_view name,
                          const std::vector<std::string_view>& candidates) {
    problems.push_back(what + (": \"" + std::string(name) + "\""));
    if (problems.size() <= kMost) problems.back() += did_you_mean(name, candidates);
  };
  for (const std::string_view name : absent) report("missing", name, unused);
  for (const std::string_view name : unused) report("unexpected", name, absent);
  std::vector<Tensor> loaded(parameters.size());
  std::set<std::string> reported;  // a fused tensor has several parts but one problem
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = state.find(sources[i].name);
    if (found == state.end()) continue;
    std::string problem;
    loaded[i] = fitted(found->second, sources[i], parameters[i].tensor->type(), problem);
    if (!problem.empty() && reported.insert(problem).second) problems.push_back(problem);
  }
  if (!problems.empty())
    fail("load", options.file, " does not fit the model: ", problems.size(),
         problems.size() == 1 ? " problem:" : " problems:", listing(problems));
  for (std::size_t i = 0; i < parameters.size(); ++i) *parameters[i].tensor = loaded[i];
}

void randomize(const std::vector<Parameter>& parameters, std::uint64_t seed) {
  Generator random(seed);
  for (const Parameter& p : parameters) {
    const Shape& shape = p.tensor->shape();
    const DType dtype = p.tensor->dtype();
    if (p.name.ends_with("running_var"))
      *p.tensor = random.uniform(shape, 0.5, 2, dtype);
    else if (p.name.ends_with("weight") && shape.rank() > 1)
      *p.tensor = random.normal(
          shape, 0, 1 / std::sqrt(std::max(1.0, double(p.tensor->size()) / double(shape[0]))),
          dtype);
    else
      *p.tensor = random.normal(shape, p.name.ends_with("weight") ? 1 : 0, 0.1, dtype);
  }
}

namespace {

/// [..., tokens, heads * d] to [..., heads, tokens, d].
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  Shape shape = x.shape();
  const int last = shape.rank() - 1;
  const std::int64_t features = shape[last];
  shape[last] = heads;
  shape.push_back(features / heads);
  return x.reshape(shape).swapaxes(-3, -2);
}

/// The inverse.
Tensor merge_heads(const Tensor& x) {
  const Tensor rows = x.swapaxes(-3, -2);
  Shape shape = rows.shape();
  const std::int64_t depth = shape.back();
  shape.erase(shape.rank() - 1);
  shape[shape.rank() - 1] *= depth;
  return rows.reshape(shape);
}

}  // namespace

Tensor MultiheadAttention::operator()(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& mask) const {
  const std::int64_t features = query.weight.shape(0);
  if (heads < 1 || features % heads != 0)
    fail("MultiheadAttention", "got ", heads, " heads for ", features,
         " features, need a divisor of the features");
  const Tensor attended = scaled_dot_product_attention(
      split_heads(query(q), heads), split_heads(key(k), heads), split_heads(value(v), heads), mask);
  return output(merge_heads(attended));
}

}  // namespace tensor::nn
