"""The specifications of controller-runtime's cache, controller and manager as a checklist.

The first line of an entry has the number of its specifications that it stands for, and their
subject. The same one for structured, unstructured and metadata-only objects counts three times. The
second line has the test of ours, or in brackets why it does not apply. Counted in commit 86a0d40e
of August 2026: pkg/cache, pkg/controller with pkg/internal/controller, pkg/manager.
"""

from __future__ import annotations

from typing import NamedTuple


class Spec(NamedTuple):
    number: int
    subject: str
    where: str

    @property
    def applies(self) -> bool:
        return not self.where.startswith("(")


def parse(checklist: str) -> list[Spec]:
    lines = [line.strip() for line in checklist.strip().splitlines()]
    return [
        Spec(int(first.partition(" ")[0]), first.partition(" ")[2], second)
        for first, second in zip(lines[::2], lines[1::2], strict=True)
    ]


CACHE = """
6 transforms per kind and by default
    test_own_write_is_stored_as_the_transform_returns_it
2 objects of one namespace
    test_each_selection_follows_what_it_selects
2 kinds that are not declared cannot be read
    test_kind_that_is_not_watched_is_an_error_and_not_an_empty_list
2 kinds that are declared can be read
    test_kind_that_is_read_is_in_the_cache_but_enqueues_no_object
1 an informer without waiting
    (the cache never waits)
6 kinds are watched when they are first read
    (only what is declared is watched, so that roles and memory are known)
3 labels in one namespace
    test_every_selector_selects_what_the_api_server_selects
3 labels in several namespaces
    test_namespaces_of_the_manager_and_of_the_selection_are_intersected
1 group, version and kind of listed objects
    (apiVersion and kind belong to the class)
3 objects by namespace
    test_list_of_one_namespace_removes_nothing_from_another
3 copies unless switched off
    (only the object of a reconcile is a copy; others are shared, with frozen metadata)
5 copies switched off
    (there is no copy to switch off)
3 an object that does not exist
    test_cache_returns_only_objects_that_decode
3 a namespace that is not watched
    test_write_into_a_namespace_without_a_watch_is_not_stored
1 a cancelled context
    (a read of the cache does not wait)
2 a limited number of results
    (a read of the cache returns references, not copies: slice it)
5 pages of the cache are an error
    (a read of the cache has no pages)
2 a cache that is restricted to namespaces
    test_removed_namespace_leaves_no_objects
1 selectors for cluster-scoped kinds
    test_cluster_scoped_kind_and_selection_of_a_selection_are_rejected
1 cluster-scoped kinds with several namespaces
    test_namespaces_of_the_manager_and_of_the_selection_are_intersected
15 label and field selectors of a kind
    test_every_selector_selects_what_the_api_server_selects
14 label and field selectors of all kinds
    (a selection belongs to a class; there are no defaults to combine)
1 a cache is started once
    (it has no start of its own)
4 listeners of a kind
    test_list_comes_first_and_then_the_changes
2 informers are stopped and started again
    (a watch runs as long as its manager)
3 objects by an indexed field
    test_index_follows_changes_and_a_failing_index_function_affects_only_its_object
4 waiting for an informer is cancelled
    (no read waits)
1 indexes of cluster-scoped kinds
    test_index_follows_changes_and_a_failing_index_function_affects_only_its_object
1 several indexes at once
    (an index function may combine fields)
1 managed fields are dropped
    (managedFields are not declared, so they are never decoded)
1 a transform of an unexpected object
    test_transform_that_cannot_be_used_is_reported_as_undecodable
1 readers wait for the first list
    test_kind_that_is_read_is_in_the_cache_but_enqueues_no_object
1 adding an index does not block
    test_index_added_too_late_is_rejected
3 defaults of options
    (a selection belongs to a class; there are no defaults to combine)
1 caches run without the lease
    test_standby_waits_with_synced_caches
4 types of untyped lists
    (a kind is a class; there are no untyped lists to find a type for)
"""

