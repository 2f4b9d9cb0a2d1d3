// SPDX-License-Identifier: BSL-1.0
//
// A group and its members, who do as they are told, or late, or not at all: they join and leave,
// die in silence, come back under their names, confirm and commit with old generations, and
// partitions and subscriptions change meanwhile. The model is what the members know, from the
// decisions alone. After every step nobody works on what somebody else works on.
//
// RC_PARAMS="max_success=100000" in the environment makes it a long run.
#include <railmq/core/group_coordinator.hpp>
#include <railmq/core/group_offsets.hpp>

#include "support/catch.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using railmq::assignor;
using railmq::duration;
using railmq::errc;
using railmq::member_options;
using railmq::never;
using railmq::time_point;
using railmq::core::generation_type;
using railmq::core::group_coordinator;
using railmq::core::group_decision_list;
using railmq::core::group_offsets;
using railmq::core::group_state;
using railmq::core::member_id;
using railmq::core::member_record;
using railmq::core::nobody;
using railmq::core::offset_commit;
using railmq::core::partition_list;
using railmq::core::removal_reason;
using railmq::core::rewinding;
using railmq::core::topic_id;
using railmq::core::topic_partition;
using railmq::core::topic_size;
namespace decisions = railmq::core::group_decisions;

namespace {

constexpr duration session_timeout = 10s;
constexpr duration max_poll_interval = 25s;
constexpr duration rebalance_timeout = 12s;
constexpr std::size_t max_members = 7;
constexpr std::uint32_t max_partitions = 9;
constexpr std::array<topic_id, 2> all_topics{topic_id{1}, topic_id{2}};

void require(bool condition, const char* what) {
    if (!condition) {
        RC_FAIL(std::string{what});
    }
}

struct step {
    int what;
    int a;
    int b;
};
std::ostream& operator<<(std::ostream& out, const step& s) {
    return out << '{' << s.what << ", " << s.a << ", " << s.b << '}';
}

struct setting {
    assignor how;
    bool waits;
    bool mixed;
};
std::ostream& operator<<(std::ostream& out, const setting& s) {
    return out << railmq::to_string(s.how) << (s.waits ? ", waits" : "")
               << (s.mixed ? ", mixed subscriptions" : "");
}

/// What a member knows of itself.
struct handle {
    member_id id{};
    std::string name{};
    std::vector<topic_id> topics{};
    generation_type generation = 0;
    std::set<topic_partition> working{};
    std::set<topic_partition> asked{}; ///< Of these, what it has to let go of.
    time_point last_seen{};
    time_point last_poll{};
    time_point asked_at = never;
    bool is_dead = false; ///< It says nothing more, and nobody knows.
    bool is_away = false;
    bool is_gone = false;
};

/// What was really tried.
struct tally {
    std::size_t rebalances = 0;
    std::size_t revocations = 0;
    std::size_t late_confirmations = 0;
    std::size_t commits = 0;
    std::size_t stale_commits = 0;
    std::size_t stable = 0; ///< Steps after which the group was stable and had members.
    std::size_t session_timeouts = 0;
    std::size_t poll_timeouts = 0;
    std::size_t rebalance_timeouts = 0;
    std::size_t takeovers = 0;
    std::size_t in_the_middle = 0; ///< Rebalances that began while something was to be confirmed.

    tally& operator+=(const tally& t) {
        rebalances += t.rebalances;
        revocations += t.revocations;
        late_confirmations += t.late_confirmations;
        commits += t.commits;
        stale_commits += t.stale_commits;
        stable += t.stable;
        session_timeouts += t.session_timeouts;
        poll_timeouts += t.poll_timeouts;
        rebalance_timeouts += t.rebalance_timeouts;
        takeovers += t.takeovers;
        in_the_middle += t.in_the_middle;
        return *this;
    }
};

class world {
public:
    explicit world(const setting& s)
        : setting_{s}
        , group_{
              {.assignor = s.how,
               .initial_rebalance_delay = s.waits ? 3s : 0s,
               .rebalance_timeout = rebalance_timeout}} {
        for (const topic_id t : all_topics) {
            set_partitions(t, 3);
        }
    }

