// Class names and colours of Cityscapes and ADE20K in the order of their public SETR checkpoints.
#include "models/setr/setr_classes.h"

#include <array>

namespace models::setr {
namespace {

// clang-format off
constexpr std::array<const char*, 19> kCityscapesNames = {
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign",
    "vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle",
    "bicycle"};

constexpr std::array<std::uint32_t, 19> kCityscapesColours = {
    0x804080, 0xf423e8, 0x464646, 0x66669c, 0xbe9999, 0x999999, 0xfaaa1e, 0xdcdc00, 0x6b8e23,
    0x98fb98, 0x4682b4, 0xdc143c, 0xff0000, 0x00008e, 0x000046, 0x003c64, 0x005064, 0x0000e6,
    0x770b20};

constexpr std::array<const char*, 150> kAdeNames = {
    "wall", "building", "sky", "floor", "tree", "ceiling", "road", "bed", "windowpane", "grass",
    "cabinet", "sidewalk", "person", "earth", "door", "table", "mountain", "plant", "curtain",
    "chair", "car", "water", "painting", "sofa", "shelf", "house", "sea", "mirror", "rug", "field",
    "armchair", "seat", "fence", "desk", "rock", "wardrobe", "lamp", "bathtub", "railing",
    "cushion", "base", "box", "column", "signboard", "chest of drawers", "counter", "sand", "sink",
    "skyscraper", "fireplace", "refrigerator", "grandstand", "path", "stairs", "runway", "case",
    "pool table", "pillow", "screen door", "stairway", "river", "bridge", "bookcase", "blind",
    "coffee table", "toilet", "flower", "book", "hill", "bench", "countertop", "stove", "palm",
    "kitchen island", "computer", "swivel chair", "boat", "bar", "arcade machine", "hovel", "bus",
    "towel", "light", "truck", "tower", "chandelier", "awning", "streetlight", "booth",
    "television receiver", "airplane", "dirt track", "apparel", "pole", "land", "bannister",
    "escalator", "ottoman", "bottle", "buffet", "poster", "stage", "van", "ship", "fountain",
    "conveyer belt", "canopy", "washer", "plaything", "swimming pool", "stool", "barrel", "basket",
    "waterfall", "tent", "bag", "minibike", "cradle", "oven", "ball", "food", "step", "tank",
    "trade name", "microwave", "pot", "animal", "bicycle", "lake", "dishwasher", "screen",
    "blanket", "sculpture", "hood", "sconce", "vase", "traffic light", "tray", "ashcan", "fan",
    "pier", "crt screen", "plate", "monitor", "bulletin board", "shower", "radiator", "glass",
    "clock", "flag"};

constexpr std::array<std::uint32_t, 150> kAdeColours = {
    0x787878, 0xb47878, 0x06e6e6, 0x503232, 0x04c803, 0x787850, 0x8c8c8c, 0xcc05ff, 0xe6e6e6,
    0x04fa07, 0xe005ff, 0xebff07, 0x96053d, 0x787846, 0x08ff33, 0xff0652, 0x8fff8c, 0xccff04,
    0xff3307, 0xcc4603, 0x0066c8, 0x3de6fa, 0xff0633, 0x0b66ff, 0xff0747, 0xff09e0, 0x0907e6,
    0xdcdcdc, 0xff095c, 0x7009ff, 0x08ffd6, 0x07ffe0, 0xffb806, 0x0aff47, 0xff290a, 0x07ffff,
    0xe0ff08, 0x6608ff, 0xff3d06, 0xffc207, 0xff7a08, 0x00ff14, 0xff0829, 0xff0599, 0x0633ff,
    0xeb0cff, 0xa09614, 0x00a3ff, 0x8c8c8c, 0xfa0a0f, 0x14ff00, 0x1fff00, 0xff1f00, 0xffe000,
    0x99ff00, 0x0000ff, 0xff4700, 0x00ebff, 0x00adff, 0x1f00ff, 0x0bc8c8, 0xff5200, 0x00fff5,
    0x003dff, 0x00ff70, 0x00ff85, 0xff0000, 0xffa300, 0xff6600, 0xc2ff00, 0x008fff, 0x33ff00,
    0x0052ff, 0x00ff29, 0x00ffad, 0x0a00ff, 0xadff00, 0x00ff99, 0xff5c00, 0xff00ff, 0xff00f5,
    0xff0066, 0xffad00, 0xff0014, 0xffb8b8, 0x001fff, 0x00ff3d, 0x0047ff, 0xff00cc, 0x00ffc2,
    0x00ff52, 0x000aff, 0x0070ff, 0x3300ff, 0x00c2ff, 0x007aff, 0x00ffa3, 0xff9900, 0x00ff0a,
    0xff7000, 0x8fff00, 0x5200ff, 0xa3ff00, 0xffeb00, 0x08b8aa, 0x8500ff, 0x00ff5c, 0xb800ff,
    0xff001f, 0x00b8ff, 0x00d6ff, 0xff0070, 0x5cff00, 0x00e0ff, 0x70e0ff, 0x46b8a0, 0xa300ff,
    0x9900ff, 0x47ff00, 0xff00a3, 0xffcc00, 0xff008f, 0x00ffeb, 0x85ff00, 0xff00eb, 0xf500ff,
    0xff007a, 0xfff500, 0x0abed4, 0xd6ff00, 0x00ccff, 0x1400ff, 0xffff00, 0x0099ff, 0x0029ff,
    0x00ffcc, 0x2900ff, 0x29ff00, 0xad00ff, 0x00f5ff, 0x4700ff, 0x7a00ff, 0x00ffb8, 0x005cff,
    0xb8ff00, 0x0085ff, 0xffd600, 0x19c2c2, 0x66ff00, 0x5c00ff};
// clang-format on

}  // namespace

std::vector<std::string> default_names(std::int64_t classes) {
  if (classes == std::ssize(kCityscapesNames))
    return {kCityscapesNames.begin(), kCityscapesNames.end()};
  if (classes == std::ssize(kAdeNames)) return {kAdeNames.begin(), kAdeNames.end()};
  std::vector<std::string> names;
  for (std::int64_t k = 0; k < classes; ++k) names.push_back("class " + std::to_string(k));
  return names;
}

std::vector<std::uint32_t> default_colours(std::int64_t classes) {
  if (classes == std::ssize(kCityscapesColours))
    return {kCityscapesColours.begin(), kCityscapesColours.end()};
  std::vector<std::uint32_t> colours;
  for (std::int64_t k = 0; k < classes; ++k)
    colours.push_back(kAdeColours[static_cast<std::size_t>(k % std::ssize(kAdeColours))]);
  return colours;
}

}  // namespace models::setr
