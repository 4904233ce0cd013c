// SPDX-License-Identifier: Apache-2.0
//
// The work of a captured segment as a list of commands that can be enqueued on any stream, on any
// buffers. Warp's loader gives a CUDA graph whose kernel arguments hold the addresses of its own
// allocations; where such an address belongs to the segment's boundary it is replaced by that of
// the caller's buffer. So nothing is copied in or out, and under a stream capture the kernels
// become nodes of the caller's graph like any others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/cuda_driver.h"

namespace leapp_policy::cuda {

// A boundary allocation of the loaded graph.
struct Region {
  DevicePtr base = 0;
  uint64_t size = 0;
};

// An address in a command that belongs to a region: base of the region's buffer plus `offset`.
struct Address {
  size_t region;
  uint64_t offset;
  bool operator==(const Address& other) const {
    return region == other.region && offset == other.offset;
  }
};

class CommandList {
 public:
  // Reads the commands of `graph`. Returns nothing where the graph has work that cannot be listed
  // (branches, conditionals, allocations, host memory, clusters); it then runs as a whole, on its
  // own memory.
  //
  // The kernels stay those of `graph`, which must outlive the list.
  static std::optional<CommandList> Read(const Driver& driver, Graph graph,
                                         const std::vector<Region>& regions);

  // Whether both lists have the same commands with the same addresses in the same places. Of two
  // loads of one recording, at different addresses, this proves that what looks like an address of
  // a region is one: a plain number would be the same in both.
  bool IsTwinOf(const CommandList& other) const;

  // Enqueues the commands in order. `buffers` has the address of each region. Not thread-safe.
  //
  // Throws Error(LP_RUN_FAILED).
  void Enqueue(const Driver& driver, const std::vector<DevicePtr>& buffers, Stream stream);

  size_t size() const { return commands_.size(); }

 private:
  struct Patch {
    Address address;
    size_t param;     // index of the kernel argument
    size_t position;  // byte in it
    bool operator==(const Patch& other) const {
      return address == other.address && param == other.param && position == other.position;
    }
  };
  struct Kernel {
    Function function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    std::vector<std::vector<uint8_t>> params;
    std::vector<Patch> patches;
  };
  // An end of a copy or a fill: an address of a region, or one that stays.
  struct Place {
    std::optional<Address> address;
    DevicePtr fixed;
    DevicePtr Resolve(const std::vector<DevicePtr>& buffers) const {
      return address ? buffers[address->region] + address->offset : fixed;
    }
  };
  struct Copy {
    Place source, target;
    size_t size;
  };
  struct Fill {
    Place target;
    unsigned value;
    unsigned element_size;
    size_t count;
  };
  using Command = std::variant<Kernel, Copy, Fill>;

  class Reader;

  std::vector<Command> commands_;
  std::vector<void*> pointers_;  // arguments of one launch
};

}  // namespace leapp_policy::cuda
