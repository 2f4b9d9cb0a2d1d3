// SPDX-License-Identifier: BSL-1.0
//
// A segment file of any content: its reader stays within it, and believes nothing.
#include <railmq/storage/segment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

using namespace railmq::storage;

namespace {

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

void read(std::span<const std::byte> file, const segment_header& header) {
    segment_reader reader{file, header};
    std::uint64_t end = segment_header::size;
    while (const auto record = reader.next()) {
        require(record->offset == end);
        require(record->payload.data() >= file.data());
        require(record->payload.data() + record->payload.size() <= file.data() + file.size());
        end += record_size(record->header.length);
        require(reader.offset() == end && end <= file.size());
    }
    require(reader.seal().records <= file.size() / record_header::size);
    (void)reader.look_behind();
}

/// Makes the header's checksum right where a record seems to begin, so that what the header says
/// is looked at, too.
void mend(std::vector<std::byte>& file, const segment_header& header) {
    std::uint64_t at = segment_header::size;
    while (at + record_header::size <= file.size()) {
        auto bytes = std::span{file}.subspan(at);
        const std::uint64_t size = record_size(format::load<std::uint32_t>(bytes.data() + 4));
        if (size <= bytes.size()) {
            const auto stored = bytes.subspan(record_header::size, size - record_header::size);
            format::store(bytes.data() + 8, crc32c{stored}.value());
        }
        format::store(bytes.data(), format::header_crc(bytes, {header.journal, header.number, at}));
        at += size;
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span{data, size});
    segment_header header;
    if (decode(bytes, header) == header_state::good) {
        read(bytes, header);
    }
    header = {{1, 2}, 3, 4, 1};
    read(bytes, header);

    std::vector<std::byte> file(bytes.begin(), bytes.end());
    mend(file, header);
    read(file, header);

    const std::string_view name{reinterpret_cast<const char*>(data), size};
    if (const auto number = segment_number(name)) {
        require(segment_name(*number) == name);
    }
    return 0;
}
