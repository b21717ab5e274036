// The options of compiled runs: eager and compiled programs give the same on everything there is to
// compare, and --dtype, --threads, --plan, --report, --profile and --verify do what --help says.
#include <regex>

#include "models/common/plan.h"
#include "src/kernels/cpu/kernel.h"
#include "tests/models/cli_testing.h"
#include "tests/models/digits.h"

namespace {

using cli::Cli;
using cli::Outcome;
using cli::source;
using cli::Words;
using tensor::Json;
using tensor::Tensor;
using tensor::nn::StateDict;

namespace fs = std::filesystem;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// ---- The reference checkpoints

class GoldenRuns : public Cli, public ::testing::WithParamInterface<std::string> {
 protected:
  std::string program() const { return GetParam().substr(0, GetParam().find('_')); }
  StateDict outputs(const Words& more) { return saved_run(program(), GetParam(), more); }

  /// Inputs that the folder lists under a prefix, saved for --input.
  Words inputs(const StateDict& io, const std::string& prefix) {
    StateDict some = {{"pixel_values", prefix == "unmasked."
                                           ? io.at("pixel_values")(tensor::slice(0, 1)).copy()
                                           : io.at(prefix + "pixel_values")}};
    if (prefix.empty() && io.contains("pixel_mask"))
      some.emplace("pixel_mask", io.at("pixel_mask"));
    tensor::save_safetensors(path("in"), some);
    Words words = {"--input", path("in")};
    if (prefix == "interpolated.") words.push_back("--interpolate-pos-encoding");
    return words;
  }
};

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden::folder("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRuns, ::testing::ValuesIn(golden_names()),
                         [](const auto& it) { return it.param; });

TEST_P(GoldenRuns, EagerAndCompiledGiveEveryListedOutput) {
  const StateDict io = golden::io(GetParam());
  std::size_t compared = 0, listed = 0;
  for (const auto& [name, value] : io)
    listed += !name.ends_with("pixel_values") && name != "pixel_mask";
  for (const std::string prefix : {"", "unmasked.", "interpolated."}) {
    const bool asked =
        std::ranges::any_of(io, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    if (!asked) continue;
    const Words words = inputs(io, prefix);
    const StateDict eager = outputs(joined(words, {"--hidden-states", "--eager"}));
    const StateDict compiled = outputs(joined(words, {"--hidden-states"}));
    for (const StateDict& got : {eager, compiled})
      for (const auto& [name, want] : io) {
        const bool plain = !name.starts_with("unmasked.") && !name.starts_with("interpolated.");
        if (prefix.empty() ? !plain : !name.starts_with(prefix)) continue;
        if (name.ends_with("pixel_values") || name == "pixel_mask") continue;
        ASSERT_TRUE(got.contains(name.substr(prefix.size()))) << name;
        golden::expect_close(got.at(name.substr(prefix.size())), want, name);
        ++compared;
      }
    // What the folder does not list, hidden states for the most part, against the eager run.
    ASSERT_EQ(compiled.size(), eager.size());
    EXPECT_GE(eager.size(), prefix.empty() && GetParam() == "vit_hf_headless" ? 4u : 5u);
    for (const auto& [name, want] : eager) {
      ASSERT_TRUE(compiled.contains(name)) << name;
      if (tensor::any(want != 0).item<bool>())
        golden::expect_close(compiled.at(name), want, prefix + name);
      else  // the decoder's first state
        EXPECT_FALSE(tensor::any(compiled.at(name) != 0).item<bool>()) << name;
    }
    const StateDict plain = outputs(words);  // without the hidden states
    EXPECT_LT(plain.size(), eager.size());
    for (const auto& [name, value] : plain) EXPECT_EQ(name.find("hidden_states."), name.npos);
  }
  EXPECT_EQ(compared, 2 * listed);
}

/// "verify: 31 groups against the reference operators, 0 out of bound" and the worst of them.
void expect_verified(const std::string& text) {
  const std::regex form(
      "verify: [1-9][0-9]* groups against the reference operators, 0 out of bound\n"
      "  worst  error [0-9]\\.[0-9]e-[0-9]+  bound [0-9]\\.[0-9]e-[0-9]+  [a-z][^@\\n]*"
      "( @ [^\\n]+)? \\[[^\\n]+\\]\n");
  EXPECT_TRUE(std::regex_match(text, form)) << text;
}

TEST_P(GoldenRuns, VerifyFindsNothing) {
  for (const char* dtype : {"f32", "bf16"}) {
    const Outcome got =
        run(program(), {"--checkpoint", golden::folder(GetParam()), "--input",
                        golden::folder(GetParam()) + "/io.safetensors", "--output", path("out"),
                        "--hidden-states", "--dtype", dtype, "--verify", "--quiet"});
    EXPECT_EQ(got.code, 0) << got.out;
    EXPECT_EQ(got.err, "");
    expect_verified(got.out);
  }
}

// ---- The models that ship

TEST_F(Cli, AllModesReadTheSameDigits) {
  const Tensor pixels = digits::test_pixels(digits::shipped_vit());
  ASSERT_GE(pixels.shape(0), 300);
  tensor::save_safetensors(path("in"), {{"pixel_values", pixels}});
  const auto logits = [&](const Words& more) {
    const Outcome got =
        shipped("vit", joined({"--input", path("in"), "--output", path("out"), "--quiet"}, more));
    EXPECT_EQ(got.code, 0) << got.err;
    return tensor::load_safetensors(path("out"), tensor::FileAccess::read).tensors.at("logits");
  };
  const Tensor exact = logits({"--eager"}), fast = logits({}), narrow = logits({"--dtype", "bf16"});
  golden::expect_close(fast, exact, "compiled");
  EXPECT_TRUE(tensor::all(tensor::argmax(fast, 1) == tensor::argmax(exact, 1)).item<bool>());
  EXPECT_EQ(tensor::any(narrow != fast).item<bool>(), tensor::cpu::this_machine().has_bf16);
  digits::expect_same_classes(narrow, exact, tensor::bf16);
}

class CompiledCli : public Cli, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string image() {
    return source(GetParam() == std::string("vit") ? "examples/images/digits/digit-3.png"
                                                   : "examples/images/scenes/scene-1.png");
  }
  static Outcome on_image(const Words& more) {
    return shipped(GetParam(), joined({image()}, more));
  }
  static void expect_refused(const Outcome& got, const std::string& line) {
    Cli::expect_refused(got, GetParam() + (": " + line));
  }
};
INSTANTIATE_TEST_SUITE_P(Programs, CompiledCli, ::testing::Values("vit", "detr", "setr"),
                         [](const auto& it) { return std::string(it.param); });

TEST_P(CompiledCli, EagerAndCompiledSayTheSame) {
  const Outcome compiled = on_image({}), eager = on_image({"--eager"});
  EXPECT_EQ(compiled.code, 0);
  EXPECT_EQ(compiled.err, "");
  EXPECT_EQ(compiled.out, eager.out);  // percentages with one digit after the point
  const auto narrow = findings(on_image({"--dtype", "bf16", "--json"}));
  const auto exact = findings(on_image({"--eager", "--dtype", "f32", "--json"}));
  const Json a = narrow.begin()->second, b = exact.begin()->second;
  EXPECT_EQ(a[0]["label"].text(), b[0]["label"].text());
}

// ---- Options that are wrong, or do not go together

TEST_P(CompiledCli, WrongValuesAreRefused) {
  expect_refused(on_image({"--dtype", "f16"}),
                 "--dtype: got \"f16\", need f32 or bf16; f16 is for --device cuda");
  expect_refused(on_image({"--dtype", "tf32"}),
                 "--dtype: got \"tf32\", need f32 or bf16; tf32 is for --device cuda");
  for (const char* dtype : {"BF16", "f64", "", "float32"})
    expect_refused(on_image({"--dtype", dtype}),
                   std::string("--dtype: got \"") + dtype + "\", need f32 or bf16");
  const std::string end = std::string(" (see ") + GetParam() + " --help)";
  for (const char* threads : {"0", "-1", "1025", "9000000000000000000", "two", "1.5", "2x"})
    expect_refused(on_image({"--threads", threads}), std::string("--threads: got \"") + threads +
                                                         "\", need a whole number from 1 to 1024" +
                                                         end);
}

TEST_P(CompiledCli, OptionsOfCompiledModelsNeedOne) {
  const std::pair<Words, std::string> options[] = {
      {{"--dtype", "bf16"}, "--dtype bf16"},   {{"--threads", "2"}, "--threads"},
      {{"--plan", path("p")}, "--plan"},       {{"--report"}, "--report"},
      {{"--profile", path("t")}, "--profile"}, {{"--verify"}, "--verify"}};
  for (const auto& [words, name] : options) {
    expect_refused(on_image(joined(words, {"--eager"})),
                   name +
                       ": is for compiled models: leave out --eager, which runs the reference "
                       "operators on one thread");
    expect_refused(shipped(GetParam(), joined(words, {"--info"})),
                   name + ": needs a run, but --info only prints sizes");
  }
  EXPECT_EQ(files(), 0u);  // neither plan nor trace
}

// ---- --report, --profile, --verify

TEST_P(CompiledCli, ReportsAfterTheResults) {
  const std::string plain = on_image({}).out;
  const Outcome got = on_image({"--report", "--threads", "1"});
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.err, "");
  ASSERT_TRUE(got.out.starts_with(plain)) << got.out;
  const std::string report = got.out.substr(plain.size());
  EXPECT_NE(report.find("operators @ place [kernel]\n"), std::string::npos) << report;
  EXPECT_NE(report.find("matmul"), std::string::npos) << report;
  EXPECT_NE(report.find(" @ layers.*."), GetParam() == std::string("detr") ? 0 : std::string::npos);
  EXPECT_NE(report.find(", 1 threads, peak rates assumed\n      memory "), std::string::npos)
      << report;
  EXPECT_TRUE(report.ends_with(" shared\n")) << report;

