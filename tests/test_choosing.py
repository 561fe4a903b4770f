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
OBSTACLES = [
    reason
    for reason in Rejection
    if reason.value not in ("TooLittleTime", "GPUMissing", "GPUPresent")
]


def node(name: str, demand: int | None = 100, **other: object) -> NodeFacts:
    return NodeFacts(**{"name": name, "memory_mb": 8192, "load": Load(demand, 1024), **other})  # type: ignore[arg-type]


def in_hours(hours: float) -> Window:
    start = NOW + timedelta(hours=hours)
    return Window(start, start + timedelta(hours=4), "test")


def ranked(*nodes: NodeFacts) -> Ranking:
    ranking = Ranking()
    for each in nodes:
        ranking.set_facts(each.name, each)
    return ranking


def chosen(ranking: Ranking, hours: int = 0, gpu: bool = False, present: str = "") -> str | None:
    found = ranking.choose(Requirement(hours, gpu), present, RULES, NOW)
    return found.name if found else None


def test_least_demand_then_free_memory_then_name() -> None:
    assert chosen(ranked(node("a", 300), node("b", 200), node("c", 250))) == "b"
    assert chosen(ranked(node("a"), node("b", load=Load(100, 1000)), node("c"))) == "b"
    assert chosen(ranked(node("c"), node("b"), node("d"))) == "b"
    assert chosen(ranked(node("a", None), node("b", 9000))) == "b"
    assert chosen(ranked()) is None


def test_a_powered_off_node_with_no_demand_does_not_win() -> None:
    assert chosen(ranked(node("off", 0, blocker=Rejection.POWERED_OFF), node("on", 500))) == "on"


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
    ranking = ranked(node("z-present", present), node("a-best", best))
    assert chosen(ranking, present="z-present") == ("a-best" if moves else "z-present")


def test_the_answer_moves_when_the_present_node_stops_being_suitable() -> None:
    ranking = ranked(node("held", 100), node("other", 900))
    assert chosen(ranking, present="held") == "held"
    ranking.set_facts("held", node("held", 100, blocker=Rejection.UNSCHEDULABLE))
    assert chosen(ranking, present="held") == "other"
    assert chosen(ranking, present="gone") == "other"


def test_hours_are_whole_and_end_at_the_horizon() -> None:
    for window, hours in (
        (None, 1000),
        (in_hours(2.99), 2),
        (in_hours(0.5), 0),
        (in_hours(-1), 0),
        (in_hours(5000), 1000),
    ):
        assert RULES.available_hours(node("n", maintenance=window), NOW) == hours
    assert (
        RULES.available_hours(node("n", maintenance=in_hours(5), simulated_hours=333), NOW) == 333
    )


@pytest.mark.parametrize("hours", [1.0, 1.5, 2.25, 999.5, 1000.0, 1000.5, 1500.0])
def test_the_next_hour_is_where_the_number_changes(hours: float) -> None:
    facts = node("n", maintenance=in_hours(hours))
    seconds = RULES.seconds_until_hours_change(facts, NOW)
    assert seconds is not None
    before, after = NOW + timedelta(seconds=seconds - 0.01), NOW + timedelta(seconds=seconds)
    assert RULES.available_hours(facts, after) == RULES.available_hours(facts, NOW) - 1
    assert before < NOW or RULES.available_hours(facts, before) == RULES.available_hours(facts, NOW)


def test_no_timer_where_nothing_will_change() -> None:
    for facts in (
        node("n"),
        node("n", maintenance=in_hours(0.5)),
        node("n", maintenance=in_hours(9), simulated_hours=3),
    ):
        assert RULES.seconds_until_hours_change(facts, NOW) is None


@dataclass
class Case:
    nodes: list[NodeFacts]
    question: Requirement
    present: str


