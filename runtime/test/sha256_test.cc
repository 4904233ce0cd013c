// SPDX-License-Identifier: Apache-2.0
// Without these a damaged bundle could pass its digest, or a sound one be refused.
#include "core/sha256.h"

#include "test/check.h"

namespace {

std::string Hash(const std::string& text) {
  return leapp_policy::Sha256Hex({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

int main() {
  // NIST's published example vectors for SHA-256.
  CHECK(Hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(Hash(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  return leapp_policy::test::Result();
}
