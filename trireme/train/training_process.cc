#include "trireme/train/training_process.h"

#include <ATen/Context.h>
#include <fcntl.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/ps/server/serve.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/products/gemm.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/train/device.h"
#include "trireme/train/session.h"

namespace trireme::inline v0::train {
namespace {

// Trains. An error for lack of a device's memory also says what was planned.
int run_trainer(const Entry& entry, const WorkerSpec& spec) {
  try {
    if (spec.device != "cpu") forget_peaks();  // of an earlier training of this process
    Session session(entry, spec);
    return session.job.training_ended() ? 0 : train(session);
  } catch (...) {
    const std::exception_ptr error = tensor::explained(std::current_exception());
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      if (known.code() != ExitCode::NoDeviceMemory || spec.predicted_bytes == 0) throw;
      throw ResourceError(known.code(),
                          known.message() + "; the plan had " +
                              bytes_text(static_cast<double>(spec.predicted_bytes)) + " of tensors",
                          known.context());
    }
  }
}

}  // namespace

void set_up_training(const WorkerSpec& spec) { set_up_process(read_settings(spec)); }

void set_up_process(const Settings& settings) {
  tensor::set_up_process(
      {.kernel_threads = settings.kernel_threads, .reproducible = settings.job.reproducible});
  // By itself LibTorch's CUDA takes tf32 for convolutions, and not for matrices.
  at::globalContext().setAllowTF32CuBLAS(settings.products == "tf32");
  at::globalContext().setAllowTF32CuDNN(settings.products == "tf32");
  tensor::set_fp32_products(settings.products == "bf16" ? tensor::Products::Bf16
                                                        : tensor::Products::Fp32);
  if (!settings.kernel_table.empty())
    tensor::use_kernel_table(tensor::read_kernel_table(settings.kernel_table));
}

int run_training(int argc, char** argv, const WorkerSpec& spec) {
  if (spec.lock >= 0) ::fcntl(spec.lock, F_SETFD, FD_CLOEXEC);  // children must not inherit it
  set_up_training(spec);
  return run_trainer({.argc = argc, .argv = argv}, spec);
}

int run_server(int argc, char** argv, const WorkerSpec& spec) {
  set_up_training(spec);
  Job job(argc, argv, read_settings(spec).job);
  return serve(job);
}

int run_simulated_rank(std::shared_ptr<net::Transport> transport,
                       std::shared_ptr<const plan::Tuning> tuning, const WorkerSpec& spec) {
  return run_trainer({.transport = std::move(transport), .tuning = std::move(tuning)}, spec);
}

}  // namespace trireme::inline v0::train
