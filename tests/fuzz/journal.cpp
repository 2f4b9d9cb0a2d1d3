// SPDX-License-Identifier: BSL-1.0
//
// A directory of segments made hostile: changed anywhere, cut, swapped, with checksums that are
// right all the same. Opening it gives a journal or an error; what it opens can be opened again,
// and says the same then.
#include <railmq/storage/broker_journal.hpp>
#include <railmq/storage/simulated_disk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace railmq::storage;
using namespace std::chrono_literals;
using railmq::errc;
using railmq::error_code;
using railmq::time_point;
using railmq::core::message_image;

namespace {

constexpr journal_options small{
    .segment_bytes = 4096, .headroom_bytes = 512, .max_record_bytes = 4096};
constexpr journal_id id{1, 2};
using files = std::map<std::string, std::vector<std::byte>>;

void require(bool condition, int line = __builtin_LINE()) {
    if (!condition) {
        std::fprintf(stderr, "journal.cpp:%d\n", line);
        std::abort();
    }
}

struct opened {
    std::unique_ptr<broker_journal> journal{};
    kept_state state{};
    recovery_report report{};
    error_code ec{};
};
opened open_on(simulated_disk& disk) {
    opened o;
    o.journal = open_broker_journal(
        disk.directory(), small, id, time_point{0s}, time_point{1h}, o.state, o.report, o.ec);
    require((o.journal != nullptr) == !o.ec);
    return o;
}

/// Three segments of two queues, of which the first is read no more.
files made_files() {
    simulated_disk disk{1};
    opened o = open_on(disk);
    broker_journal& j = *o.journal;
    std::vector<std::byte> record;
    record_location where;
    error_code ec;
    const auto append = [&] {
        (void)j.append(record, where, ec);
        record.clear();
    };
    const auto queue = [&](std::uint64_t n) {
        entry_writer{record, j.wall()}.queue({n, "q" + std::to_string(n), "bytes", {}, 0, 0});
    };
    const auto image = [](std::uint64_t n) {
        message_image m;
        m.id = m.position = n;
        m.enqueued = time_point{1s};
        return m;
    };
    queue(1);
    queue(2);
    append();
    for (std::uint64_t i = 0; i < 12; ++i) {
        entry_writer w{record, j.wall()};
        w.stored(1 + i % 2, image(i), nullptr, nullptr);
        w.payload(std::vector<std::byte>(200, std::byte{7}));
        append();
        if (i == 5) {
            j.port().roll(ec);
            queue(1);
            entry_writer again{record, j.wall()};
            again.range(1, 0, 6, 1);
            again.listed(image(0), {1, 200}, 210);
            append();
            queue(2);
            append();
            j.port().read_from(2, ec);
        }
    }
    entry_writer w{record, j.wall()};
    w.gone(1, 6, 1);
    w.held(2, 7, 2, 1, time_point{2s});
    append();
    j.port().roll(ec);
    entry_writer{record, j.wall()}.clock(time_point{9s});
    append();
    j.port().wait(j.port().last(), reached::synced, ec);
    require(!ec);
    files all;
    for (const std::string& name : disk.directory().names(ec)) {
        const auto bytes = disk.contents(name);
        auto end = bytes.end(); // without the space that is only reserved
        while (end != bytes.begin() && *(end - 1) == std::byte{0}) {
            --end;
        }
        const auto kept = (static_cast<std::size_t>(end - bytes.begin()) + 15) / 8 * 8;
        all[name].assign(
            bytes.begin(),
            bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kept)));
    }
    return all;
}

/// Makes the checksums right of a header and of what seem to be records behind it.
void mend(std::vector<std::byte>& file) {
    if (file.size() < segment_header::size) {
        return;
    }
    const std::span all{file};
    format::store(all.data() + 60, crc32c{all.first(60)}.value());
    segment_header h;
    if (decode(file, h) != header_state::good) {
        return;
    }
    crc32c chain;
    std::uint64_t records = 0;
    std::uint64_t at = segment_header::size;
    while (at + record_header::size <= file.size()) {
        const auto bytes = all.subspan(at);
        const std::uint64_t size = record_size(format::load<std::uint32_t>(bytes.data() + 4));
        if (size > bytes.size()) {
            return;
        }
        const auto payload = bytes.subspan(record_header::size, size - record_header::size);
        const auto kind = static_cast<record_kind>(format::load<std::uint16_t>(bytes.data() + 12));
        if (kind == record_kind::sealed && payload.size() >= segment_seal::size) {
            const auto seal = encode(segment_seal{records, chain.value()});
            std::copy(seal.begin(), seal.end(), payload.begin());
        }
        format::store(bytes.data() + 8, crc32c{payload}.value());
        format::store(bytes.data(), format::header_crc(bytes, {h.journal, h.number, at}));
        chain.add(bytes.first(4));
        ++records;
        at += size;
    }
}