    void run(const step& s) {
        const bool takes_time = s.what == 0 || s.what == 9 || s.what == 10;
        advance(takes_time ? s.b * duration{50ms} : duration{s.b % 7});
        switch (s.what) {
        case 0: break;
        case 1:
        case 2: join(s.what == 2 ? s.a % 3 : -1, s.b); break;
        case 3:
            if (handle* const h = pick(s.a)) leave(*h);
            break;
        case 4:
            if (handle* const h = pick(s.a)) h->is_dead = true;
            break;
        case 5:
        case 6:
        case 7:
            for (handle& h : handles_) {
                if (!h.asked.empty() && !h.is_dead && !h.is_away && (s.b + s.a) % 3 != 0) {
                    confirm(h, h.generation);
                    break;
                }
            }
            break;
        case 8:
            if (handle* const h = any(s.a)) confirm(*h, h->generation - (s.b % 2 == 0 ? 1U : 0U));
            break;
        case 9:
        case 10:
            for (handle& h : handles_) {
                if (is_alive(h)) alive(h, s.a % 4 == 0);
            }
            break;
        case 11:
        case 12:
            if (handle* const h = pick(s.a)) commit(*h, h->generation, s.b);
            break;
        case 13:
        case 14:
            if (handle* const h = any(s.a)) {
                commit(*h, s.b % 3 == 0 ? group_.generation() : h->generation, s.b);
            }
            break;
        case 15:
            if (s.b % 8 == 0) {
                set_partitions(topic(s.a), static_cast<std::uint32_t>(s.b / 8) % 4);
            } else {
                const topic_id t = topic(s.a);
                set_partitions(t, std::min(max_partitions, partitions_[t] + 1));
            }
            break;
        case 16:
            if (handle* const h = pick(s.a)) subscribe(*h, s.b);
            break;
        default:
            if (s.b % 4 == 0) {
                const errc e = group_.remove_instance(instance(s.a % 3), now_, out_);
                require(e == errc{} || e == errc::not_found, "remove_instance");
                carry_out();
            }
            break;
        }
        check();
    }

    /// Everybody does what it should: after a while nothing is left to do.
    void settle() {
        for (int i = 0; i < 40; ++i) {
            for (handle& h : handles_) {
                if (is_alive(h)) {
                    alive(h, true);
                    if (is_alive(h) && !h.asked.empty()) confirm(h, h.generation);
                }
            }
            check();
            advance(2s);
        }
        check();
        require(
            group_.state() == group_state::empty || group_.state() == group_state::stable,
            "the rebalance does not end");
        std::size_t live = 0;
        for (const handle& h : handles_) {
            live += is_alive(h) ? 1 : 0;
            require(!h.is_dead || h.is_gone, "a dead member is still one");
            require(!is_alive(h) || h.asked.empty(), "something is still to be confirmed");
        }
        require(group_.size() == live, "a member too many");
        for (const handle& h : handles_) { // whoever is alone now gets everything
            if (is_alive(h) && live == 1) {
                for (const topic_id t : h.topics) {
                    for (std::uint32_t p = 0; p < partitions_[t]; ++p) {
                        require(h.working.contains({t, p}), "a partition that nobody works on");
                    }
                }
            }
        }
    }

    [[nodiscard]] const tally& counts() const { return counts_; }

private:
    static topic_id topic(int n) { return all_topics[static_cast<std::size_t>(n) % 2]; }
    static std::string instance(int n) { return "static-" + std::to_string(n); }
    static bool is_alive(const handle& h) { return !h.is_dead && !h.is_away && !h.is_gone; }

    [[nodiscard]] std::vector<topic_id> topics(int n) const {
        if (!setting_.mixed) return {all_topics.begin(), all_topics.end()};
        std::vector<topic_id> some;
        if (n % 4 != 1) some.push_back(all_topics[0]);
        if (n % 4 != 2) some.push_back(all_topics[1]);
        return some;
    }

    /// One that is alive.
    handle* pick(int n) {
        std::vector<handle*> live;
        for (handle& h : handles_) {
            if (is_alive(h)) live.push_back(&h);
        }
        return live.empty() ? nullptr : live[static_cast<std::size_t>(n) % live.size()];
    }
    /// One that ever was, mostly one that is gone, dead or fenced.
    handle* any(int n) {
        return handles_.empty() ? nullptr
                                : &handles_[static_cast<std::size_t>(n) % handles_.size()];
    }
    handle& known(member_id id) {
        const auto at = std::find_if(handles_.begin(), handles_.end(), [&](const handle& h) {
            return h.id == id && !h.is_gone;
        });
        require(at != handles_.end(), "a decision about somebody who is no member");
        return *at;
    }

    // --- steps -----------------------------------------------------------------------------------

    void advance(duration d) {
        now_ += d;
        const bool is_due = group_.next_deadline() <= now_;
        group_.run_due(now_, out_);
        require(is_due || out_.empty(), "something happened before next_deadline");
        carry_out();
    }

