# SPDX-License-Identifier: Apache-2.0
# Finds the folder of nlohmann/json.hpp without a network: the cache variable, the Python package
# nlohmann-json, an installed CMake package, the compiler's own folders.

function(leapp_policy_find_json out)
  set(header "nlohmann/json.hpp")
  if(LEAPP_POLICY_JSON_INCLUDE_DIR)
    if(NOT EXISTS "${LEAPP_POLICY_JSON_INCLUDE_DIR}/${header}")
      message(FATAL_ERROR
        "LEAPP_POLICY_JSON_INCLUDE_DIR is '${LEAPP_POLICY_JSON_INCLUDE_DIR}', which holds no '${header}'.")
    endif()
    set(${out} "${LEAPP_POLICY_JSON_INCLUDE_DIR}" PARENT_SCOPE)
    return()
  endif()

  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
        "import pathlib, nlohmann_json; print(pathlib.Path(nlohmann_json.__file__).parent / 'include')"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND EXISTS "${folder}/${header}")
      set(${out} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endif()

  find_package(nlohmann_json QUIET)
  if(TARGET nlohmann_json::nlohmann_json)
    get_target_property(folder nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
    set(${out} "${folder}" PARENT_SCOPE)
    return()
  endif()

  find_path(LEAPP_POLICY_JSON_SYSTEM_DIR ${header})
  if(LEAPP_POLICY_JSON_SYSTEM_DIR)
    set(${out} "${LEAPP_POLICY_JSON_SYSTEM_DIR}" PARENT_SCOPE)
    return()
  endif()

  message(FATAL_ERROR
    "The header '${header}' was not found; run 'pip install nlohmann-json', install your system's "
    "nlohmann-json package, or pass -DLEAPP_POLICY_JSON_INCLUDE_DIR=<folder>.")
endfunction()
