// What many files of the library include, compiled once (src/CMakeLists.txt). A file includes what
// it uses all the same: the presets fuzz and coverage build without this one.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/ops.h"
