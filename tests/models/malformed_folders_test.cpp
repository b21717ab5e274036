// Every malformed folder: its exact message, no crash, no time and no memory worth speaking of.
#include <sys/resource.h>

#include <chrono>
#include <memory>

#include "tests/models/malformed_detr_setr.h"
#include "tests/models/malformed_vision.h"
#include "tests/models/malformed_vit.h"
#include "tests/models/malformed_weights.h"
#include "tests/models/programs.h"

namespace {

using malformed::Case;
using malformed::Cases;
using malformed::Folder;

/// The text of the UserError, the folder called DIR. Anything else that is thrown fails the test.
std::string message_of(const std::string& base, const std::string& path) {
  std::string text = tensor::check::error_of([&] { golden::program_of(base)->open(path); });
  for (std::size_t at = 0; (at = text.find(path)) != std::string::npos;)
    text.replace(at, path.size(), "DIR");
  return text;
}

/// The most memory that this process ever had in use, in MiB (Linux counts KiB).
long peak_mebibytes() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss / 1024;
}

class SpoiledFolders : public tensor::testing::FolderTest {};

TEST_F(SpoiledFolders, TheFoldersAreGoodBeforeTheyAreSpoiled) {
  for (const char* base : {"vit_hf",
                           "vit_hf_headless",
                           "vit_timm",
                           "detr_hf_no_timm",
                           "setr_mmseg_naive",
                           "setr_fudan_mla",
                           "convnext",
                           "convnextv2",
                           "swin",
                           "dinov2",
                           "dinov3",
                           "clip",
                           "clip_vision",
                           "siglip",
                           "siglip_vision",
                           "segformer",
                           "depth_anything",
                           "rt_detr",
                           "rt_detr_v2",
                           "sam",
                           "sam_vision"}) {
    const Folder folder(path(base), base);
    EXPECT_EQ(message_of(base, folder.path()), "no error") << base;
  }
  const Folder folder(path("shards"), "vit_hf");
  folder.shard();
  EXPECT_EQ(message_of("vit_hf", folder.path()), "no error");
}

TEST_F(SpoiledFolders, EveryFolderHasItsMessage) {
  using std::chrono::steady_clock;
  constexpr std::size_t kFewest = 60;
  // The weights of a good folder take 2 MB at most; what a spoiled one claims takes gigabytes.
  constexpr long kMostMebibytes = 64;
  // A folder takes milliseconds; a hang takes for ever.
  constexpr auto kLongest = std::chrono::seconds(20);
  Cases cases;
  for (const auto& more :
       {malformed::config_file_cases(), malformed::config_value_cases(),
        malformed::preprocessor_cases(), malformed::timm_cases(), malformed::tensor_cases(),
        malformed::safetensors_cases(), malformed::file_cases(), malformed::shard_cases(),
        malformed::detr_cases(), malformed::setr_cases(), malformed::rt_detr_cases(),
        malformed::vision_size_cases(), malformed::vision_setting_cases(),
        malformed::vision_tensor_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  std::map<std::string, int> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& it = cases[i];
    SCOPED_TRACE(it.base + ": " + it.name);
    EXPECT_EQ(++names[it.base + it.name], 1) << "two cases of one name";
    const Folder folder(path("folder"), it.base);
    it.spoil(folder);
    ASSERT_FALSE(HasFatalFailure());
    const long before = peak_mebibytes();
    const auto start = steady_clock::now();
    EXPECT_EQ(message_of(it.base, folder.path()), it.message);
    EXPECT_LT(steady_clock::now() - start, kLongest);
    EXPECT_LT(peak_mebibytes() - before, kMostMebibytes);
    std::filesystem::remove_all(folder.path());
  }
  EXPECT_GE(cases.size(), kFewest);
  RecordProperty("folders", static_cast<int>(cases.size()));
}

TEST_F(SpoiledFolders, NotAFolder) {
  EXPECT_EQ(message_of("vit", path("absent")), "DIR: there is no such folder");
  tensor::testing::write_bytes(path("file"), "{}");
  EXPECT_EQ(message_of("vit", path("file")),
            "DIR: is a file: need the folder that holds config.json and model.safetensors");
}

TEST_F(SpoiledFolders, UnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const Folder folder(path("folder"), "vit_hf");
  ASSERT_EQ(::chmod(folder.at("config.json").c_str(), 0), 0);
  EXPECT_EQ(message_of("vit", folder.path()),
            "DIR/config.json: cannot be opened: Permission denied");
}

}  // namespace
