"""The choice among given facts against a brute-force computation that shares no line with it; whole clusters are in test_clusters.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.gpuinfo.maintenance import Window
from vsphere_operators.kinds.gpuinfo.ranking import Ranking
from vsphere_operators.kinds.gpuinfo.rules import (
    Load,
    NodeFacts,
    Rejection,
    Requirement,
    SelectionRules,
)

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
RULES = SelectionRules(horizon_hours=1000, margin_fraction=0.1)
BLOCKERS = [
    reason
    for reason in Rejection
    if reason.value not in ("TooLittleTime", "GPUMissing", "GPUPresent")
]


def make_facts(name: str, demand: int | None = 100, **other: object) -> NodeFacts:
    return NodeFacts(**{"name": name, "memory_mb": 8192, "load": Load(demand, 1024), **other})  # type: ignore[arg-type]


def window_in_hours(hours: float) -> Window:
    start = NOW + timedelta(hours=hours)
    return Window(start, start + timedelta(hours=4), "test")


def make_ranking(*nodes: NodeFacts) -> Ranking:
    ranking = Ranking()
    for each in nodes:
        ranking.set_facts(each.name, each)
    return ranking


def choose_name(
    ranking: Ranking, hours: int = 0, gpu: bool = False, current_node: str = ""
) -> str | None:
    found = ranking.choose(Requirement(hours, gpu), current_node, RULES, NOW)
    return found.name if found else None


def test_least_demand_then_free_memory_then_name() -> None:
    assert (
        choose_name(make_ranking(make_facts("a", 300), make_facts("b", 200), make_facts("c", 250)))
        == "b"
    )
    assert (
        choose_name(
            make_ranking(make_facts("a"), make_facts("b", load=Load(100, 1000)), make_facts("c"))
        )
        == "b"
    )
    assert choose_name(make_ranking(make_facts("c"), make_facts("b"), make_facts("d"))) == "b"
    assert choose_name(make_ranking(make_facts("a", None), make_facts("b", 9000))) == "b"
    assert choose_name(make_ranking()) is None


def test_a_powered_off_node_with_no_demand_does_not_win() -> None:
    assert (
        choose_name(
            make_ranking(make_facts("off", 0, blocker=Rejection.POWERED_OFF), make_facts("on", 500))
        )
        == "on"
    )


@pytest.mark.parametrize(
    ("present", "best", "moves"),
    [
        (1000, 801, False),
        (1000, 799, True),
        (150, 40, False),
        (150, 30, True),
        (None, 5000, True),
        (100, None, False),
    ],
)
def test_the_answer_moves_only_by_more_than_the_margin(
    present: int | None, best: int | None, moves: bool
) -> None:
    ranking = make_ranking(make_facts("z-present", present), make_facts("a-best", best))
    assert choose_name(ranking, current_node="z-present") == ("a-best" if moves else "z-present")


def test_the_answer_moves_when_the_present_node_stops_being_suitable() -> None:
    ranking = make_ranking(make_facts("held", 100), make_facts("other", 900))
    assert choose_name(ranking, current_node="held") == "held"
    ranking.set_facts("held", make_facts("held", 100, blocker=Rejection.UNSCHEDULABLE))
    assert choose_name(ranking, current_node="held") == "other"
    assert choose_name(ranking, current_node="gone") == "other"


def test_hours_are_whole_and_end_at_the_horizon() -> None:
    for window, hours in (
        (None, 1000),
        (window_in_hours(2.99), 2),
        (window_in_hours(0.5), 0),
        (window_in_hours(-1), 0),
        (window_in_hours(5000), 1000),
    ):
        assert RULES.available_hours(make_facts("n", maintenance=window), NOW) == hours
    assert (
        RULES.available_hours(
            make_facts("n", maintenance=window_in_hours(5), simulated_hours=333), NOW
        )
        == 333
    )


@pytest.mark.parametrize("hours", [1.0, 1.5, 2.25, 999.5, 1000.0, 1000.5, 1500.0])
def test_the_next_hour_is_where_the_number_changes(hours: float) -> None:
    facts = make_facts("n", maintenance=window_in_hours(hours))
    seconds = RULES.seconds_until_hours_change(facts, NOW)
    assert seconds is not None
    before, after = NOW + timedelta(seconds=seconds - 0.01), NOW + timedelta(seconds=seconds)
    assert RULES.available_hours(facts, after) == RULES.available_hours(facts, NOW) - 1
    assert before < NOW or RULES.available_hours(facts, before) == RULES.available_hours(facts, NOW)


def test_no_timer_where_nothing_will_change() -> None:
    for facts in (
        make_facts("n"),
        make_facts("n", maintenance=window_in_hours(0.5)),
        make_facts("n", maintenance=window_in_hours(9), simulated_hours=3),
    ):
        assert RULES.seconds_until_hours_change(facts, NOW) is None


@dataclass
class RankingCase:
    nodes: list[NodeFacts]
    requirement: Requirement
    current_node: str


windows = st.none() | st.integers(-200, 60_000).map(lambda minutes: window_in_hours(minutes / 60))
loads = st.builds(
    Load,
    st.none() | st.integers(0, 12).map(lambda n: n * 100),
    st.none() | st.sampled_from([0, 512, 4096, 9000]),
)


@st.composite
def node_facts(draw: st.DrawFn, name: str) -> NodeFacts:
    gpus = draw(st.sampled_from([(), ("vm: vGPU a",)]))
    obstacle = draw(st.none() | st.none() | st.sampled_from(BLOCKERS))
    return make_facts(
        name, gpus=gpus, blocker=obstacle, load=draw(loads), maintenance=draw(windows)
    )


@st.composite
def ranking_cases(draw: st.DrawFn) -> RankingCase:
    names = draw(st.lists(st.sampled_from([f"n{i}" for i in range(12)]), unique=True, max_size=12))
    made = [draw(node_facts(name)) for name in names]
    question = Requirement(
        draw(st.sampled_from([0, 1, 24, 300, 900, 1000, 1001])), draw(st.booleans())
    )
    return RankingCase(made, question, draw(st.sampled_from(["", "n0", "n5", "n11"])))


def brute_force(case: RankingCase) -> tuple[str | None, Counter[str]]:
    """All nodes, one after the other, by the words of the contract."""
    suitable, refused = [], Counter[str]()
    for each in case.nodes:
        if each.blocker:
            refused[each.blocker.value] += 1
            continue
        seconds = (
            (each.maintenance.start - NOW).total_seconds() if each.maintenance else 1000 * 3600
        )
        hours = int(min(max(seconds, 0), 1000 * 3600) / 3600)
        if hours < case.requirement.hours:
            refused["TooLittleTime"] += 1
        elif bool(each.gpus) and not case.requirement.gpu_required:
            refused["GPUPresent"] += 1
        elif not each.gpus and case.requirement.gpu_required:
            refused["GPUMissing"] += 1
        else:
            suitable.append(each)
    return choose_among(suitable, case.current_node), refused


def cpu_demand_of(each: NodeFacts) -> float:
    return 1e12 if each.load.cpu_demand_mhz is None else each.load.cpu_demand_mhz


def free_memory_of(each: NodeFacts) -> int:
    return (
        0
        if each.load.guest_memory_mb is None
        else max(0, each.memory_mb - each.load.guest_memory_mb)
    )


def choose_among(suitable: list[NodeFacts], present: str) -> str | None:
    best: NodeFacts | None = None
    for each in suitable:
        if best is None or (cpu_demand_of(each), -free_memory_of(each), each.name) < (
            cpu_demand_of(best),
            -free_memory_of(best),
            best.name,
        ):
            best = each
    held = next((each for each in suitable if each.name == present), None)
    if best is None or held is None:
        return best.name if best else None
    known = cpu_demand_of(best) < 1e12
    better = known and (
        cpu_demand_of(held) == 1e12
        or cpu_demand_of(held) - cpu_demand_of(best) > 100 + cpu_demand_of(held) / 10
    )
    return best.name if better else held.name


SEEN_REJECTIONS: Counter[str] = Counter()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ranking_cases())
@example(
    RankingCase(
        [make_facts(f"n{number}", blocker=each) for number, each in enumerate(BLOCKERS)],
        Requirement(0, gpu_required=False),
        "",
    )
)
def check_against_brute_force(case: RankingCase) -> None:
    ranking = make_ranking(*case.nodes)
    answer, refused = brute_force(case)
    found = ranking.choose(case.requirement, case.current_node, RULES, NOW)
    assert (found and found.name) == answer
    assert ranking.count_rejections(case.requirement, RULES, NOW) == dict(refused)
    one_by_one = Counter(
        why.value
        for each in case.nodes
        if (why := RULES.find_rejection(each, case.requirement, NOW))
    )
    assert one_by_one == refused
    suitable = [each.name for each in ranking.iter_suitable(case.requirement, RULES, NOW)]
    assert len(suitable) + refused.total() == len(case.nodes)
    SEEN_REJECTIONS.update(refused.keys())


def test_generated_rankings_agree_with_brute_force_and_exercise_every_refusal() -> None:
    SEEN_REJECTIONS.clear()
    check_against_brute_force()
    assert set(SEEN_REJECTIONS) == {reason.value for reason in Rejection}


@given(
    st.lists(
        st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.none() | node_facts("x")), max_size=20
    )
)
def test_a_ranking_that_was_changed_is_the_one_that_was_made_anew(
    changes: list[tuple[str, NodeFacts | None]],
) -> None:
    moved, final = Ranking(), dict[str, NodeFacts]()
    for name, facts in changes:
        new = facts and replace(facts, name=name)
        moved.set_facts(name, new)
        final.pop(name, None)
        if new:
            final[name] = new
    fresh = make_ranking(*final.values())
    assert (moved.facts, +moved.blocker_counts, moved.unmatched_names) == (
        fresh.facts,
        +fresh.blocker_counts,
        fresh.unmatched_names,
    )
    for gpu in (True, False):
        assert vars(moved.pools[gpu]) == vars(fresh.pools[gpu])


def test_the_first_with_time_is_found_without_a_look_at_all_that_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = [
        make_facts(f"idle-{number}", number, maintenance=window_in_hours(72))
        for number in range(300)
    ]
    ranking, looked = make_ranking(*idle, make_facts("busy", 4000)), list[str]()
    has_time = SelectionRules.has_enough_time

    def counted(
        rules: SelectionRules, facts: NodeFacts, question: Requirement, now: datetime
    ) -> bool:
        looked.append(facts.name)
        return has_time(rules, facts, question, now)

    monkeypatch.setattr(SelectionRules, "has_enough_time", counted)
    assert [choose_name(ranking, hours, current_node="busy") for hours in (73, 200, 1000)] == [
        "busy"
    ] * 3
    assert looked == ["busy"] * 3
    ranking.set_facts("idle-7", make_facts("idle-7", 7, maintenance=window_in_hours(300)))
    assert [choose_name(ranking, hours) for hours in (72, 73, 300, 301, 1001)] == [
        "idle-0",
        "idle-7",
        "idle-7",
        "busy",
        None,
    ]
    ranking.set_facts("idle-7", None)
    assert choose_name(ranking, 73) == "busy"