    void join(int static_number, int b) {
        if (static_cast<std::size_t>(std::count_if(
                handles_.begin(), handles_.end(), [](const handle& h) { return !h.is_gone; })) >=
            max_members) {
            return;
        }
        handle h;
        h.name = static_number < 0 ? std::string{} : instance(static_number);
        h.topics = topics(b);
        h.last_seen = now_;
        h.last_poll = now_;
        const auto joined = group_.join(
            {.session_timeout = session_timeout,
             .max_poll_interval = max_poll_interval,
             .instance_id = h.name},
            h.topics,
            now_,
            out_);
        require(joined.error == errc{}, "join");
        h.id = joined.member;
        require(h.id != nobody, "join");
        for (handle& other : handles_) {
            require(other.id != h.id, "an id twice");
            if (!h.name.empty() && other.name == h.name && other.is_away) {
                other.is_away = false;
                other.is_gone = true; // replaced
            }
        }
        handles_.push_back(std::move(h));
        carry_out();
    }

    void leave(handle& h) {
        require(group_.leave(h.id, now_, out_) == errc{}, "leave");
        if (!h.name.empty()) { // it is still a member, but works on nothing
            h.is_away = true;
            h.last_seen = now_;
            h.working.clear();
            h.asked.clear();
            h.asked_at = never;
        }
        carry_out();
    }

    void confirm(handle& h, generation_type generation) {
        const bool expected = !h.is_gone && !h.is_away && generation == h.generation;
        const auto before = snapshot();
        const errc e = group_.confirm_revoked(h.id, generation, now_, out_);
        require((e == errc{}) == expected, "confirm_revoked");
        if (e != errc{}) {
            require(e == errc::fenced || e == errc::unknown_member, "confirm_revoked: the error");
            require(out_.empty() && before == snapshot(), "refused, and not without effect");
            ++counts_.late_confirmations;
            return;
        }
        h.last_seen = now_;
        for (const topic_partition p : h.asked) {
            h.working.erase(p);
        }
        h.asked.clear();
        h.asked_at = never;
        for (const auto& d : out_) {
            require(
                !std::holds_alternative<decisions::revoke>(d),
                "a second round gives out what the first has promised, and takes nothing away");
        }
        carry_out();
    }

    void alive(handle& h, bool polls) {
        const errc e = polls ? group_.poll(h.id, h.generation, now_, out_)
                             : group_.heartbeat(h.id, h.generation, now_, out_);
        require(
            e == errc{} || e == errc::rebalance_in_progress, "a member that does as it is told");
        require(h.asked.empty() || e == errc::rebalance_in_progress, "it has to confirm");
        require(out_.empty(), "a sign of life decides nothing");
        h.last_seen = now_;
        if (polls) h.last_poll = now_;
    }

    void commit(handle& h, generation_type generation, int b) {
        topic_partition p{topic(b), static_cast<std::uint32_t>(b / 2) % max_partitions};
        if (b % 5 != 0 && !h.working.empty()) p = *h.working.begin();
        const auto before = committed_.find(p);
        const std::uint64_t last = before == committed_.end() ? 0 : before->second;
        const std::uint64_t offset =
            last + 3 - std::min(last + 3, static_cast<std::uint64_t>(b) % 6);
        const bool is_member = !h.is_gone && !h.is_away && generation == h.generation;
        const bool expected = is_member && h.working.contains(p) && offset >= last;
        const auto state = snapshot();
        const std::vector<offset_commit> what{{p, offset, {}}};
        std::vector<errc> results(1);
        const errc e = offsets_.commit(
            group_, h.id, generation, what, results, rewinding::refused, now_, out_);
        require(out_.empty() && state == snapshot(), "a commit changes no assignment");
        require((results[0] == errc{}) == expected, "commit");
        if (!is_member) {
            require(
                e == errc::fenced || e == errc::unknown_member, "a stale commit is always fenced");
            ++counts_.stale_commits;
        } else if (e == errc{}) {
            h.last_seen = now_;
        }
        if (expected) {
            committed_[p] = offset;
            ++counts_.commits;
        }
        const auto* const now = offsets_.find(p);
        require(
            (now == nullptr ? 0 : now->offset) == std::max(last, expected ? offset : 0),
            "what is committed");
        require(now == nullptr || now->offset >= last, "a committed offset went back");
    }

    void set_partitions(topic_id t, std::uint32_t n) {
        group_.set_partitions(t, n, now_, out_);
        partitions_[t] = n;
        carry_out();
    }

