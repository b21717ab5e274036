// tensor: a NumPy-like tensor library. This header brings everything but nn.h (layers) and io.h
// (files).
#pragma once

#include "tensor/attrs.h"
#include "tensor/creation.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/handle.h"
#include "tensor/index.h"
#include "tensor/ops.h"
#include "tensor/shape.h"
#include "tensor/version.h"
