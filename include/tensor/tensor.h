// tensor: a NumPy-like tensor library. This header brings tensors and operators. Not in it: nn.h
// (layers), io.h (files), json.h (config files), compile.h and tune.h.
#pragma once

#include "tensor/attrs.h"
#include "tensor/axes.h"
#include "tensor/control.h"
#include "tensor/creation.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/handle.h"
#include "tensor/index.h"
#include "tensor/ops.h"
#include "tensor/print.h"
#include "tensor/shape.h"
#include "tensor/version.h"
