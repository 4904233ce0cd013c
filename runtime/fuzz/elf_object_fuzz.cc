// SPDX-License-Identifier: Apache-2.0
// The check of an object's tables reads nothing outside of the object and passes no foreign bytes.
#include "core/elf_object.h"
#include "fuzz/fuzz.h"

using leapp_policy::fuzz::Expect;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const leapp_policy::ByteSpan object{data, size};
  const std::string damage = leapp_policy::FindElfDamage(object);
  const bool is_elf = leapp_policy::ElfMachine(object).has_value();
  Expect(is_elf || !damage.empty(), "what is no ELF object is damaged");
  return 0;
}
