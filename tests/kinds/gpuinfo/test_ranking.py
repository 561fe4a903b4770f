"""Selecting among given facts, compared with brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vsphere_operators.kinds.gpuinfo.maintenance_windows import Window
from vsphere_operators.kinds.gpuinfo.ranking import MAX_CANDIDATES, Ranking
from vsphere_operators.kinds.gpuinfo.rules import (
    NodeFacts,
    Query,
    Rejection,
    Requirement,
    SelectionRules,
    VmUsage,
)

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
RULES = SelectionRules(unplanned_hours=1000, margin_fraction=0.1)
REJECTIONS_FOR_ALL = [
    reason
    for reason in Rejection
    if reason.value not in ("TooLittleTime", "GPUMissing", "GPUPresent")
]


def make_facts(name: str, demand: int | None = 100, **other: object) -> NodeFacts:
    fields = {"memory_mb": 8192, "usage": VmUsage(demand, 1024), **other}
    return NodeFacts(name=name, **fields)  # type: ignore[arg-type]


def window_in_hours(hours: float) -> Window:
    start = NOW + timedelta(hours=hours)
    return Window(start, start + timedelta(hours=4), "test")


def make_ranking(*nodes: NodeFacts) -> Ranking:
    ranking = Ranking()
    for facts in nodes:
        ranking.set_facts(facts.name, facts)
    return ranking


def choose_name(
    ranking: Ranking, hours: int = 0, gpu: bool = False, current_node: str = ""
) -> str | None:
    selected = ranking.select_node(Query(Requirement(hours, gpu), RULES, NOW), current_node)
    return selected.name if selected else None


def test_least_demand_then_free_memory_then_name() -> None:
    assert (
        choose_name(make_ranking(make_facts("a", 300), make_facts("b", 200), make_facts("c", 250)))
        == "b"
    )
    assert (
        choose_name(
            make_ranking(
                make_facts("a"), make_facts("b", usage=VmUsage(100, 1000)), make_facts("c")
            )
        )
        == "b"
    )
    assert choose_name(make_ranking(make_facts("c"), make_facts("b"), make_facts("d"))) == "b"
    assert choose_name(make_ranking(make_facts("a", None), make_facts("b", 9000))) == "b"
    assert choose_name(make_ranking()) is None


def test_powered_off_node_without_demand_does_not_win() -> None:
    assert (
        choose_name(
            make_ranking(
                make_facts("off", 0, rejection_for_all=Rejection.POWERED_OFF), make_facts("on", 500)
            )
        )
        == "on"
    )


@pytest.mark.parametrize(
    ("current", "best", "switches"),
    [
        (1000, 801, False),
        (1000, 799, True),
        (150, 40, False),
        (150, 30, True),
        (None, 5000, True),
        (100, None, False),
    ],
)
def test_selection_changes_only_by_more_than_the_margin(
    current: int | None, best: int | None, switches: bool
) -> None:
    ranking = make_ranking(make_facts("z-current", current), make_facts("a-best", best))
    assert choose_name(ranking, current_node="z-current") == ("a-best" if switches else "z-current")


def test_selection_changes_when_the_current_node_no_longer_matches() -> None:
    ranking = make_ranking(make_facts("current", 100), make_facts("other", 900))
    assert choose_name(ranking, current_node="current") == "current"
    ranking.set_facts(
        "current", make_facts("current", 100, rejection_for_all=Rejection.UNSCHEDULABLE)
    )
    assert choose_name(ranking, current_node="current") == "other"
    assert choose_name(ranking, current_node="gone") == "other"


def test_hours_are_whole_and_limited_by_the_horizon() -> None:
    for window, hours in (
        (None, 1000),
        (window_in_hours(2.99), 2),
        (window_in_hours(0.5), 0),
        (window_in_hours(-1), 0),
        (window_in_hours(5000), 1000),
    ):
        assert RULES.available_hours(make_facts("n", next_window=window), NOW) == hours
    assert (
        RULES.available_hours(
            make_facts("n", next_window=window_in_hours(5), simulated_hours=333), NOW
        )
        == 333
    )


@pytest.mark.parametrize("hours", [1.0, 1.5, 2.25, 999.5, 1000.0, 1000.5, 1500.0])
def test_hours_change_exactly_when_predicted(hours: float) -> None:
    facts = make_facts("n", next_window=window_in_hours(hours))
    seconds = RULES.seconds_until_hours_change(facts, NOW)
    assert seconds is not None
    before, after = NOW + timedelta(seconds=seconds - 0.01), NOW + timedelta(seconds=seconds)
    assert RULES.available_hours(facts, after) == RULES.available_hours(facts, NOW) - 1
    assert before < NOW or RULES.available_hours(facts, before) == RULES.available_hours(facts, NOW)


def test_no_timer_if_hours_never_change() -> None:
    for facts in (
        make_facts("n"),
        make_facts("n", next_window=window_in_hours(0.5)),
        make_facts("n", next_window=window_in_hours(9), simulated_hours=3),
    ):
        assert RULES.seconds_until_hours_change(facts, NOW) is None


@dataclass
class RankingCase:
    nodes: list[NodeFacts]
    requirement: Requirement
    current_node: str


windows = st.none() | st.integers(-200, 60_000).map(lambda minutes: window_in_hours(minutes / 60))
usages = st.builds(
    VmUsage,
    st.none() | st.integers(0, 12).map(lambda n: n * 100),
    st.none() | st.sampled_from([0, 512, 4096, 9000]),
)


@st.composite
def node_facts(draw: st.DrawFn, name: str) -> NodeFacts:
    gpus = draw(st.sampled_from([(), ("vm: vGPU a",)]))
    rejection_for_all = draw(st.none() | st.none() | st.sampled_from(REJECTIONS_FOR_ALL))
    return make_facts(
        name,
        gpus=gpus,
        rejection_for_all=rejection_for_all,
        usage=draw(usages),
        next_window=draw(windows),
    )


@st.composite
def ranking_cases(draw: st.DrawFn) -> RankingCase:
    names = draw(st.lists(st.sampled_from([f"n{i}" for i in range(12)]), unique=True, max_size=12))
    nodes = [draw(node_facts(name)) for name in names]
    requirement = Requirement(
        draw(st.sampled_from([0, 1, 24, 300, 900, 1000, 1001])), draw(st.booleans())
    )
    return RankingCase(nodes, requirement, draw(st.sampled_from(["", "n0", "n5", "n11"])))


def brute_force(case: RankingCase) -> tuple[str | None, Counter[str]]:
    """Visit one node after the other, and apply the rules to each."""
    suitable, rejected = [], Counter[str]()
    for facts in case.nodes:
        if facts.rejection_for_all:
            rejected[facts.rejection_for_all.value] += 1
            continue
        seconds = (
            (facts.next_window.start - NOW).total_seconds() if facts.next_window else 1000 * 3600
        )
        hours = int(min(max(seconds, 0), 1000 * 3600) / 3600)
        if hours < case.requirement.hours:
            rejected["TooLittleTime"] += 1
        elif bool(facts.gpus) and not case.requirement.gpu_required:
            rejected["GPUPresent"] += 1
        elif not facts.gpus and case.requirement.gpu_required:
            rejected["GPUMissing"] += 1
        else:
            suitable.append(facts)
    return choose_among(suitable, case.current_node), rejected


def cpu_demand_of(facts: NodeFacts) -> float:
    return 1e12 if facts.usage.cpu_demand_mhz is None else facts.usage.cpu_demand_mhz


def free_memory_of(facts: NodeFacts) -> int:
    return (
        0
        if facts.usage.guest_memory_mb is None
        else max(0, facts.memory_mb - facts.usage.guest_memory_mb)
    )


def choose_among(suitable: list[NodeFacts], current_node: str) -> str | None:
    best: NodeFacts | None = None
    for facts in suitable:
        if best is None or (cpu_demand_of(facts), -free_memory_of(facts), facts.name) < (
            cpu_demand_of(best),
            -free_memory_of(best),
            best.name,
        ):
            best = facts
    current = next((facts for facts in suitable if facts.name == current_node), None)
    if best is None or current is None:
        return best.name if best else None
    is_known = cpu_demand_of(best) < 1e12
    better = is_known and (
        cpu_demand_of(current) == 1e12
        or cpu_demand_of(current) - cpu_demand_of(best) > 100 + cpu_demand_of(current) / 10
    )
    return best.name if better else current.name


SEEN_REJECTIONS: Counter[str] = Counter()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ranking_cases())
@example(
    RankingCase(
        [
            make_facts(f"n{number}", rejection_for_all=rejection_for_all)
            for number, rejection_for_all in enumerate(REJECTIONS_FOR_ALL)
        ],
        Requirement(0, gpu_required=False),
        "",
    )
)
def check_against_brute_force(case: RankingCase) -> None:
    ranking = make_ranking(*case.nodes)
    expected, rejected = brute_force(case)
    query = Query(case.requirement, RULES, NOW)
    selection = ranking.select(query, case.current_node)
    assert (selection.selected and selection.selected.name) == expected
    assert selection.rejection_counts == dict(rejected)
    one_by_one = Counter(
        rejection.value for facts in case.nodes if (rejection := query.find_rejection(facts))
    )
    assert one_by_one == rejected
    assert selection.suitable_count + rejected.total() == len(case.nodes)
    assert len(selection.best_suitable) == min(selection.suitable_count, MAX_CANDIDATES)
    SEEN_REJECTIONS.update(rejected.keys())


def test_generated_rankings_agree_with_brute_force_and_exercise_every_rejection() -> None:
    SEEN_REJECTIONS.clear()
    check_against_brute_force()
    assert set(SEEN_REJECTIONS) == {reason.value for reason in Rejection}


@given(
    st.lists(
        st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.none() | node_facts("x")), max_size=20
    )
)
def test_updated_ranking_equals_one_built_from_scratch(
    changes: list[tuple[str, NodeFacts | None]],
) -> None:
    updated, final = Ranking(), dict[str, NodeFacts]()
    for name, facts in changes:
        new = facts and replace(facts, name=name)
        updated.set_facts(name, new)
        final.pop(name, None)
        if new:
            final[name] = new
    fresh = make_ranking(*final.values())
    assert (updated.facts, +updated._rejected_for_all_counts, updated._unmatched_names) == (
        fresh.facts,
        +fresh._rejected_for_all_counts,
        fresh._unmatched_names,
    )
    for gpu in (True, False):
        assert vars(updated._pools[gpu]) == vars(fresh._pools[gpu])


def test_best_node_with_enough_time_is_found_without_visiting_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle = [
        make_facts(f"idle-{number}", number, next_window=window_in_hours(72))
        for number in range(300)
    ]
    ranking, visited = make_ranking(*idle, make_facts("busy", 4000)), list[str]()
    has_enough_time = Query.has_enough_time

    def count_visit(query: Query, facts: NodeFacts) -> bool:
        visited.append(facts.name)
        return has_enough_time(query, facts)

    monkeypatch.setattr(Query, "has_enough_time", count_visit)
    assert [choose_name(ranking, hours, current_node="busy") for hours in (73, 200, 1000)] == [
        "busy"
    ] * 3
    assert visited == ["busy"] * 3
    ranking.set_facts("idle-7", make_facts("idle-7", 7, next_window=window_in_hours(300)))
    assert [choose_name(ranking, hours) for hours in (72, 73, 300, 301, 1001)] == [
        "idle-0",
        "idle-7",
        "idle-7",
        "busy",
        None,
    ]
    ranking.set_facts("idle-7", None)
    assert choose_name(ranking, 73) == "busy"
