// Everything public for programs with LibTorch: Job and collectives, DataParallel with its Sampler,
// Strategy over blocks with batches(), Checkpointer, Log, App. Link Trireme::trireme. Programs
// without LibTorch include trireme/job.h.
#pragma once

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/cli/torch/app.h"
#include "trireme/input/batches.h"
#include "trireme/input/images.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job.h"
#include "trireme/layers/sync_batch_norm.h"
#include "trireme/memory/activation_file.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/bert.h"
#include "trireme/models/gpt.h"
#include "trireme/models/mlp.h"
#include "trireme/models/module_block.h"
#include "trireme/models/resnet.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/optim/torch_rate.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/named.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/collectives.h"
#include "trireme/train/log.h"
