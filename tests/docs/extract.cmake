# SPDX-License-Identifier: BSL-1.0
#
# railmq_extract_programs(<result> <page.md> <prefix>): writes <prefix>_<n>.cpp for the n-th
# ```cpp block of the page if that block has a main function, and answers with these files.
# A #line directive makes the compiler's messages point into the page.

function(railmq_extract_programs result page prefix)
    file(READ "${page}" rest)
    set(rest "\n${rest}")
    set(fence "\n```")
    set(line 0)
    set(number 0)
    set(files "")
    while(TRUE)
        string(FIND "${rest}" "${fence}cpp" at)
        if(at EQUAL -1)
            break()
        endif()
        string(SUBSTRING "${rest}" 0 ${at} before)
        string(SUBSTRING "${rest}" ${at} -1 rest)
        string(SUBSTRING "${rest}" 1 -1 rest)
        string(FIND "${rest}" "\n" at)
        string(SUBSTRING "${rest}" ${at} -1 rest)
        string(FIND "${rest}" "${fence}" end)
        if(end EQUAL -1)
            message(FATAL_ERROR "${page}: a \`\`\`cpp block does not end")
        endif()
        string(SUBSTRING "${rest}" 0 ${end} block)
        string(SUBSTRING "${rest}" ${end} -1 rest)
        string(SUBSTRING "${rest}" 4 -1 rest) # past the closing fence

        railmq_count_lines(count "${before}")
        math(EXPR line "${line} + ${count} + 1")
        math(EXPR number "${number} + 1")
        if(block MATCHES "int main\\(")
            math(EXPR first "${line} + 1")
            set(file "${prefix}_${number}.cpp")
            file(CONFIGURE OUTPUT "${file}" @ONLY CONTENT "#line @first@ \"@page@\"@block@\n")
            list(APPEND files "${file}")
        endif()
        railmq_count_lines(count "${block}")
        math(EXPR line "${line} + ${count} + 1") # the closing fence
    endwhile()
    set(${result} "${files}" PARENT_SCOPE)
endfunction()

# The number of line ends in a text.
function(railmq_count_lines result text)
    string(LENGTH "${text}" with)
    string(REPLACE "\n" "" text "${text}")
    string(LENGTH "${text}" without)
    math(EXPR count "${with} - ${without}")
    set(${result} ${count} PARENT_SCOPE)
endfunction()
