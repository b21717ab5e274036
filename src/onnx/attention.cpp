// Attention and what turns its queries and keys.
#include <cmath>
#include <limits>

#include "src/onnx/operators.h"
#include "tensor/creation.h"

namespace tensor::onnx {
namespace {

// [N, tokens, heads * features] as [N, heads, tokens, features], in which others come already.
Tensor heads_of(const Call& c, int input, std::string_view count) {
  const Tensor& x = c[input];
  if (x.rank() == 4) return x;
  const std::int64_t heads = c.integer(count, 0);
  if (x.rank() != 3 || heads < 1 || x.shape(2) % heads != 0)
    fail("attention", "got input ", input, " of the shape ", x.shape(), " and ", count, "=", heads,
         ", need (N, heads, tokens, features), or (N, tokens, heads * features)");
  return reshape(x, {x.shape(0), x.shape(1), heads, x.shape(2) / heads}).swapaxes(1, 2);
}

// Every head as many times behind itself as there are queries' heads for it.
Tensor for_heads(const Tensor& x, std::int64_t heads) {
  const Shape& s = x.shape();
  if (s[1] == heads) return x;
  if (s[1] == 0 || heads % s[1] != 0)
    fail("attention", "got ", heads, " heads of queries and ", s[1], " of keys or values");
  const Tensor each = broadcast_to(x.expand_dims(2), {s[0], s[1], heads / s[1], s[2], s[3]});
  return reshape(each, {s[0], heads, s[2], s[3]});
}

// Keys or values behind those of former calls.
Tensor with_past(const Call& c, int input, const Tensor& x) {
  return c.has(input) ? concatenate({c[input], x}, 2) : x;
}

// Which keys a query may see: those up to its own.
Tensor causal(std::int64_t queries, std::int64_t keys, std::int64_t past, const Device& device) {
  const Tensor query = arange(queries).reshape({queries, 1}) + past;
  return (arange(keys).reshape({1, keys}) <= query).to(device);
}

// A mask of fewer keys hides the others.
Tensor for_keys(const Tensor& mask, std::int64_t keys) {
  if (mask.rank() < 2 || mask.rank() > 4 || mask.shape(-1) > keys)
    fail("attention", "got a mask of the shape ", mask.shape(), ", need 2 to 4 axes and at most ",
         keys, " keys");
  if (mask.dtype() != boolean && !is_floating(mask.dtype()))
    fail("attention", "got a mask of ", mask.dtype(), ", need bool or a floating type");
  if (mask.shape(-1) == keys) return mask;
  std::vector<std::pair<std::int64_t, std::int64_t>> width(static_cast<std::size_t>(mask.rank()));
  width.back().second = keys - mask.shape(-1);
  if (mask.dtype() == boolean) return pad(mask, width, zeros({}, boolean));
  return pad(mask, width, -std::numeric_limits<double>::infinity());
}

Results attention(const Call& c) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const Tensor q = heads_of(c, 0, "q_num_heads");
  const Tensor key = with_past(c, 4, heads_of(c, 1, "kv_num_heads"));
  const Tensor value = with_past(c, 5, heads_of(c, 2, "kv_num_heads"));
  if (c.has(4) != c.has(5)) fail("attention", "got past keys or values alone, need both");
  if (key.shape(-1) != q.shape(-1) || key.shape(2) != value.shape(2))
    fail("attention", "got queries, keys and values of the shapes ", q.shape(), ", ", key.shape(),
         " and ", value.shape());
  const std::int64_t heads = q.shape(1), keys = key.shape(2);
  const double scale = c.number("scale", 1 / std::sqrt(static_cast<double>(q.shape(-1))));
  Tensor scores = matmul(q * scale, for_heads(key, heads).swapaxes(-1, -2));
  if (const double cap = c.number("softcap", 0); cap > 0) scores = tanh(scores / cap) * cap;
  Tensor allowed;
  if (c.integer("is_causal", 0) != 0) {
    allowed = causal(q.shape(2), keys, c.has(4) ? c[4].shape(2) : 0, scores.device());
    scores = where(allowed, scores, kNever);
  }
  Tensor seen;  // of queries that see no key the result is zero
  if (c.has(3)) {
    const Tensor mask = for_keys(c[3], keys);
    const bool is_choice = mask.dtype() == boolean;
    scores = is_choice ? where(mask, scores, kNever) : scores + mask.to(q.dtype());
    seen = is_choice ? mask : mask > kNever;
    if (allowed.defined()) seen = seen & allowed;
  }
  Tensor y = matmul(softmax(scores, -1), for_heads(value, heads));
  if (seen.defined()) y = where(any(seen, {-1}, true), y, zeros({}, y.dtype()).to(y.device()));
  if (c[0].rank() == 3) y = reshape(y.swapaxes(1, 2), {y.shape(0), y.shape(2), heads * y.shape(3)});
  return {y, key, value};
}

std::string refuse_attention(const Node& n) {
  const Attribute* precision = n.find("softmax_precision");
  constexpr std::int64_t kDouble = 11;
  return precision && precision->integer == kDouble ? "softmax_precision=11" : "";
}

// The first features of every head are pairs that are turned by the angles of their position.
Results rotary_embedding(const Call& c) {
  const bool is_flat = c[0].rank() == 3, is_mixed = c.integer("interleaved", 0) != 0;
  const Tensor x = heads_of(c, 0, "num_heads");
  const std::int64_t named = c.integer("rotary_embedding_dim", 0);
  const std::int64_t turned = named == 0 ? x.shape(3) : named, half = turned / 2;
  if (turned < 0 || turned % 2 != 0 || turned > x.shape(3))
    fail("rotary_embedding", "got rotary_embedding_dim=", named, " of ", x.shape(3), " features");
  const auto angles = [&](int input) {
    const Tensor of = c.has(3) ? take(c[input], c[3], 0) : c[input];
    const Shape need{x.shape(0), x.shape(2), half};
    if (of.shape() != need)
      fail("rotary_embedding", "got angles of the shape ", of.shape(), " for the positions, need ",
           need);
    return of.expand_dims(1);
  };
  const Tensor cosine = angles(1), sine = angles(2);
  const Tensor a = is_mixed ? sliced(x, 3, 0, half, 2) : sliced(x, 3, 0, half);
  const Tensor b = is_mixed ? sliced(x, 3, 1, half, 2) : sliced(x, 3, half, half);
  const Tensor first = a * cosine - b * sine, second = a * sine + b * cosine;
  const Tensor pairs =
      is_mixed ? reshape(stack({first, second}, 4), {x.shape(0), x.shape(1), x.shape(2), turned})
               : concatenate({first, second}, 3);
  const Tensor y = turned == x.shape(3)
                       ? pairs
                       : concatenate({pairs, sliced(x, 3, turned, x.shape(3) - turned)}, 3);
  return {is_flat ? reshape(y.swapaxes(1, 2), c[0].shape()) : y};
}

constexpr Operator kAttentionRows[] = {
    {"Attention", 23, 3, 6, 3,
     "is_causal:i kv_num_heads:i q_num_heads:i qk_matmul_output_mode:i scale:f softcap:f "
     "softmax_precision:i",
     attention, refuse_attention},
    {"RotaryEmbedding", 23, 3, 4, 1, "interleaved:i num_heads:i rotary_embedding_dim:i",
     rotary_embedding},
};

}  // namespace

std::span<const Operator> attention_operators() { return kAttentionRows; }

}  // namespace tensor::onnx
