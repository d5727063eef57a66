// The subcommands that need LibTorch; the others are in trireme/command.
#pragma once

#include "trireme/command/command.h"

namespace trireme::inline v0::cli {

using command::Invocation;
using command::say;

void add_train(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_generate(CLI::App& app, Invocation& invocation);
void add_eval(CLI::App& app, Invocation& invocation);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
/// A subcommand of `show`, which must have been added before.
void add_show_zero3(CLI::App& app, Invocation& invocation);
/// The same for `show overlap`, `zero1`, `tensor`, `context` and `expert`.
void add_show_steps(CLI::App& app, Invocation& invocation);

}  // namespace trireme::inline v0::cli