class input {
public:
    input(const std::uint8_t* data, std::size_t size)
        : in_{data, size} {}
    [[nodiscard]] bool is_over() const { return in_.empty(); }
    std::uint64_t number(std::size_t bytes) {
        std::uint64_t n = 0;
        for (; bytes != 0 && !in_.empty(); --bytes) {
            n = n << 8U | in_.front();
            in_ = in_.subspan(1);
        }
        return n;
    }
    std::span<const std::byte> piece(std::size_t n) {
        const auto got = in_.first(std::min(n, in_.size()));
        in_ = in_.subspan(got.size());
        return std::as_bytes(got);
    }

private:
    std::span<const std::uint8_t> in_;
};

void change(files& all, input& in) {
    const auto file = [&]() -> std::vector<std::byte>& {
        auto it = all.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(in.number(1) % all.size()));
        return it->second;
    };
    while (!in.is_over() && !all.empty()) {
        const std::uint64_t what = in.number(1);
        std::vector<std::byte>& f = file();
        const std::size_t at = f.empty() ? 0 : in.number(2) % f.size();
        const auto put = [&](std::span<const std::byte> bytes) {
            const std::size_t n = std::min(bytes.size(), f.size() - at);
            std::copy_n(bytes.begin(), n, f.begin() + static_cast<std::ptrdiff_t>(at));
        };
        switch (what % 8) {
        case 0: put(in.piece(1)); break;
        case 1: put(in.piece(1 + in.number(1) % 64)); break;
        case 2: f.resize(at); break;
        case 3: f.resize(f.size() + in.number(1)); break;
        case 4: mend(f); break;
        case 5: std::swap(f, file()); break;
        case 6: all.erase(all.begin()); break;
        default: {
            std::vector<std::byte> eight(8);
            format::store(eight.data(), ~std::uint64_t{0} - in.number(1));
            put(eight);
            break;
        }
        }
    }
    if (in.is_over()) {
        for (auto& [name, bytes] : all) {
            mend(bytes);
        }
    }
}

/// What is in all queues; loads each, which may give an error and nothing else.
std::vector<std::pair<std::uint64_t, std::uint64_t>> contents(opened& o) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    std::vector<std::byte> payload;
    for (auto& [number, queue] : o.state.queues) {
        queue.messages.for_each_from(
            0, [&, n = number, &of = queue](std::uint64_t m, const kept_message& k) {
                all.emplace_back(n, m);
                error_code ec;
                message_image image = k.image(m);
                to_broker_time(image, o.journal->wall());
                o.journal->load(n, m, of.record_of(m), k.where.location(), image, payload, ec);
                require(!ec || ec == errc::journal_corrupt || ec == errc::io_error);
                return true;
            });
    }
    return all;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const files made = made_files();
    files all = made;
    input in{data, size};
    const bool is_mended = in.number(1) % 2 == 0;
    change(all, in);
    if (is_mended) {
        for (auto& [name, bytes] : all) {
            mend(bytes);
        }
    }
    simulated_disk disk{1};
    error_code ec;
    for (const auto& [name, bytes] : all) {
        auto directory = disk.directory();
        auto file = directory.open(name, open_mode::create, ec);
        (void)write_at(file, 0, bytes, ec);
        require(!ec);
    }
    opened first = open_on(disk);
    if (first.ec) {
        require(
            first.ec == errc::journal_corrupt || first.ec == errc::invalid_argument ||
            first.ec == errc::io_error);
        for (const auto& [name, bytes] : all) { // and nothing has been changed
            require(std::ranges::equal(disk.contents(name), bytes));
        }
        return 0;
    }
    const auto there = contents(first);
    std::vector<std::uint64_t> segments;
    for (const auto& [number, bytes] : first.journal->port().segments(ec)) {
        segments.push_back(number);
        std::vector<std::byte> payload;
        bool is_data = false;
        record_location at{number, segment_header::size};
        for (int n = 0; at.segment != 0 && n < 1000; ++n) {
            error_code end;
            at = first.journal->next_record(at, payload, is_data, end);
            if (end) {
                break;
            }
        }
    }
    if (size % 2 == 0) {
        first.journal->port().close(ec);
        require(!ec);
    }
    first.journal.reset();
    disk.end_process();

    opened second = open_on(disk);
    if (second.ec) {
        std::fprintf(
            stderr,
            "%s: %s at %llu\n",
            second.ec.message().c_str(),
            second.report.file.c_str(),
            static_cast<unsigned long long>(second.report.offset));
    }
    require(!second.ec);
    require(contents(second) == there);
    require(second.report.epoch > first.report.epoch);
    return 0;
}
