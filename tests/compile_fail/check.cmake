# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DSNIPPET=... [-DHEADER=...] [-DINCLUDES=...] [-DSYSTEM_INCLUDES=...]
#       -P check.cmake
# Without a snippet it precompiles the header, which the snippets then take.

set(command "${COMPILER}" -std=c++20 -Wall -Wextra)
foreach(directory IN LISTS INCLUDES)
    list(APPEND command "-I${directory}")
endforeach()
foreach(directory IN LISTS SYSTEM_INCLUDES)
    if(NOT directory STREQUAL "/usr/include")
        list(APPEND command -isystem "${directory}")
    endif()
endforeach()
set(ENV{LC_ALL} C)

if(NOT SNIPPET)
    # By this name g++ and Clang find it when they are told to include the header.
    execute_process(COMMAND ${command} -x c++-header "${HEADER}" -o "${HEADER}.gch"
                            COMMAND_ERROR_IS_FATAL ANY)
    return()
endif()

file(STRINGS "${SNIPPET}" first LIMIT_COUNT 1)
if(NOT first MATCHES "^// expect: (.+)$")
    message(FATAL_ERROR "The first line has to be '// expect: <text>': ${SNIPPET}")
endif()
set(expected "${CMAKE_MATCH_1}")
if(HEADER)
    list(APPEND command -include "${HEADER}")
endif()
list(APPEND command -fsyntax-only)

execute_process(COMMAND ${command} -DRAILMQ_CONTROL "${SNIPPET}" RESULT_VARIABLE status
                ERROR_VARIABLE errors OUTPUT_QUIET)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "The control does not compile: ${SNIPPET}\n${errors}")
endif()

execute_process(COMMAND ${command} "${SNIPPET}" RESULT_VARIABLE status ERROR_VARIABLE errors
                OUTPUT_QUIET)
if(status EQUAL 0)
    message(FATAL_ERROR "It compiles, but must not: ${SNIPPET}")
endif()
string(REPLACE " | " ";" texts "${expected}") # compilers differ in their words
set(is_said FALSE)
foreach(text IN LISTS texts)
    string(FIND "${errors}" "${text}" position)
    if(NOT position EQUAL -1)
        set(is_said TRUE)
    endif()
endforeach()
if(NOT is_said)
    message(FATAL_ERROR "The compiler does not say '${expected}': ${SNIPPET}\n${errors}")
endif()
message(STATUS "refused as expected: ${expected}")