    void subscribe(handle& h, int b) {
        h.topics = topics(b);
        require(group_.subscribe(h.id, h.generation, h.topics, now_, out_) == errc{}, "subscribe");
        h.last_seen = now_;
        carry_out();
    }

    // --- decisions -------------------------------------------------------------------------------

    void carry_out() {
        for (const auto& d : out_) {
            std::visit([&](const auto& it) { carry_out(it); }, d);
        }
        out_.clear();
    }
    void carry_out(const decisions::rebalanced& d) {
        require(d.generation == generation_ + 1, "generations rise by one");
        generation_ = d.generation;
        owners_.clear();
        ++counts_.rebalances;
        for (const handle& h : handles_) {
            if (!h.asked.empty()) {
                ++counts_.in_the_middle;
                break;
            }
        }
    }
    void carry_out(const decisions::assign& d) {
        require(d.generation == generation_, "assigned in another generation");
        handle& h = known(d.member);
        require(!h.is_away, "somebody who is away is told something");
        h.generation = d.generation;
        for (const topic_partition p : d.partitions) {
            for (const handle& other : handles_) {
                require(!other.working.contains(p), "given out before it was let go of");
            }
            require(p.partition < partitions_[p.topic], "a partition that does not exist");
            h.working.insert(p);
        }
    }
    void carry_out(const decisions::revoke& d) {
        handle& h = known(d.member);
        require(d.generation == h.generation, "revoked in another generation");
        for (const topic_partition p : h.asked) {
            require(contains(d.partitions, p), "no longer asked for");
        }
        for (const topic_partition p : d.partitions) {
            require(h.working.contains(p), "asked for what it does not have");
            h.asked.insert(p);
        }
        h.asked_at = std::min(h.asked_at, now_);
        ++counts_.revocations;
    }
    void carry_out(const decisions::removed& d) {
        handle& h = known(d.member);
        const auto passed = [&](time_point since, duration timeout) {
            return since != never && now_ - since >= timeout;
        };
        switch (d.reason) {
        case removal_reason::session_timeout:
            require(passed(h.last_seen, session_timeout), "its session had not timed out");
            ++counts_.session_timeouts;
            break;
        case removal_reason::poll_timeout:
            require(passed(h.last_poll, max_poll_interval), "it had polled");
            ++counts_.poll_timeouts;
            break;
        case removal_reason::rebalance_timeout:
            require(passed(h.asked_at, rebalance_timeout), "it had time left to confirm");
            ++counts_.rebalance_timeouts;
            break;
        case removal_reason::fenced:
            require(!h.name.empty(), "fenced");
            ++counts_.takeovers;
            break;
        case removal_reason::left: require(h.name.empty(), "left"); break;
        case removal_reason::removed: break;
        }
        if (!h.is_away) {
            require(
                partition_list(h.working.begin(), h.working.end()) == d.partitions,
                "what it lost is what it had");
        }
        h.working.clear();
        h.asked.clear();
        h.is_gone = true;
    }

    // --- what holds after every step -------------------------------------------------------------

    using snapshot_type = std::pair<generation_type, std::vector<member_id>>;
    [[nodiscard]] snapshot_type snapshot() const {
        std::vector<member_id> owners;
        for (const topic_id t : all_topics) {
            for (std::uint32_t p = 0; p < max_partitions; ++p) {
                owners.push_back(group_.owner_of({t, p}));
            }
        }
        return {group_.generation(), std::move(owners)};
    }

    void check() {
        require(group_.generation() == generation_, "a generation without a rebalance");
        std::set<topic_partition> seen;
        std::size_t members = 0;
        for (const handle& h : handles_) {
            const member_record* const m = group_.find(h.id);
            require((m == nullptr) == h.is_gone, "who is a member");
            if (m == nullptr) continue;
            ++members;
            require(m->deadline().first > now_, "somebody should have been removed");
            require(group_.next_deadline() <= m->deadline().first, "next_deadline is too late");
            if (h.is_away) continue;
            require(m->generation == h.generation, "the generation a member knows");
            require(m->topics == h.topics, "topics");
            std::set<topic_partition> owned(m->owned.begin(), m->owned.end());
            owned.insert(m->revoking.begin(), m->revoking.end());
            require(owned == h.working, "what a member knows it has");
            for (const topic_partition p : h.working) {
                require(seen.insert(p).second, "two owners");
                require(group_.owner_of(p) == h.id, "owner_of");
                const auto [at, is_new] = owners_.try_emplace(p, h.id, h.name);
                require(
                    is_new || at->second.first == h.id ||
                        (!h.name.empty() && at->second.second == h.name),
                    "two owners in one generation");
            }
        }
        require(members == group_.size(), "members");
        if (group_.state() == group_state::stable) check_stable();
        while (handles_.size() > 24 && handles_.front().is_gone) {
            handles_.erase(handles_.begin());
        }
    }

