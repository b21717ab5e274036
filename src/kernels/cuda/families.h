// The rows of cuda_families(), one a file.
#pragma once

#include "src/kernels/cuda/family.h"

namespace tensor::cuda {

extern const Family kAllReduce;
extern const Family kAttentionMma;
extern const Family kAttentionPlain;
extern const Family kAttentionSm90;
extern const Family kConv;
extern const Family kGemmMma;
extern const Family kGemmPlain;
extern const Family kGemmSm90;
extern const Family kPointwise;
extern const Family kCopy;
extern const Family kImage;
extern const Family kRow;
extern const Family kReduce;
extern const Family kScan;
extern const Family kSort;
extern const Family kSoftmaxMma;
extern const Family kHost;

/// Of bytes kConv takes images whose channels are a multiple of this, where there is wgmma: a step
/// of the depth, which has as many bytes, then lies in one tap.
inline constexpr std::int64_t kByteChannels = 128;

}  // namespace tensor::cuda
