// The rows of cpu_families(), one a file.
#pragma once

#include "src/kernels/cpu/kernel.h"

namespace tensor::cpu {

extern const Family kGemm;  // with oneDNN only
extern const Family kConv;  // with oneDNN only
extern const Family kDepthwise;
extern const Family kProduct;
extern const Family kEightBits;    // products of rows and weights in eight bits
extern const Family kTileProduct;  // on processors with tile instructions only
extern const Family kAttention;
extern const Family kRow;
extern const Family kFolds;
extern const Family kPointwise;
extern const Family kImage;
extern const Family kCopy;
extern const Family kReference;

}  // namespace tensor::cpu
