// SPDX-License-Identifier: Apache-2.0
// Without these a damaged object could crash Warp's linker, which trusts its tables.
#include "core/elf_object.h"

#include <elf.h>

#include <cstring>
#include <vector>

#include "test/check.h"

namespace {

// An object of five sections: none, code, symbols, relocations, strings (for all names).
struct Object {
  Elf64_Ehdr header{};
  uint8_t code[16]{};
  Elf64_Sym symbols[2]{};
  Elf64_Rela relocations[1]{};
  char strings[8] = "\0kernel";
  Elf64_Shdr sections[5]{};
};

Object Good() {
  Object o;
  std::memcpy(o.header.e_ident, ELFMAG, SELFMAG);
  o.header.e_ident[EI_CLASS] = ELFCLASS64;
  o.header.e_ident[EI_DATA] = ELFDATA2LSB;
  o.header.e_type = ET_REL;
  o.header.e_machine = EM_X86_64;
  o.header.e_shoff = offsetof(Object, sections);
  o.header.e_shentsize = sizeof(Elf64_Shdr);
  o.header.e_shnum = 5;
  o.header.e_shstrndx = 4;
  o.symbols[1].st_name = 1;
  o.symbols[1].st_shndx = 1;
  o.symbols[1].st_size = 16;
  o.relocations[0].r_offset = 8;
  o.relocations[0].r_info = ELF64_R_INFO(1, R_X86_64_PC32);
  const auto set = [&](int i, uint32_t type, uint64_t offset, uint64_t size, uint64_t entry) {
    o.sections[i].sh_type = type;
    o.sections[i].sh_offset = offset;
    o.sections[i].sh_size = size;
    o.sections[i].sh_entsize = entry;
  };
  set(1, SHT_PROGBITS, offsetof(Object, code), sizeof(o.code), 0);
  set(2, SHT_SYMTAB, offsetof(Object, symbols), sizeof(o.symbols), sizeof(Elf64_Sym));
  set(3, SHT_RELA, offsetof(Object, relocations), sizeof(o.relocations), sizeof(Elf64_Rela));
  set(4, SHT_STRTAB, offsetof(Object, strings), sizeof(o.strings), 0);
  o.sections[2].sh_link = 4;
  o.sections[3].sh_link = 2;
  o.sections[3].sh_info = 1;
  return o;
}

std::string Damage(const Object& o) {
  return leapp_policy::FindElfDamage({reinterpret_cast<const uint8_t*>(&o), sizeof(o)});
}

template <typename Change>
bool Says(const std::string& text, Change&& change) {
  Object o = Good();
  change(o);
  return Damage(o).find(text) != std::string::npos;
}

void TestRules() {
  CHECK(Damage(Good()).empty());
  CHECK(Says("no ELF object", [](Object& o) { o.header.e_ident[0] = 0; }));
  CHECK(Says("no relocatable object", [](Object& o) { o.header.e_type = ET_DYN; }));
  CHECK(Says("section table", [](Object& o) { o.header.e_shoff = UINT64_MAX - 8; }));
  CHECK(Says("section table", [](Object& o) { o.header.e_shnum = 6; }));
  CHECK(Says("section table", [](Object& o) { o.header.e_shstrndx = 5; }));
  CHECK(Says("section 1 is outside the file", [](Object& o) { o.sections[1].sh_size = 1 << 20; }));
  CHECK(Says("section 2 is outside", [](Object& o) { o.sections[2].sh_offset = UINT64_MAX - 7; }));
  CHECK(Says("does not exist", [](Object& o) { o.sections[2].sh_link = 5; }));
  CHECK(Says("section 1 has its name", [](Object& o) { o.sections[1].sh_name = 8; }));
  CHECK(Says("alignment", [](Object& o) { o.sections[1].sh_addralign = 3; }));
  CHECK(Says("no table of symbols", [](Object& o) { o.sections[2].sh_entsize = 8; }));
  CHECK(Says("symbol 1 has its name", [](Object& o) { o.symbols[1].st_name = 8; }));
  CHECK(Says("has its name outside", [](Object& o) { o.strings[7] = 'x'; }));
  CHECK(Says("symbol 1 is in a section", [](Object& o) { o.symbols[1].st_shndx = 5; }));
  CHECK(Says("symbol 1 is outside its", [](Object& o) { o.symbols[1].st_value = 1; }));
  CHECK(Says("symbol 1 is outside its", [](Object& o) { o.symbols[1].st_value = 17; }));
  CHECK(Says("no table of relocations", [](Object& o) { o.sections[3].sh_info = 5; }));
  CHECK(Says("no table of relocations", [](Object& o) { o.sections[3].sh_link = 1; }));
  CHECK(Says("relocation 0", [](Object& o) { o.relocations[0].r_offset = 16; }));
  CHECK(Says("relocation 0", [](Object& o) { o.relocations[0].r_info = ELF64_R_INFO(2, 2); }));
}

// No single-bit error and no truncation makes the checker read outside the bytes (a sanitizer
// sees).
void TestEveryBit() {
  const Object good = Good();
  std::vector<uint8_t> bytes(sizeof(good));
  for (size_t bit = 0; bit < 8 * sizeof(good); ++bit) {
    std::memcpy(bytes.data(), &good, sizeof(good));
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1 << bit % 8);
    (void)leapp_policy::FindElfDamage({bytes.data(), bytes.size()});
  }
  std::memcpy(bytes.data(), &good, sizeof(good));
  for (size_t size = 0; size < sizeof(good); ++size) {
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + size);
    CHECK(!leapp_policy::FindElfDamage({cut.data(), cut.size()}).empty());
  }
}

}  // namespace

int main() {
  TestRules();
  TestEveryBit();
  return leapp_policy::test::Result();
}
