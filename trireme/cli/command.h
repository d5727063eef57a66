// The subcommands that need LibTorch; the others are in trireme/command.
#pragma once

#include "trireme/command/command.h"
#include "trireme/train/model_registry.h"

namespace trireme {
inline namespace v0 {
namespace cli {

using command::Invocation;
using command::say;

using train::ModelRegistry;

/// `models`: what a configuration may name; outlives `app`.
void add_train(CLI::App& app, Invocation& invocation, const ModelRegistry& models);
void add_plan(CLI::App& app, Invocation& invocation, const ModelRegistry& models);
void add_generate(CLI::App& app, Invocation& invocation, const ModelRegistry& models);
void add_eval(CLI::App& app, Invocation& invocation, const ModelRegistry& models);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
