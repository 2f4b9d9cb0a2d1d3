// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>

#include <sys/mman.h>
#include <unistd.h>

namespace railmq::storage {

/// Tells the process that made it from those that were forked from that one, for the price of
/// reading a byte: `getpid` is a system call. The byte lies in a page that the kernel wipes in a
/// child (`MADV_WIPEONFORK`, since Linux 4.14); without that, it is the process id that tells.
///
/// Thread safety: `is_this_process` may be called by any thread.
class process_mark {
public:
    /// Of no process.
    process_mark() = default;

    /// Of the calling process.
    [[nodiscard]] static process_mark here() noexcept {
        process_mark mark;
        mark.maker_ = ::getpid();
#ifdef MADV_WIPEONFORK
        void* const at =
            ::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) {
            mark.page_.reset(static_cast<unsigned char*>(at));
            if (::madvise(at, 1, MADV_WIPEONFORK) == 0) {
                *mark.page_ = 1;
            } else {
                mark.page_.reset();
            }
        }
#endif
        return mark;
    }

    [[nodiscard]] bool is_this_process() const noexcept {
        return page_ != nullptr ? *page_ != 0 : maker_ != 0 && maker_ == ::getpid();
    }

private:
    struct unmap {
        void operator()(unsigned char* page) const noexcept { ::munmap(page, 1); }
    };
    ::pid_t maker_ = 0;
    std::unique_ptr<unsigned char, unmap> page_{};
};

} // namespace railmq::storage
