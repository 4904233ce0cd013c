// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_commands.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace leapp_policy::cuda {
namespace {

constexpr size_t kMaxParams = 4096;

void Check(const Driver& driver, Result result, const char* what) {
  if (result == kSuccess) return;
  throw Error(LP_RUN_FAILED, "A segment's " + std::string(what) + " could not be enqueued (" +
                                 driver.Describe(result) +
                                 "); an earlier CUDA error of the process may be the "
                                 "cause.");
}

}  // namespace

// Reads one graph. Every step returns false where the graph cannot be listed.
class CommandList::Reader {
 public:
  Reader(const Driver& driver, const std::vector<Region>& regions)
      : f_(driver.functions()), regions_(regions) {}

  std::optional<CommandList> Read(Graph graph) {
    std::vector<GraphNode> chain;
    if (f_.FuncGetParamInfo == nullptr || !ReadChain(graph, &chain)) return std::nullopt;
    CommandList list;
    for (const GraphNode node : chain) {
      if (!ReadNode(node, &list.commands_)) return std::nullopt;
    }
    return list;
  }

 private:
  // The nodes in order; false unless they are one chain.
  bool ReadChain(Graph graph, std::vector<GraphNode>* chain) {
    size_t num_nodes = 0;
    size_t num_roots = 0;
    if (f_.GraphGetNodes(graph, nullptr, &num_nodes) != kSuccess) return false;
    if (num_nodes == 0) return true;
    if (f_.GraphGetRootNodes(graph, nullptr, &num_roots) != kSuccess || num_roots != 1) {
      return false;
    }
    GraphNode node = nullptr;
    if (f_.GraphGetRootNodes(graph, &node, &num_roots) != kSuccess) return false;
    while (true) {
      chain->push_back(node);
      size_t num_next = 0;
      if (f_.GraphNodeGetDependentNodes(node, nullptr, &num_next) != kSuccess || num_next > 1) {
        return false;
      }
      if (num_next == 0) return chain->size() == num_nodes;
      if (f_.GraphNodeGetDependentNodes(node, &node, &num_next) != kSuccess) return false;
    }
  }

  bool ReadNode(GraphNode node, std::vector<Command>* commands) {
    NodeType type;
    if (f_.GraphNodeGetType(node, &type) != kSuccess) return false;
    switch (type) {
      case kKernelNode:
        return ReadKernel(node, commands);
      case kMemcpyNode:
        return ReadCopy(node, commands);
      case kMemsetNode:
        return ReadFill(node, commands);
      case kEmptyNode:
        return true;
      default:
        return false;
    }
  }

  bool ReadKernel(GraphNode node, std::vector<Command>* commands) {
    LaunchAttributeValue cluster{};
    if (f_.GraphKernelNodeGetAttribute(node, kClusterDimension, &cluster) == kSuccess &&
        uint64_t{cluster.cluster.x} * cluster.cluster.y * cluster.cluster.z > 1) {
      return false;
    }
    KernelNodeParams given{};
    if (f_.GraphKernelNodeGetParams(node, &given) != kSuccess || given.params == nullptr ||
        given.extra != nullptr) {
      return false;
    }
    Kernel kernel{};
    kernel.function = given.func;
    // Kernels of a library (Warp's own helpers) come without a function of this context.
    if (kernel.function == nullptr &&
        f_.KernelGetFunction(&kernel.function, given.kern) != kSuccess) {
      return false;
    }
    std::copy(given.grid, given.grid + 3, kernel.grid);
    std::copy(given.block, given.block + 3, kernel.block);
    kernel.shared_bytes = given.shared_bytes;
    for (size_t i = 0;; ++i) {
      size_t offset = 0;
      size_t size = 0;
      const Result result = f_.FuncGetParamInfo(kernel.function, i, &offset, &size);
      if (result == kInvalidValue) break;  // past the last one
      if (result != kSuccess || i == kMaxParams || given.params[i] == nullptr) return false;
      const auto* bytes = static_cast<const uint8_t*>(given.params[i]);
      kernel.params.emplace_back(bytes, bytes + size);
      FindPatches(i, kernel.params.back(), &kernel.patches);
    }
    commands->push_back(std::move(kernel));
    return true;
  }

