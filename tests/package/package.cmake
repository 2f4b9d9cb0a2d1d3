# SPDX-License-Identifier: BSL-1.0
#
# Builds and runs the consumer project in one way: see CMakeLists.txt for the arguments.
cmake_minimum_required(VERSION 3.23)

set(consumer "${CMAKE_CURRENT_LIST_DIR}/consumer")
set(build "${WORK}/build")
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${build}")

function(run)
    execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output
                    ERROR_VARIABLE output WORKING_DIRECTORY "${build}")
    if(NOT status EQUAL 0)
        list(JOIN ARGV " " line)
        message(FATAL_ERROR "failed (${status}): ${line}\n${output}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

# Installs RailMQ, then moves the tree, which must not hold the path of where it was.
function(install_and_move prefix)
    run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/railmq" -G "${GENERATOR}"
        "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_INSTALL_PREFIX=${WORK}/first"
        "-DBoost_DIR=${BOOST}" -DRAILMQ_TESTS=OFF -DRAILMQ_EXAMPLES=OFF)
    run("${CMAKE_COMMAND}" --install "${WORK}/railmq")
    file(RENAME "${WORK}/first" "${prefix}")

    file(GLOB_RECURSE installed "${prefix}/*")
    foreach(file IN LISTS installed)
        file(READ "${file}" content)
        foreach(path IN ITEMS "${WORK}" "${SOURCE}")
            string(FIND "${content}" "${path}" position)
            if(NOT position EQUAL -1)
                message(FATAL_ERROR "${file} contains ${path}")
            endif()
        endforeach()
    endforeach()

    # Every public header has to be there.
    file(GLOB_RECURSE headers RELATIVE "${SOURCE}/include" "${SOURCE}/include/railmq/*.hpp")
    foreach(header IN LISTS headers)
        if(NOT EXISTS "${prefix}/include/${header}")
            message(FATAL_ERROR "not installed: ${header}")
        endif()
    endforeach()
endfunction()

function(build_and_run)
    run("${CMAKE_COMMAND}" -S "${consumer}" -B "${build}" -G "${GENERATOR}"
        "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CCACHE}"
        "-DKIND=${KIND}" "-DVERSION=${VERSION}" "-DBoost_DIR=${BOOST}"
        -DCMAKE_BUILD_TYPE=Debug ${ARGN})
    run("${CMAKE_COMMAND}" --build "${build}")
    run("${build}/consumer")
endfunction()

set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wold-style-cast -Werror)

if(KIND STREQUAL "add_subdirectory")
    build_and_run("-DRAILMQ_SOURCE=${SOURCE}")
elseif(KIND STREQUAL "fetch_content")
    build_and_run("-DFETCHCONTENT_SOURCE_DIR_RAILMQ=${SOURCE}")
elseif(KIND STREQUAL "find_package")
    install_and_move("${WORK}/second")
    build_and_run("-DCMAKE_PREFIX_PATH=${WORK}/second")

    # Before 1.0 another minor version is another interface.
    file(WRITE "${WORK}/other/CMakeLists.txt"
         "cmake_minimum_required(VERSION 3.23)\nproject(other LANGUAGES NONE)\n"
         "find_package(railmq 0.999 CONFIG QUIET)\n"
         "if(railmq_FOUND)\nmessage(FATAL_ERROR \"0.999 is found\")\nendif()\n")
    run("${CMAKE_COMMAND}" -S "${WORK}/other" -B "${WORK}/other/build" -G "${GENERATOR}"
        "-DCMAKE_PREFIX_PATH=${WORK}/second")
elseif(KIND STREQUAL "pkg_config")
    install_and_move("${WORK}/second")
    set(ENV{PKG_CONFIG_PATH} "${WORK}/second/share/pkgconfig")
    run("${PKG_CONFIG}" --modversion railmq)
    string(STRIP "${output}" version)
    if(NOT version STREQUAL VERSION)
        message(FATAL_ERROR "railmq.pc says version ${version}, not ${VERSION}")
    endif()
    run("${PKG_CONFIG}" --cflags --libs railmq)
    separate_arguments(flags UNIX_COMMAND "${output}")
    foreach(name IN ITEMS main second)
        run(${CCACHE} "${COMPILER}" -std=c++20 ${warnings} ${flags} -c "${consumer}/${name}.cpp" -o
            ${name}.o)
    endforeach()
    run("${COMPILER}" main.o second.o ${flags} -o consumer)
    run("${build}/consumer")
elseif(KIND STREQUAL "one_definition")
    # Two translation units with different options: link-time optimisation compares their types.
    set(flags -std=c++20 "-I${SOURCE}/include" -pthread)
    if(COMPILER_ID STREQUAL "GNU")
        list(APPEND flags -flto -Wodr -Werror)
    endif()
    run(${CCACHE} "${COMPILER}" ${flags} -O0 -c "${consumer}/main.cpp" -o main.o)
    run(${CCACHE} "${COMPILER}" ${flags} -O1 -DNDEBUG -c "${consumer}/second.cpp" -o second.o)
    run("${COMPILER}" ${flags} main.o second.o -o consumer)
    run("${build}/consumer")
endif()