windows = st.none() | st.integers(-200, 60_000).map(lambda minutes: in_hours(minutes / 60))
loads = st.builds(
    Load,
    st.none() | st.integers(0, 12).map(lambda n: n * 100),
    st.none() | st.sampled_from([0, 512, 4096, 9000]),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeFacts:
    gpus = draw(st.sampled_from([(), ("vm: vGPU a",)]))
    obstacle = draw(st.none() | st.none() | st.sampled_from(OBSTACLES))
    return node(name, gpus=gpus, blocker=obstacle, load=draw(loads), maintenance=draw(windows))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = draw(st.lists(st.sampled_from([f"n{i}" for i in range(12)]), unique=True, max_size=12))
    made = [draw(nodes(name)) for name in names]
    question = Requirement(
        draw(st.sampled_from([0, 1, 24, 300, 900, 1000, 1001])), draw(st.booleans())
    )
    return Case(made, question, draw(st.sampled_from(["", "n0", "n5", "n11"])))


def brute(case: Case) -> tuple[str | None, Counter[str]]:
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
        if hours < case.question.hours:
            refused["TooLittleTime"] += 1
        elif bool(each.gpus) and not case.question.gpu_required:
            refused["GPUPresent"] += 1
        elif not each.gpus and case.question.gpu_required:
            refused["GPUMissing"] += 1
        else:
            suitable.append(each)
    return answer_among(suitable, case.present), refused


def demand_of(each: NodeFacts) -> float:
    return 1e12 if each.load.cpu_demand_mhz is None else each.load.cpu_demand_mhz


def free_of(each: NodeFacts) -> int:
    return (
        0
        if each.load.guest_memory_mb is None
        else max(0, each.memory_mb - each.load.guest_memory_mb)
    )


def answer_among(suitable: list[NodeFacts], present: str) -> str | None:
    best: NodeFacts | None = None
    for each in suitable:
        if best is None or (demand_of(each), -free_of(each), each.name) < (
            demand_of(best),
            -free_of(best),
            best.name,
        ):
            best = each
    held = next((each for each in suitable if each.name == present), None)
    if best is None or held is None:
        return best.name if best else None
    known = demand_of(best) < 1e12
    better = known and (
        demand_of(held) == 1e12 or demand_of(held) - demand_of(best) > 100 + demand_of(held) / 10
    )
    return best.name if better else held.name


SEEN: Counter[str] = Counter()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
@example(
    Case(
        [node(f"n{number}", blocker=each) for number, each in enumerate(OBSTACLES)],
        Requirement(0, gpu_required=False),
        "",
    )
)
def check_against_brute_force(case: Case) -> None:
    ranking = ranked(*case.nodes)
    answer, refused = brute(case)
    found = ranking.choose(case.question, case.present, RULES, NOW)
    assert (found and found.name) == answer
    assert ranking.count_rejections(case.question, RULES, NOW) == dict(refused)
    one_by_one = Counter(
        why.value for each in case.nodes if (why := RULES.find_rejection(each, case.question, NOW))
    )
    assert one_by_one == refused
    suitable = [each.name for each in ranking.iter_suitable(case.question, RULES, NOW)]
    assert len(suitable) + refused.total() == len(case.nodes)
    SEEN.update(refused.keys())


def test_generated_rankings_agree_with_brute_force_and_exercise_every_refusal() -> None:
    SEEN.clear()
    check_against_brute_force()
    assert set(SEEN) == {reason.value for reason in Rejection}


@given(
    st.lists(st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.none() | nodes("x")), max_size=20)
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
    fresh = ranked(*final.values())
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
    idle = [node(f"idle-{number}", number, maintenance=in_hours(72)) for number in range(300)]
    ranking, looked = ranked(*idle, node("busy", 4000)), list[str]()
    has_time = SelectionRules.has_enough_time

    def counted(
        rules: SelectionRules, facts: NodeFacts, question: Requirement, now: datetime
    ) -> bool:
        looked.append(facts.name)
        return has_time(rules, facts, question, now)

    monkeypatch.setattr(SelectionRules, "has_time", counted)
    assert [chosen(ranking, hours, present="busy") for hours in (73, 200, 1000)] == ["busy"] * 3
    assert looked == ["busy"] * 3
    ranking.set_facts("idle-7", node("idle-7", 7, maintenance=in_hours(300)))
    assert [chosen(ranking, hours) for hours in (72, 73, 300, 301, 1001)] == [
        "idle-0",
        "idle-7",
        "idle-7",
        "busy",
        None,
    ]
    ranking.set_facts("idle-7", None)
    assert chosen(ranking, 73) == "busy"
