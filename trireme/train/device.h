// train.device: where the tensors of a rank live.
//
// The command chooses the kind of device before anything starts; then each rank takes one by its
// local rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::train {

/// A host's devices of the one kind that it trains on.
struct Devices {
  std::string kind = "cpu";  // as LibTorch names it: cuda, xpu, hpu, ...
  int count = 0;             // that this process may use
  bool in_build = true;      // this LibTorch computes on them
  std::string why_none;      // in LibTorch's words: "Found no NVIDIA driver on your system ..."
};
/// The devices that this LibTorch computes on, else NVIDIA's, else none.
Devices devices_here();
/// Counts the driver's GPUs (one folder each in `folder`), at most those of CUDA_VISIBLE_DEVICES.
int count_gpus(const std::string& folder,
               const std::function<const char*(const char*)>& environment);

struct DeviceChoice {
  std::string kind = "cpu";
  std::string note;  // to print, or ""
  int spare = -1;    // the first device that no rank takes; -1: none
};
/// The meaning of train.device = `wanted` for `ranks` ranks of this host, of which each device
/// takes `ranks_per_device`. "auto" takes devices if there is one for each rank and they have fp64,
/// in which steps sum. Throws ConfigError if the device cannot be used.
DeviceChoice choose_device(const std::string& wanted, const Devices& devices, int ranks,
                           int ranks_per_device);

/// The meaning of train.device = "auto" on a host with these devices: "cuda for up to 2 ranks ...".
std::string describe_auto(const Devices& devices);

/// LibTorch's and the driver's report on this host's devices, for people. Asking for memory starts
/// the driver in this process.
struct DeviceReport {
  std::string kinds;                 // that this LibTorch computes on: "cpu, cuda"
  std::vector<std::string> devices;  // "cuda:0, NVIDIA H200, 138 GB free of 141 GB"
  std::string driver;                // NVIDIA's: "580.159.03"; "" if there is none
};
DeviceReport report_devices(const Devices& devices);

/// Throws ConfigError for train.graphs = true on a device of this kind that has no graphs.
void check_graphs(bool graphs, const std::string& kind);
/// Throws ConfigError if a device of this kind cannot compute train.products = `products`.
void check_products(const std::string& products, const std::string& kind);
/// The same for comm.transport = `transport`.
void check_transport(const std::string& transport, const std::string& kind, int ranks_per_device);

/// Makes a rank's device the current one of its thread. ConfigError if it is missing or unusable.
Device take_device(const std::string& kind, int local_rank, int ranks_per_device);
/// The same for a process that is alone: one device of the kind that train.device = `wanted` means.
Device take_device(const std::string& wanted);
/// The same for ranks that are threads of one process: they share its devices in turn.
Device share_device(const std::string& kind, int rank);

/// The facts that decide the bits on this kind of device: its kind and, for NVIDIA's, the model.
std::string describe_devices(const std::string& kind);

/// The least memory of this process's GPUs in bytes, by the driver; 0: not known.
std::int64_t gpu_memory();

/// Peak bytes of LibTorch's tensors on a device since the process began, or since forget_peaks(); 0
/// on the CPU, or if nobody counts them.
std::int64_t peak_device_bytes(Device device);
/// Begins the peaks of all devices anew, with what is allocated now.
void forget_peaks();

}  // namespace trireme::inline v0::train
