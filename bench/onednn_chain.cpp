// ViT-B/16 on one image as a person would write it by hand: one oneDNN primitive after the other,
// weights packed once, bias, GELU and residual as post-operations. What a compiler on top of oneDNN
// must not be slower than:
//   OMP_NUM_THREADS=2 onednn_chain
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <dnnl.hpp>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;
using Dims = memory::dims;

constexpr int kLayers = 12, kTokens = 197, kPatches = 196, kPatch = 768, kWidth = 768,
              kHidden = 3072;
constexpr int kHeads = 12, kDepth = 64, kClasses = 1000;

class Chain {
 public:
  explicit Chain(Type type) : type_(type) {
    const memory patches = buffer({kPatches, kPatch}, type_);
    stream_in_ = buffer({kTokens, kWidth}, Type::f32);
    // The row of the class token lies before those of the patches.
    product(patches, kWidth, part(stream_in_, {kPatches, kWidth}, {1, 0}));
    memory x = stream_in_;
    for (int layer = 0; layer < kLayers; ++layer) x = block(x);
    product(normalized(x), kClasses, buffer({kTokens, kClasses}, Type::f32), 1);
  }

  void run() {
    for (const auto& [primitive, arguments] : steps_) primitive.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  memory block(memory x) {
    const memory qkv = buffer({kTokens, 3 * kWidth}, type_);
    product(normalized(x), 3 * kWidth, qkv);
    const memory summed = buffer({kTokens, kWidth}, Type::f32);
    product(attention(qkv), kWidth, summed, kTokens, &x);
    const memory hidden = buffer({kTokens, kHidden}, type_);
    product(normalized(summed), kHidden, hidden, kTokens, nullptr, true);
    const memory result = buffer({kTokens, kWidth}, Type::f32);
    product(hidden, kWidth, result, kTokens, &summed);
    return result;
  }

  // [rows, in] by weights [in, out] and a bias, then perhaps GELU, or a float32 residual.
  void product(const memory& in, int out, const memory& to, int rows = 0,
               const memory* residual = nullptr, bool gelu = false) {
    const Dims sides = in.get_desc().dims();
    const memory::dim m = rows > 0 ? rows : sides[0], k = sides[1];
    const memory::desc left = in.get_desc().submemory_desc({m, k}, {0, 0}),
                       right({k, out}, type_, Tag::any), bias({1, out}, Type::f32, Tag::ab),
                       result = to.get_desc().submemory_desc({m, out}, {0, 0});
    dnnl::post_ops post;
    if (gelu) post.append_eltwise(1, dnnl::algorithm::eltwise_gelu_erf, 0, 0);
    if (residual) post.append_binary(dnnl::algorithm::binary_add, residual->get_desc());
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    const dnnl::matmul::primitive_desc chosen({left, right, bias, result}, attributes, engine_);
    const memory weights = buffer({k, out}, type_), packed(chosen.weights_desc(), engine_);
    dnnl::reorder(weights, packed)
        .execute(stream_, {{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, packed}});
    stream_.wait();
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, in},
                                                 {DNNL_ARG_WEIGHTS, packed},
                                                 {DNNL_ARG_BIAS, buffer({1, out}, Type::f32)},
                                                 {DNNL_ARG_DST, to}};
    if (residual) arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1] = *residual;
    steps_.push_back({dnnl::matmul(chosen), arguments});
  }

  // softmax(Q K^T / 8) V, of heads that lie side by side in the rows.
  memory attention(const memory& qkv) {
    const memory::dim row = 3 * kWidth;
    const auto heads = [&](int first, bool turned) {
      const Dims strides = turned ? Dims{kDepth, 1, row} : Dims{kDepth, row, 1};
      const Dims shape = turned ? Dims{kHeads, kDepth, kTokens} : Dims{kHeads, kTokens, kDepth};
      const memory::desc desc(shape, type_, strides);
      auto* begin = static_cast<std::byte*>(qkv.get_data_handle());
      return memory(desc, engine_, begin + memory::data_type_size(type_) * first * kWidth);
    };
    const memory q = heads(0, false), k = heads(1, true), v = heads(2, false);
    const memory scores = buffer({kHeads, kTokens, kTokens}, Type::f32),
                 shares = buffer({kHeads, kTokens, kTokens}, type_);
    dnnl::primitive_attr scaled;
    scaled.set_output_scales(0, {0.125f});
    add(dnnl::matmul({{q.get_desc(), k.get_desc(), scores.get_desc()}, scaled, engine_}),
        {{DNNL_ARG_SRC, q}, {DNNL_ARG_WEIGHTS, k}, {DNNL_ARG_DST, scores}});
    add(dnnl::softmax_forward(
            {{dnnl::prop_kind::forward_inference, scores.get_desc(), 2}, engine_}),
        {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, scores}});
    const memory narrow = converted(scores, shares);
    const memory result = buffer({kTokens, kWidth}, type_);
    const memory out({{kHeads, kTokens, kDepth}, type_, Dims{kDepth, kWidth, 1}}, engine_,
                     result.get_data_handle());
    add(dnnl::matmul({{narrow.get_desc(), v.get_desc(), out.get_desc()}, engine_}),
        {{DNNL_ARG_SRC, narrow}, {DNNL_ARG_WEIGHTS, v}, {DNNL_ARG_DST, out}});
    keep_.push_back(result);
    return result;
  }

  memory normalized(const memory& x) {
    const memory::desc desc = x.get_desc();
    const memory result = buffer(desc.dims(), Type::f32);
    const auto flags = dnnl::normalization_flags::use_scale_shift;
    add(dnnl::layer_normalization_forward(
            {{dnnl::prop_kind::forward_inference, desc, 1e-12f, flags}, engine_}),
        {{DNNL_ARG_SRC, x},
         {DNNL_ARG_SCALE_SHIFT, buffer({2, kWidth}, Type::f32)},
         {DNNL_ARG_DST, result}});
    return converted(result, buffer(desc.dims(), type_));
  }

  // `x` itself where there is nothing to convert.
  memory converted(const memory& x, const memory& to) {
    if (type_ == Type::f32) return x;
    add(dnnl::reorder(x, to), {{DNNL_ARG_FROM, x}, {DNNL_ARG_TO, to}});
    return to;
  }

  memory part(const memory& of, const Dims& sides, const Dims& first) {
    const memory::dim at = first[0] * of.get_desc().dims()[1] + first[1];
    auto* begin = static_cast<float*>(of.get_data_handle()) + at;
    keep_.push_back(of);
    return memory({sides, Type::f32, Tag::ab}, engine_, begin);
  }

  // Dense, with random numbers.
  memory buffer(const Dims& sides, Type type) {
    const Tag tag = sides.size() == 2 ? Tag::ab : Tag::abc;
    const memory wide({sides, Type::f32, tag}, engine_), result({sides, type, tag}, engine_);
    std::normal_distribution<float> normal(0, 0.02f);
    auto* numbers = static_cast<float*>(wide.get_data_handle());
    std::generate_n(numbers, wide.get_desc().get_size() / sizeof(float),
                    [&] { return normal(random_); });
    dnnl::reorder(wide, result).execute(stream_, {{DNNL_ARG_FROM, wide}, {DNNL_ARG_TO, result}});
    stream_.wait();
    keep_.push_back(result);
    return result;
  }

  void add(const dnnl::primitive& primitive, const std::unordered_map<int, memory>& arguments) {
    steps_.push_back({primitive, arguments});
  }

  Type type_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::mt19937 random_{1};
  std::vector<std::pair<dnnl::primitive, std::unordered_map<int, memory>>> steps_;
  std::vector<memory> keep_;
  memory stream_in_;
};

void add(const char* name, Type type) {
  benchmark::RegisterBenchmark(name,
                               [type](benchmark::State& state) {
                                 Chain chain(type);
                                 chain.run();
                                 for (auto _ : state) chain.run();
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add("vit-base-patch16-224/cpu/f32/b1/onednn-chain", Type::f32);
  add("vit-base-patch16-224/cpu/bf16/b1/onednn-chain", Type::bf16);
  return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;
}
