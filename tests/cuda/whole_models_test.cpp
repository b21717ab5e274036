// Which kernels run the groups of whole models on a GPU, decided without one: nothing is left
// to the host.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <map>
#include <set>

#include "models/detr/detr_checkpoint.h"
#include "models/setr/setr_checkpoint.h"
#include "models/vit/vit_checkpoint.h"
#include "src/kernels/cuda/family.h"
#include "src/trace/parallel.h"
#include "tests/cuda/compiled.h"
#include "tests/families.h"
#include "tests/models/golden.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

struct Summary {
  std::map<std::string, int> groups;           // by family
  std::map<std::string, int> on_host;          // operators
  std::map<std::string, double> microseconds;  // by family
};

Summary summary_of(const LaidOutGraph& laid, const FusionPlan& plan) {
  Summary summary;
  for (const Group& group : plan.groups) {
    const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
    ++summary.groups[std::string(family.name)];
    summary.microseconds[std::string(family.name)] += group.microseconds;
    if (family.name != "host") continue;
    for (const ValueId id : group.nodes) {
      const Node& node = laid.graph[id];
      ++summary.on_host[std::string(info(node.op).name)];
      ADD_FAILURE() << info(node.op).name << " : " << node.type << " of "
                    << laid.graph.type(node.inputs[0]) << " runs on the host";
    }
  }
  return summary;
}

void expect_kernels(const std::string& name, const LaidOutGraph& laid) {
  SCOPED_TRACE(name);
  const auto begin = std::chrono::steady_clock::now();
  const Machine machine = machine_of(typical_device(90));
  const FusionPlan plan = fuse(propose_parallel(laid), cuda_cost(machine));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  const Summary summary = summary_of(laid, plan);
  std::cout << name << ": planned in " << time.count() << " ms, " << plan.microseconds
            << " us estimated;";
  for (const auto& [family, groups] : summary.groups)
    std::cout << ' ' << family << ' ' << groups << " (" << summary.microseconds.at(family)
              << " us)";
  for (const auto& [op, count] : summary.on_host)
    std::cout << "; on the host " << op << " x " << count;
  std::map<std::string_view, std::set<std::string>> texts;
  const auto [merged, lowered] = merge_parallel(laid, plan);
  for (const Group& group : lowered.groups) {
    const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
    for (const Call& call : lower_group(merged, group, machine).calls)
      texts[family.name].insert(call.source.text);
  }
  std::cout << "; kernels:";
  for (const auto& [family, kernels] : texts) std::cout << ' ' << family << ' ' << kernels.size();
  std::cout << '\n';
}

TEST(WholeModels, StandardModels) {
  const auto models = nine::nine_models(nine::on_gpu(f16, 90));
  for (const char* name : {"vit-base-patch16-224", "setr-pup", "detr-resnet-50-e6"})
    expect_kernels(name, models.at(name)());
}

// At a large batch schedules are others: rows in a warp, several packs a thread.
TEST(WholeModels, GeneratedKernelsOfLargeBatchesCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const Machine machine = machine_of(typical_device(90));
  const std::string architecture = machine.device.architecture();
  const std::set<std::string_view> products = {
      "attention_sm90", "attention_mma", "attention_plain", "gemm_sm90", "gemm_mma",
      "gemm_plain",     "conv"};
  std::set<std::string> seen;
  for (const auto& [name, batch] :
       {std::pair{"vit-base-patch16-224", 64}, {"setr-pup", 8}, {"detr-resnet-50-e6", 4}}) {
    const LaidOutGraph laid = nine::nine_models(nine::on_gpu(f16, 90), batch).at(name)();
    const auto before = seen.size();
    for (const Group& group : fuse(propose_parallel(laid), cuda_cost(machine)).groups) {
      const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
      EXPECT_NE(family.name, "host");
      if (products.contains(family.name)) continue;
      for (const Call& call : lower_group(laid, group, machine).calls) {
        if (!seen.insert(call.source.text).second || !is_drawn(call.source, architecture)) continue;
        SCOPED_TRACE(std::string(name) + "\n" + call.source.text);
        const std::string log = Compiler::get().compile(call.source, architecture).log;
        EXPECT_EQ(trouble(log), "");
        EXPECT_EQ(log.find("warning"), std::string::npos) << log;
      }
    }
    // Repeated layers share their kernels.
    EXPECT_LE(seen.size() - before, 12u) << name;
  }
}

// As compile() makes it for capability 90.
LaidOutGraph laid_out(const TensorFunction& f, const std::vector<TensorType>& inputs, DType dtype) {
  Graph graph = trace(f, inputs);
  for (const Pass& pass : passes_for(nine::on_gpu(dtype, 90))) graph = pass.run(graph);
  return lay_out(graph);
}

using Tensors = std::vector<Tensor>;

TensorFunction model_in(const std::string& folder) {
  if (folder.starts_with("vit")) {
    const auto vit = models::vit::load_vit(models::open_checkpoint(golden::folder(folder)));
    return [vit](const Tensors& in) -> Tensors { return {vit.model(in[0]).last_hidden_state}; };
  }
  if (folder.starts_with("setr")) {
    const auto setr = models::setr::load_setr(models::setr::open_setr(golden::folder(folder)));
    return [setr](const Tensors& in) -> Tensors { return {setr(in[0])}; };
  }
  const auto detr = models::detr::load_detr(golden::folder(folder));
  return [detr](const Tensors& in) -> Tensors {
    const auto out = in.size() > 1 ? detr(in[0], in[1]) : detr(in[0]);
    return {out.logits, out.pred_boxes};
  };
}

TEST(WholeModels, GoldenModels) {
  for (const std::string folder :
       {"vit_hf", "vit_timm", "setr_fudan_naive", "setr_fudan_mla", "setr_fudan_pup",
        "setr_mmseg_naive", "setr_mmseg_mla", "setr_mmseg_pup", "detr_hf_hub", "detr_original"}) {
    const auto io = golden::io(folder);
    std::vector<TensorType> inputs = {io.at("pixel_values").type()};
    if (const auto mask = io.find("pixel_mask"); mask != io.end())
      inputs.push_back(mask->second.type());
    for (const DType dtype : {f16, f32})
      expect_kernels(folder + " " + std::string(name(dtype)),
                     laid_out(model_in(folder), inputs, dtype));
  }
}

}  // namespace
}  // namespace tensor::cuda