  // Warp's array descriptors begin with their address; descriptors are aligned to 8 bytes.
  void FindPatches(size_t param, const std::vector<uint8_t>& bytes,
                   std::vector<Patch>* patches) const {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      const std::optional<Address> address = Find(word);
      if (!address) continue;
      patches->push_back({*address, param, at});
    }
  }

  bool ReadCopy(GraphNode node, std::vector<Command>* commands) {
    MemcpyNodeParams given{};
    if (f_.GraphMemcpyNodeGetParams(node, &given) != kSuccess || given.height > 1 ||
        given.depth > 1 || !IsDevice(given.source) || !IsDevice(given.target)) {
      return false;
    }
    commands->push_back(Copy{MakePlace(given.source.device + given.source.x_in_bytes),
                             MakePlace(given.target.device + given.target.x_in_bytes),
                             given.width_in_bytes});
    return true;
  }

  // A unified address may be one of the host, which is told by no flag: only ours count then.
  bool IsDevice(const MemcpySide& side) const {
    if (side.y != 0 || side.z != 0) return false;
    return side.type == kDeviceMemory || (side.type == kUnifiedMemory && Find(side.device));
  }

  bool ReadFill(GraphNode node, std::vector<Command>* commands) {
    MemsetNodeParams given{};
    if (f_.GraphMemsetNodeGetParams(node, &given) != kSuccess || given.height > 1) return false;
    if (given.element_size != 1 && given.element_size != 2 && given.element_size != 4) return false;
    commands->push_back(
        Fill{MakePlace(given.target), given.value, given.element_size, given.width});
    return true;
  }

  std::optional<Address> Find(DevicePtr word) const {
    for (size_t i = 0; i < regions_.size(); ++i) {
      if (word >= regions_[i].base && word - regions_[i].base < regions_[i].size) {
        return Address{i, word - regions_[i].base};
      }
    }
    return std::nullopt;
  }

  Place MakePlace(DevicePtr address) const { return {Find(address), address}; }

  const Functions& f_;
  const std::vector<Region>& regions_;
};

std::optional<CommandList> CommandList::Read(const Driver& driver, Graph graph,
                                             const std::vector<Region>& regions) {
  return Reader(driver, regions).Read(graph);
}

bool CommandList::IsTwinOf(const CommandList& other) const {
  const auto same_place = [](const Place& a, const Place& b) { return a.address == b.address; };
  return std::equal(commands_.begin(), commands_.end(), other.commands_.begin(),
                    other.commands_.end(), [&](const Command& a, const Command& b) {
                      if (a.index() != b.index()) return false;
                      if (const auto* kernel = std::get_if<Kernel>(&a)) {
                        return kernel->patches == std::get<Kernel>(b).patches;
                      }
                      if (const auto* copy = std::get_if<Copy>(&a)) {
                        return same_place(copy->source, std::get<Copy>(b).source) &&
                               same_place(copy->target, std::get<Copy>(b).target);
                      }
                      return same_place(std::get<Fill>(a).target, std::get<Fill>(b).target);
                    });
}

void CommandList::Enqueue(const Driver& driver, const std::vector<DevicePtr>& buffers,
                          Stream stream) {
  const Functions& f = driver.functions();
  for (Command& command : commands_) {
    if (auto* kernel = std::get_if<Kernel>(&command)) {
      for (const Patch& patch : kernel->patches) {
        const DevicePtr value = buffers[patch.address.region] + patch.address.offset;
        std::memcpy(kernel->params[patch.param].data() + patch.position, &value, sizeof(value));
      }
      pointers_.clear();
      for (std::vector<uint8_t>& param : kernel->params) pointers_.push_back(param.data());
      Check(driver,
            f.LaunchKernel(kernel->function, kernel->grid[0], kernel->grid[1], kernel->grid[2],
                           kernel->block[0], kernel->block[1], kernel->block[2],
                           kernel->shared_bytes, stream, pointers_.data(), nullptr),
            "kernel");
    } else if (auto* copy = std::get_if<Copy>(&command)) {
      Check(driver,
            f.MemcpyDtoDAsync(copy->target.Resolve(buffers), copy->source.Resolve(buffers),
                              copy->size, stream),
            "copy");
    } else if (auto* fill = std::get_if<Fill>(&command)) {
      const DevicePtr target = fill->target.Resolve(buffers);
      Result result = kSuccess;
      if (fill->element_size == 1) {
        result =
            f.MemsetD8Async(target, static_cast<unsigned char>(fill->value), fill->count, stream);
      } else if (fill->element_size == 2) {
        result =
            f.MemsetD16Async(target, static_cast<unsigned short>(fill->value), fill->count, stream);
      } else {
        result = f.MemsetD32Async(target, fill->value, fill->count, stream);
      }
      Check(driver, result, "fill");
    }
  }
}

}  // namespace leapp_policy::cuda
