// SPDX-License-Identifier: Apache-2.0
#include "core/elf_object.h"

#include <elf.h>

#include <cstring>
#include <vector>

namespace leapp_policy {
namespace {

constexpr uint64_t kMaxAlignment = 1 << 16;

bool Fits(ByteSpan bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size && size <= bytes.size - offset;
}

template <typename T>
T Read(ByteSpan bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data + offset, sizeof(value));
  return value;
}

std::string Numbered(const char* what, uint64_t index) {
  return std::string(what) + " " + std::to_string(index);
}

// One pass over an object's tables. The object is borrowed for the call.
class Checker {
 public:
  explicit Checker(ByteSpan object) : object_(object) {}

  std::string Run() {
    std::string damage = CheckHeader();
    for (size_t i = 0; i < sections_.size() && damage.empty(); ++i) damage = CheckSection(i);
    // Symbols and relocations point into other sections, so that all of those come first.
    for (size_t i = 0; i < sections_.size() && damage.empty(); ++i) damage = CheckTable(i);
    return damage;
  }

 private:
  std::string CheckHeader() {
    const auto header = Read<Elf64_Ehdr>(object_, 0);
    if (header.e_type != ET_REL) return "it is no relocatable object";
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
        header.e_shstrndx >= header.e_shnum ||
        !Fits(object_, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
      return "its section table is outside the file";
    }
    for (uint16_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(
          Read<Elf64_Shdr>(object_, header.e_shoff + uint64_t{i} * sizeof(Elf64_Shdr)));
    }
    names_ = header.e_shstrndx;
    return "";
  }

  std::string CheckSection(size_t index) const {
    const Elf64_Shdr& section = sections_[index];
    const bool has_bytes = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (has_bytes && !Fits(object_, section.sh_offset, section.sh_size)) {
      return Numbered("section", index) + " is outside the file";
    }
    if (section.sh_link >= sections_.size()) {
      return Numbered("section", index) + " refers to a section that does not exist";
    }
    if (!IsName(names_, section.sh_name)) {
      return Numbered("section", index) + " has its name outside the string table";
    }
    const uint64_t align = section.sh_addralign;
    if (align > kMaxAlignment || (align & (align - 1)) != 0) {
      return Numbered("section", index) + " has no valid alignment";
    }
    return "";
  }

  // Whether `offset` starts a NUL-terminated text in the string table `table`.
  bool IsName(size_t table, uint64_t offset) const {
    const Elf64_Shdr& strings = sections_[table];
    return strings.sh_type == SHT_STRTAB && Fits(object_, strings.sh_offset, strings.sh_size) &&
           offset < strings.sh_size &&
           object_.data[strings.sh_offset + strings.sh_size - 1] == '\0';
  }

  std::string CheckTable(size_t index) const {
    switch (sections_[index].sh_type) {
      case SHT_SYMTAB:
        return CheckSymbols(index);
      case SHT_RELA:
        return CheckRelocations(index);
      default:
        return "";
    }
  }

  std::string CheckSymbols(size_t index) const {
    const Elf64_Shdr& table = sections_[index];
    if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_size % sizeof(Elf64_Sym) != 0) {
      return Numbered("section", index) + " is no table of symbols";
    }
    const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
    for (uint64_t i = 0; i < count; ++i) {
      const auto symbol = Read<Elf64_Sym>(object_, table.sh_offset + i * sizeof(Elf64_Sym));
      if (!IsName(table.sh_link, symbol.st_name)) {
        return Numbered("symbol", i) + " has its name outside the string table";
      }
      const bool is_special = symbol.st_shndx == SHN_ABS || symbol.st_shndx == SHN_COMMON;
      if (is_special || symbol.st_shndx == SHN_UNDEF) continue;
      if (symbol.st_shndx >= sections_.size()) {
        return Numbered("symbol", i) + " is in a section that does not exist";
      }
      const uint64_t room = sections_[symbol.st_shndx].sh_size;
      if (symbol.st_value > room || symbol.st_size > room - symbol.st_value) {
        return Numbered("symbol", i) + " is outside its section";
      }
    }
    return "";
  }

  std::string CheckRelocations(size_t index) const {
    const Elf64_Shdr& table = sections_[index];
    const Elf64_Shdr& symbols = sections_[table.sh_link];
    if (table.sh_entsize != sizeof(Elf64_Rela) || table.sh_size % sizeof(Elf64_Rela) != 0 ||
        symbols.sh_type != SHT_SYMTAB || table.sh_info >= sections_.size()) {
      return Numbered("section", index) + " is no table of relocations";
    }
    const uint64_t num_symbols = symbols.sh_size / sizeof(Elf64_Sym);
    const uint64_t room = sections_[table.sh_info].sh_size;
    for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
      const auto entry = Read<Elf64_Rela>(object_, table.sh_offset + i * sizeof(Elf64_Rela));
      if (ELF64_R_SYM(entry.r_info) >= num_symbols || entry.r_offset >= room) {
        return Numbered("relocation", i) + " points outside its section or symbol table";
      }
    }
    return "";
  }

  ByteSpan object_;
  std::vector<Elf64_Shdr> sections_;
  size_t names_ = 0;
};

}  // namespace

std::optional<unsigned> ElfMachine(ByteSpan object) {
  const bool is_elf = object.size >= sizeof(Elf64_Ehdr) &&
                      std::memcmp(object.data, ELFMAG, SELFMAG) == 0 &&
                      object.data[EI_CLASS] == ELFCLASS64 && object.data[EI_DATA] == ELFDATA2LSB;
  if (!is_elf) return std::nullopt;
  return Read<Elf64_Ehdr>(object, 0).e_machine;
}

std::string FindElfDamage(ByteSpan object) {
  if (!ElfMachine(object)) return "it is no ELF object";
  return Checker(object).Run();
}

}  // namespace leapp_policy