  const Outcome json = on_image({"--report", "--verify", "--json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(json.out, on_image({"--json"}).out);
  EXPECT_NE(json.err.find("operators @ place [kernel]\n"), std::string::npos) << json.err;
  const std::size_t checks = json.err.find("verify: ");
  ASSERT_NE(checks, std::string::npos) << json.err;
  expect_verified(json.err.substr(checks));
}

TEST_P(CompiledCli, ProfileIsATrace) {
  const Outcome got = on_image({"--profile", path("trace.json")});
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.out, on_image({}).out);
  const Json events = Json::load(path("trace.json"))["traceEvents"];
  ASSERT_GE(events.size(), 20u);
  double end = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["ph"].text(), "X");
    EXPECT_FALSE(events[i]["name"].text().empty());
    EXPECT_GE(events[i]["ts"].number(), end - 0.001);  // one after the other; printed in ns
    end = events[i]["ts"].number() + events[i]["dur"].number();
  }
  const Outcome nowhere = on_image({"--profile", path("no/trace.json")});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.err, GetParam() + (": profile: cannot write " + path("no/trace.json")) +
                             ": check that the folder exists and is writable\n");
}

TEST_P(CompiledCli, VerifyIsOnTopOfTheResults) {
  const std::string plain = on_image({}).out;
  const Outcome got = on_image({"--verify"});
  EXPECT_EQ(got.code, 0);
  ASSERT_TRUE(got.out.starts_with(plain)) << got.out;
  expect_verified(got.out.substr(plain.size()));
  // Without an image that can be read there is nothing to verify.
  const Outcome none = shipped(GetParam(), {path("none.png"), "--verify", "--report"});
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.out, "");
}

