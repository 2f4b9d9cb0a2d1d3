# SPDX-License-Identifier: BSL-1.0
#
# railmq_third_party(<found> <missing> <source>)
#
# Follows the #include lines of a source through our own headers and answers which libraries
# beyond Boost it needs: those that are installed, as targets or files to link, and those that
# are not, by name.

# include prefix | header to look for | CMake package | target | library file
set(RAILMQ_THIRD_PARTY
    "spdlog/|spdlog/spdlog.h|spdlog|spdlog::spdlog|"
    "fmt/|fmt/core.h|fmt|fmt::fmt|"
    "librdkafka/|librdkafka/rdkafka.h|||rdkafka"
    "amqp|amqp.h|||rabbitmq"
    "nats/|nats/nats.h|||nats"
    "sqlite3.h|sqlite3.h|||sqlite3"
    "rapidcheck|rapidcheck.h|rapidcheck|rapidcheck|"
    "nlohmann/|nlohmann/json.hpp|nlohmann_json|nlohmann_json::nlohmann_json|"
    "catch2/|catch2/catch.hpp|Catch2|Catch2::Catch2|")

# The third-party prefixes that one file, and the headers of ours that it includes, mention.
function(railmq_scan_includes result source)
    set(include_dir "${PROJECT_SOURCE_DIR}/include")
    set(pending "${source}")
    set(seen "")
    set(prefixes "")
    while(pending)
        list(POP_FRONT pending file)
        if(file IN_LIST seen OR NOT EXISTS "${file}")
            continue()
        endif()
        list(APPEND seen "${file}")
        get_property(known GLOBAL PROPERTY "railmq_includes:${file}" SET)
        if(NOT known)
            file(STRINGS "${file}" lines REGEX "^[ \t]*#[ \t]*include")
            string(REGEX MATCHALL "[<\"][^>\"<;]+[>\"]" names "${lines}")
            set_property(GLOBAL PROPERTY "railmq_includes:${file}" "${names}")
        endif()
        get_property(names GLOBAL PROPERTY "railmq_includes:${file}")
        cmake_path(GET file PARENT_PATH folder)
        foreach(name IN LISTS names)
            string(REGEX REPLACE "[<>\"]" "" bare "${name}")
            if(bare MATCHES "^railmq/")
                list(APPEND pending "${include_dir}/${bare}")
            elseif(name MATCHES "^\"")
                list(APPEND pending "${folder}/${bare}" "${PROJECT_SOURCE_DIR}/tests/${bare}")
            else()
                foreach(entry IN LISTS RAILMQ_THIRD_PARTY)
                    string(REGEX REPLACE "[|].*" "" prefix "${entry}")
                    string(FIND "${bare}" "${prefix}" at)
                    if(at EQUAL 0)
                        list(APPEND prefixes "${prefix}")
                    endif()
                endforeach()
            endif()
        endforeach()
    endwhile()
    list(REMOVE_DUPLICATES prefixes)
    set(${result} "${prefixes}" PARENT_SCOPE)
endfunction()

function(railmq_third_party found_result missing_result source)
    set(found "")
    set(missing "")
    railmq_scan_includes(prefixes "${source}")
    foreach(entry IN LISTS RAILMQ_THIRD_PARTY)
        string(REPLACE "|" ";" fields "${entry}")
        list(GET fields 0 prefix)
        if(NOT prefix IN_LIST prefixes)
            continue()
        endif()
        list(GET fields 1 header)
        list(GET fields 2 package)
        list(GET fields 3 target)
        list(GET fields 4 library)
        if(package)
            if(NOT TARGET ${target})
                find_package(${package} QUIET)
            endif()
            if(TARGET ${target})
                list(APPEND found ${target})
            else()
                list(APPEND missing ${package})
            endif()
        else()
            find_path(RAILMQ_INCLUDE_${library} "${header}")
            find_library(RAILMQ_LIBRARY_${library} ${library})
            mark_as_advanced(RAILMQ_INCLUDE_${library} RAILMQ_LIBRARY_${library})
            if(RAILMQ_INCLUDE_${library} AND RAILMQ_LIBRARY_${library})
                list(APPEND found "${RAILMQ_LIBRARY_${library}}")
            else()
                list(APPEND missing ${library})
            endif()
        endif()
    endforeach()
    set(${found_result} "${found}" PARENT_SCOPE)
    set(${missing_result} "${missing}" PARENT_SCOPE)
endfunction()
