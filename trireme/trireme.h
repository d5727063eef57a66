// Everything public for programs with LibTorch: Job and collectives, DataParallel with its Sampler,
// Strategy over blocks with batches(), Checkpointer, Log, App. Link Trireme::trireme. Programs
// without LibTorch include trireme/job.h.
#pragma once

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