CONTROLLER = """
1 reconcile is called
    test_status_is_written_once_with_condition_and_generation
3 panics end the process or one reconcile
    test_hanging_cancelled_or_exiting_reconcile_does_not_affect_other_objects
1 a timeout
    test_hanging_cancelled_or_exiting_reconcile_does_not_affect_other_objects
4 the metric of timeouts
    test_every_timeout_of_the_engine_is_counted_and_no_other
1 a stop is not counted as a timeout
    test_reconcile_that_catches_its_cancellation_by_stop_writes_nothing
2 no timeout at all
    (every reconcile has a timeout, by default 120 s)
4 errors and timeouts of the first lists
    (a kind that cannot be listed is reported in /readyz and retried for ever)
1 a stop during the first lists is no error
    test_watch_that_ends_with_the_manager_is_not_silent
1 no reconcile before the first lists
    test_kind_that_is_read_is_in_the_cache_but_enqueues_no_object
1 events from a channel
    test_stream_enqueues_by_index
1 a channel is missing
    (a Stream is an argument that type checkers require)
1 sources get handler, queue and predicates
    test_other_kind_enqueues_exactly_the_objects_that_depend_on_it
1 errors of sources at the start
    (a source only connects to a signal)
1 a second start
    (the manager creates an engine and starts it once)
1 types of custom sources
    (there are no custom sources; a Stream stands for them)
10 sources are started once, concurrently and in order
    (a source only connects to a signal)
1 a queued key is reconciled
    test_key_can_be_enqueued_from_outside_a_reconcile
2 an error is retried, and others go on
    test_reconcile_that_raises_is_retried_with_back_off_and_recovers
1 a terminal error is not retried
    test_terminal_clears_the_status_and_waits_for_a_change
1 back-off is not reset before a success
    test_back_off_grows_until_a_reconcile_succeeds
1 a requeue with rate limit
    test_retry_without_a_delay_has_back_off
1 a requeue after a delay
    test_timer_and_done_run_the_object_again
3 the next run keeps the priority
    test_next_run_keeps_the_priority
3 the result chooses the priority
    (the priority follows from the cause of a run)
1 an error wins over a delay
    (a reconcile returns or raises, never both)
3 pending specifications without code
    (they are empty in controller-runtime)
4 the metric of reconciles by result
    test_waiting_is_not_ready_without_an_event_and_runs_again_after_its_delay
1 the metric of reconcile times
    test_buckets_of_reconciles
20 warmup
    (a standby always has its watches and caches running; there is no warmup to turn on)
2 an ID of the reconcile in its context
    test_lines_of_a_reconcile_name_its_object
1 a name is required
    (the kind in lower case is the default)
1 a reconciler is required
    test_mistake_is_found
3 names are unique
    test_names_of_controllers_are_unique
2 names need not be unique
    (metrics and field managers would be mixed)
2 goroutines
    (no threads or goroutines to leak: tasks end with their task group)
2 rate limit and queue can be chosen
    test_back_off_is_that_of_the_controller
2 recovery of panics can be chosen
    (an exception ends one reconcile, always)
5 whether a controller needs the lease
    (all controllers do; a runnable may not)
3 the number of concurrent reconciles
    test_slow_status_writes_do_not_start_more_workers
3 the timeout of the first lists
    (a kind that cannot be listed is reported in /readyz and retried for ever)
2 the priority queue can be switched off
    (there is one kind of queue)
2 warmup can be switched on
    (a standby always has its watches and caches running; there is no warmup to turn on)
2 the timeout comes from the manager
    (it is an attribute of the controller)
2 a controller end to end, with owned objects
    test_child_goes_with_its_owner
"""

MANAGER = """
1 a configuration is required
    (a Manager cannot be created without a Connection)
4 errors of constructors of parts
    (the parts of a manager are not replaceable by constructors)
1 a client by constructor
    (the parts of a manager are not replaceable by constructors)
4 the webhook server
    (it runs if a webhook was added)
1 the lease is released last
    test_released_lease_can_be_taken_at_once
1 no grace period without the lease
    test_lease_that_cannot_be_renewed_is_lost
1 a standby that stops does not lead
    test_standby_waits_with_synced_caches
1 the deadline of renewals
    test_first_candidate_leads_for_ten_seconds_from_sending
4 name, namespace and type of the lock
    (the lock is a Lease with the name of the manager)
1 the lease is released at the end
    test_sigterm_hands_over_within_3_seconds
1 labels of the lease
    (the Lease has no labels)
1 a lock of another kind
    (the lock is a Lease)
2 leader election that cannot work
    test_lease_that_cannot_be_renewed_is_lost
2 a metrics server, also with TLS
    test_secure_metrics_require_an_authorized_token
1 a cache that refuses kinds that are not declared
    test_kind_that_is_not_declared_cannot_be_read_after_the_start
3 an address that is in use
    test_address_in_use_is_an_error_with_advice
1 a listener for health probes
    test_failed_check_fails_its_endpoint_only
1 every component is started
    test_runnable_of_the_leader_runs_in_one_process_only
1 the configuration is not changed
    (Connection and Options are frozen)
1 a stop by the caller
    test_runnable_of_the_leader_runs_without_leader_election
2 the cache starts first, and its errors
    test_kind_that_is_read_is_in_the_cache_but_enqueues_no_object
1 several clusters
    (a manager has one cluster)
2 errors of components end the manager
    test_runnable_of_the_leader_that_fails_ends_the_manager
1 caches that are added later
    (components are added before run(); adding later is an error)
2 runnables are waited for
    test_runnable_of_the_leader_runs_in_one_process_only
1 a runnable that is added during the stop
    (components are added before run(); adding later is an error)
1 a cancelled runnable is no error
    test_runnable_of_the_leader_runs_without_leader_election
1 the logger of controllers
    test_lines_of_a_reconcile_name_its_object
3 errors of runnables and of the stop
    test_runnable_of_the_leader_that_fails_ends_the_manager
2 no or an endless grace period
    (the grace period is finite: kubelet ends the process anyway)
1 the metrics server ends
    test_stop_waits_for_a_response_in_progress
3 /metrics, its registry, and nothing else
    test_metrics_are_served_on_their_path_only
1 more endpoints of the metrics server
    (other endpoints belong to a server of their own)
1 the probes end
    test_stop_works_before_start_and_twice
2 /readyz and /healthz with checks of users
    test_health_checks_of_users_are_served
2 pprof
    (Python has no pprof; -log-level and metrics serve)
2 components that are added to a running manager
    (components are added before run(); adding later is an error)
1 a second start
    (a manager is built again in the same process instead)
4 goroutines
    (no threads or goroutines to leak: tasks end with their task group)
7 access to config, client, scheme, indexes, recorder and reader
    (plain attributes)
6 warmup
    (a standby always has its watches and caches running; there is no warmup to turn on)
5 groups of runnables
    test_runnable_of_the_leader_runs_in_one_process_only
4 runnables that are added while a group starts or stops
    (components are added before run(); adding later is an error)
2 readiness of runnables
    (a runnable has no readiness of its own; add a readyz check)
"""