// ---- --plan

TEST_P(CompiledCli, PlanIsWrittenOnceAndRunAfterwards) {
  const std::string plain = on_image({"--json"}).out, plan = path("model.plan");
  EXPECT_EQ(on_image({"--json", "--plan", plan}).out, plain);
  const std::string bytes = tensor::testing::read_bytes(plan);
  const Outcome again = on_image({"--json", "--plan", plan, "--threads", "1"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, "");
  const auto want = findings({0, plain, ""}), got = findings(again);
  ASSERT_EQ(got.begin()->second.size(), want.begin()->second.size());
  EXPECT_EQ(got.begin()->second[0]["label"].text(), want.begin()->second[0]["label"].text());
  EXPECT_EQ(tensor::testing::read_bytes(plan), bytes);
  EXPECT_EQ(files(), 1u);

  // It is the plan that runs: with its weights gone, the model has no opinion.
  tensor::Safetensors file = tensor::load_safetensors(plan, tensor::FileAccess::read);
  for (auto& [name, value] : file.tensors)
    if (is_floating(value.dtype())) value = tensor::zeros(value.shape(), value.dtype());
  tensor::save_safetensors(plan, file.tensors, file.metadata);
  const Outcome empty = on_image({"--json", "--plan", plan});
  EXPECT_EQ(empty.code, 0) << empty.err;
  EXPECT_NE(empty.out, plain);
}

TEST_P(CompiledCli, PlanOfSomethingElseIsRefused) {
  const std::string plan = path("model.plan");
  const std::string other = ": name another plan, or a file that does not exist yet";
  const auto refused = [&](const Outcome& got, const std::string& message) {
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.err, GetParam() + (": " + plan + message) + "\n");
  };
  ASSERT_EQ(on_image({"--plan", plan}).code, 0);
  refused(on_image({"--plan", plan, "--dtype", "bf16"}),
          ": was compiled for the dtype \"f32\", this run has \"bf16\"" + other);

  // Another input size, other outputs.
  const std::int64_t side = GetParam() == std::string("vit") ? 28 : 160;
  tensor::save_safetensors(path("in"), {{"pixel_values", tensor::zeros({2, 3, side, side})}});
  const Words saved = {"--input", path("in"), "--output", path("out"), "--plan", plan};
  const Outcome size = shipped(GetParam(), saved);
  EXPECT_EQ(size.code, 1);
  EXPECT_NE(size.err.find(plan + ": is a plan for pixel_values f32(1, 3, "), std::string::npos);
  EXPECT_NE(size.err.find(", this is pixel_values f32(2, 3, "), std::string::npos) << size.err;
  EXPECT_TRUE(size.err.ends_with(other + "\n")) << size.err;
  refused(shipped(GetParam(), joined(saved, {"--hidden-states"})),
          ": was compiled for the hidden states \"no\", this run has \"yes\"" + other);

  // Another checkpoint of the same architecture, a single weight of which differs.
  const std::string folder = source("models/" + std::string(GetParam()) + "/pretrained/") +
                             (GetParam() == std::string("vit") ? "digits" : "scenes");
  fs::create_directory(path("copy"));
  for (const char* file : {"config.json", "preprocessor_config.json"})
    fs::copy_file(folder + "/" + file, path("copy/") + file);
  auto weights = tensor::load_safetensors(folder + "/model.safetensors").tensors;
  tensor::save_safetensors(path("copy/model.safetensors"), weights);
  EXPECT_EQ(run(GetParam(), {image(), "--checkpoint", path("copy"), "--plan", plan}).code, 0);
  Tensor changed = weights.begin()->second.copy();
  changed(tensor::ellipsis, 0) = changed(tensor::ellipsis, 0) + 1;
  weights.begin()->second = changed;
  tensor::save_safetensors(path("copy/model.safetensors"), weights);
  const Outcome weight = run(GetParam(), {image(), "--checkpoint", path("copy"), "--plan", plan});
  refused(weight, ": was made from other weights or another config.json" + other);
}

