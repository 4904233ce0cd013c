# SPDX-License-Identifier: Apache-2.0
# Toolchain: cross-compile for 64-bit Arm with Debian's compiler (apt install g++-aarch64-linux-gnu). ctest
# runs the programs under qemu's user mode where that is installed (apt install qemu-user-static).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# The target's libraries come from the cross compiler; programs (Python, for the JSON header) are the host's.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)

find_program(LEAPP_POLICY_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(LEAPP_POLICY_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${LEAPP_POLICY_QEMU};-L;/usr/aarch64-linux-gnu")
endif()
