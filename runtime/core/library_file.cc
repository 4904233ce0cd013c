// SPDX-License-Identifier: Apache-2.0
#include "core/library_file.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace leapp_policy {
namespace {

template <typename T>
bool ReadAt(std::ifstream* file, uint64_t offset, T* out) {
  file->seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file->read(reinterpret_cast<char*>(out), sizeof(T)));
}

std::string EndsAt(uint64_t size, uint64_t expected) {
  return "it ends at byte " + std::to_string(size) + " of " + std::to_string(expected);
}

}  // namespace

std::string FindMissingEnd(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff end = file.tellg();
  Elf64_Ehdr header{};
  if (!file || end < 0 || !ReadAt(&file, 0, &header)) return "";
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return "";
  }
  const uint64_t size = static_cast<uint64_t>(end);
  const uint64_t table = header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (table > size) return EndsAt(size, table);

  // The table of sections is what a linker writes last.
  uint64_t needed = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!ReadAt(&file, header.e_phoff + i * sizeof(Elf64_Phdr), &segment)) return "";
    if (segment.p_type == PT_LOAD) needed = std::max(needed, segment.p_offset + segment.p_filesz);
  }
  return needed > size ? EndsAt(size, needed) : "";
}

}  // namespace leapp_policy