TEST_P(CompiledCli, FilesThatAreNoPlans) {
  const std::string plan = path("model.plan");
  const auto message = [&] {
    const Outcome got = on_image({"--plan", plan});
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 1) << got.err;
    return got.err;
  };
  tensor::testing::write_bytes(plan, "no plan");
  EXPECT_NE(message().find(plan + ": "), std::string::npos);
  tensor::save_safetensors(plan, {{"x", tensor::ones({1})}});
  EXPECT_EQ(message(), GetParam() + (": " + plan) +
                           ": is no plan file: name one for --plan, or a file that does not exist "
                           "yet\n");
  fs::remove(plan);
  ASSERT_EQ(on_image({"--plan", plan}).code, 0);
  tensor::Safetensors file = tensor::load_safetensors(plan, tensor::FileAccess::read);
  const auto with = [&](const std::string& entry, const std::string& value) {
    auto metadata = file.metadata;
    metadata[entry] = value;
    tensor::save_safetensors(plan, file.tensors, metadata);
    return message();
  };
  EXPECT_NE(with("outputs", "logits and more than there are").find(" outputs, but its executable "),
            std::string::npos);
  EXPECT_NE(with("program", "cat").find(": was made by cat, this is " + std::string(GetParam())),
            std::string::npos);
  EXPECT_NE(with("version", "0.0.0").find("was compiled for the version \"0.0.0\""),
            std::string::npos);
  EXPECT_NE(with("plan", "{}").find("is no plan file"), std::string::npos);
  // What windows add up to, of SETR.
  const std::string wanted = GetParam() == std::string("setr") ? "sums" : "logits";
  std::string outputs = file.metadata.at("outputs");
  outputs.replace(outputs.find(wanted), wanted.size(), "nothing");
  EXPECT_EQ(with("outputs", outputs),
            GetParam() + (": model: it has no output \"" + wanted) + "\"\n");
  const Outcome nowhere = on_image({"--plan", path("no/model.plan")});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.err.find(path("no/model.plan")), std::string::npos) << nowhere.err;
}

TEST(Fingerprint, CountsNamesTypesAndEveryElement) {
  Tensor a = tensor::arange(35).reshape({5, 7}).astype(tensor::f32), b = tensor::ones({3});
  const auto of = [&](const std::string& text) {
    return models::fingerprint(text, {{"a", &a}, {"b", &b}});
  };
  const std::string first = of("text");
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(of("text"), first);
  EXPECT_NE(of("texts"), first);
  EXPECT_NE(models::fingerprint("text", {{"a", &a}, {"c", &b}}), first);
  const Tensor before = a;
  for (std::int64_t i = 0; i < 35; ++i) {
    a = before.copy();
    a.at<float>(i / 7, i % 7) = -1;
    EXPECT_NE(of("text"), first) << i;
  }
  a = before.reshape({7, 5});
  EXPECT_NE(of("text"), first);
  a = before.transpose().copy().transpose();  // the same elements, otherwise in memory
  EXPECT_EQ(of("text"), first);
}

}  // namespace