    /// Everything has an owner, and nobody has more than it should.
    void check_stable() {
        ++counts_.stable;
        std::vector<const member_record*> members;
        for (const handle& h : handles_) {
            if (const member_record* const m = group_.find(h.id)) members.push_back(m);
        }
        const auto wants = [](const member_record& m, topic_id t) {
            return std::binary_search(m.topics.begin(), m.topics.end(), t);
        };
        for (const topic_id t : all_topics) {
            const bool is_wanted = group_.is_subscribed(t);
            for (std::uint32_t p = 0; p < partitions_[t]; ++p) {
                require((group_.owner_of({t, p}) != nobody) == is_wanted, "an owner for each");
            }
            for (std::uint32_t p = partitions_[t]; p < max_partitions; ++p) {
                require(group_.owner_of({t, p}) == nobody, "an owner of nothing");
            }
        }
        for (const member_record* const m : members) {
            for (const topic_partition p : m->owned) {
                require(wants(*m, p.topic), "it does not subscribe to that");
            }
        }
        if (setting_.how == assignor::range || setting_.how == assignor::round_robin) {
            check_stateless(members);
            return;
        }
        for (const member_record* const from : members) {
            for (const topic_partition p : from->owned) {
                for (const member_record* const to : members) {
                    require(
                        !wants(*to, p.topic) || to->owned.size() + 2 > from->owned.size(),
                        "not balanced");
                }
            }
        }
    }

    void check_stateless(std::vector<const member_record*> members) {
        std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) {
            return a->id < b->id;
        });
        std::vector<railmq::core::subscriber> subscribers;
        for (const member_record* const m : members) {
            subscribers.push_back(
                {.id = m->id, .instance_id = m->options.instance_id, .topics = m->topics});
        }
        std::vector<topic_size> sizes;
        for (const topic_id t : all_topics) {
            sizes.push_back({t, partitions_[t]});
        }
        const auto target = railmq::core::assign(setting_.how, subscribers, sizes);
        for (std::size_t i = 0; i < members.size(); ++i) {
            // A static member that came back is served by its name, so its new id changes nothing.
            require(members[i]->owned == target[i], "not what the assignor says");
        }
    }

    setting setting_;
    tally counts_{};
    group_coordinator group_;
    group_offsets offsets_{};
    group_decision_list out_{};
    time_point now_{};
    std::map<topic_id, std::uint32_t> partitions_{};
    std::vector<handle> handles_{};
    generation_type generation_ = 0;
    std::map<topic_partition, std::pair<member_id, std::string>> owners_{}; ///< In this generation.
    std::map<topic_partition, std::uint64_t> committed_{};
};

} // namespace

TEST_CASE(
    "group_coordinator: [I9] [U07] [V01] [BR17] one owner, whoever comes, goes, dies or is late") {
    tally counts;
    std::size_t runs = 0;
    const bool holds = rc::check([&] {
        const setting s{
            *rc::gen::element(
                assignor::range,
                assignor::round_robin,
                assignor::sticky,
                assignor::cooperative_sticky,
                assignor::cooperative_sticky),
            *rc::gen::arbitrary<bool>(),
            *rc::gen::arbitrary<bool>()};
        const auto steps = *rc::gen::resize(
            300,
            rc::gen::container<std::vector<step>>(rc::gen::resize(
                100,
                rc::gen::apply(
                    [](int what, int a, int b) {
                        return step{what, a, b};
                    },
                    rc::gen::inRange(0, 18),
                    rc::gen::inRange(0, 1'000),
                    rc::gen::inRange(0, 120)))));
        RC_LOG() << s << '\n';
        world w{s};
        for (const step& one : steps) {
            w.run(one);
        }
        w.settle();
        counts += w.counts();
        ++runs;
    });
    CHECK(holds);
    // Else it was about nothing.
    CHECK(counts.rebalances > 5 * runs);
    CHECK(counts.revocations > 2 * runs);
    CHECK(counts.late_confirmations > runs);
    CHECK(counts.stale_commits > runs);
    CHECK(counts.commits > runs);
    CHECK(counts.stable > 10 * runs);
    CHECK(counts.session_timeouts > runs / 10);
    CHECK(counts.rebalance_timeouts > runs / 10);
    CHECK(counts.takeovers > runs / 10);
    CHECK(counts.in_the_middle > runs);
}
