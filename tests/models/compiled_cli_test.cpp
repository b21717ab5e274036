// The options of compiled runs: eager and compiled programs give the same on everything there is to
// compare, and --dtype, --threads, --report, --profile and --verify do what --help says.
#include <regex>

#include "src/kernels/cpu/kernel.h"
#include "tests/models/cli_testing.h"
#include "tests/models/digits.h"
#include "tests/models/programs.h"

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
  static std::string program() { return golden::program_of(GetParam())->name(); }
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
  for (const std::string prefix : {"", "unmasked.", "interpolated.", "other."}) {
    const bool asked =
        std::ranges::any_of(io, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    if (!asked) continue;
    const Words words = inputs(io, prefix);
    const StateDict eager = outputs(joined(words, {"--hidden-states", "--eager"}));
    const StateDict compiled = outputs(joined(words, {"--hidden-states"}));
    for (const StateDict& got : {eager, compiled})
      for (const auto& [name, want] : io) {
        const bool plain = !name.starts_with("unmasked.") && !name.starts_with("interpolated.") &&
                           !name.starts_with("other.");
        if (prefix.empty() ? !plain : !name.starts_with(prefix)) continue;
        if (name.ends_with("pixel_values") || name == "pixel_mask") continue;
        ASSERT_TRUE(got.contains(name.substr(prefix.size()))) << name;
        golden::expect_close(got.at(name.substr(prefix.size())), want, name);
        ++compared;
      }
    // What the folder does not list, hidden states for the most part, against the eager run.
    ASSERT_EQ(compiled.size(), eager.size());
    EXPECT_GE(eager.size(), 4u);
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

TEST_P(CompiledCli, ExcludedProductsStayFloat) {
  const std::string bytes = on_image({"--dtype", "i8", "--report"}).out;
  EXPECT_NE(bytes.find("quantized_matmul"), std::string::npos) << bytes;
  const Outcome excluded = on_image({"--dtype", "i8", "--report", "--exclude", "nothing.*,*"});
  expect_refused(on_image({"--exclude", "*"}), "--exclude: needs --dtype i8, got f32");
  EXPECT_NE(excluded.err.find("got exclude \"nothing.*\""), std::string::npos) << excluded.err;
  // What stays wide is computed as for bf16, which a CPU that does not multiply it computes in f32.
  EXPECT_EQ(on_image({"--dtype", "i8", "--exclude", "*"}).out, on_image({"--dtype", "bf16"}).out);
}

TEST_P(CompiledCli, ScalesComeFromPictures) {
  const std::string pictures = source(GetParam() == std::string("vit") ? "examples/images/digits"
                                                                       : "examples/images/scenes");
  const Words calibrated = {"--dtype", "i8", "--calibrate", pictures};
  const std::string told = on_image(joined(calibrated, {"--report"})).out;
  EXPECT_NE(told.find("static eight bits"), std::string::npos) << told;
  EXPECT_EQ(told.find("dynamic eight bits"), std::string::npos) << told;
  const auto best = [](const Outcome& got) { return findings(got).begin()->second[0]["label"]; };
  EXPECT_EQ(best(on_image(joined(calibrated, {"--json"}))).text(),
            best(on_image({"--json"})).text());
  expect_refused(on_image({"--calibrate", pictures}), "--calibrate: needs --dtype i8, got f32");
  // The plan keeps them, and is for those pictures.
  const std::string plan = path("scales.plan");
  const Outcome made = on_image(joined(calibrated, {"--plan", plan})),
                again = on_image(joined(calibrated, {"--plan", plan}));
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(again.out, made.out);
  EXPECT_NE(
      on_image({"--dtype", "i8", "--plan", plan}).err.find("was compiled for the calibration"),
      std::string::npos);
}

// ---- Options that are wrong, or do not go together

TEST_P(CompiledCli, WrongValuesAreRefused) {
  expect_refused(on_image({"--dtype", "f16"}),
                 "--dtype: got \"f16\", need f32, bf16 or i8; f16 is for --device cuda");
  expect_refused(on_image({"--dtype", "tf32"}),
                 "--dtype: got \"tf32\", need f32, bf16 or i8; tf32 is for --device cuda");
  for (const char* dtype : {"BF16", "f64", "", "float32"})
    expect_refused(on_image({"--dtype", dtype}),
                   std::string("--dtype: got \"") + dtype + "\", need f32, bf16 or i8");
  const std::string end = std::string(" (see ") + GetParam() + " --help)";
  for (const char* threads : {"0", "-1", "1025", "9000000000000000000", "two", "1.5", "2x"})
    expect_refused(on_image({"--threads", threads}), std::string("--threads: got \"") + threads +
                                                         "\", need a whole number from 1 to 1024" +
                                                         end);
}

TEST_P(CompiledCli, OptionsOfCompiledModelsNeedOne) {
  const std::pair<Words, std::string> options[] = {{{"--dtype", "bf16"}, "--dtype bf16"},
                                                   {{"--threads", "2"}, "--threads"},
                                                   {{"--plan", path("p")}, "--plan"},
                                                   {{"--sizes", "b1"}, "--sizes"},
                                                   {{"--report"}, "--report"},
                                                   {{"--profile", path("t")}, "--profile"},
                                                   {{"--verify"}, "--verify"}};
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

}  // namespace
