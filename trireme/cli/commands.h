// commands(argc, argv): `show`, `verify` and the other commands of `trireme` that need no LibTorch,
// for a user's own program. They then also know the algorithms that the program registered.
//
//     int main(int argc, char** argv) { return trireme::commands(argc, argv); }
#pragma once

namespace trireme::inline v0 {

/// Runs the command that argv names; returns the exit code (0 done, 2 wrong usage).
int commands(int argc, char** argv);

}  // namespace trireme::inline v0
