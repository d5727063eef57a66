// Everything public for programs with LibTorch: Job and collectives, DataParallel with its Sampler,
// Strategy over blocks with batches(), Checkpointer, Log, App. Link Trireme::trireme. Programs
// without LibTorch include trireme/job.h.
#pragma once

// pkg-config's flags name the LibTorch that Trireme was built with. The classes of another minor
// version may differ. CMake's find_package() compares the versions itself.
#ifdef TRIREME_LIBTORCH_MINOR
#include <torch/version.h>
#if TORCH_VERSION_MAJOR != TRIREME_LIBTORCH_MAJOR || TORCH_VERSION_MINOR != TRIREME_LIBTORCH_MINOR
#error \
    "Trireme was built with another minor version of LibTorch than that of <torch/version.h>: \
name the former by pkg-config --define-variable=torch=FOLDER, or build Trireme again."
#endif
#endif

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/cli/torch/app.h"
#include "trireme/input/batches.h"
#include "trireme/input/dataset.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job.h"
#include "trireme/layers/sync_batch_norm.h"
#include "trireme/memory/activation_store.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/models/server_embedding.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/optim/pieces.h"
#include "trireme/ps/server/serve.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/collectives.h"
#include "trireme/train/report/log.h"
