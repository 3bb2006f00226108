//! When they are called: before main and after it, in threads that work together or die, in forked children.

use ample_conformance::cases;

cases!(
    lifecycle,
    "lifecycle.c",
    Preloaded,
    libraries["lifecycle_library.c"],
    [
        blocks_from_before_all_constructors_live_on,
        blocks_from_constructors_live_on,
        constructors_of_an_opened_library_allocate,
        atexit_handlers_allocate,
        destructors_of_the_program_allocate,
        exit_while_other_threads_allocate,
        thread_specific_destructors_allocate_in_every_round,
        the_first_call_of_a_thread_comes_from_its_destructor,
    ]
);

cases!(
    lifecycle_cxx,
    "lifecycle_cxx.cc",
    [static_objects_live_on, thread_local_destructors_allocate, static_destructors_allocate,]
);

cases!(
    threads,
    "threads.c",
    [
        blocks_of_an_ended_thread_are_freed_by_another,
        a_thread_frees_what_another_allocates,
        five_hundred_threads_live_at_once,
        a_thread_with_a_block_costs_five_pages,
        a_first_malloc_needs_little_stack,
        five_thousand_short_threads_leave_nothing_behind,
        a_random_mixture_keeps_every_block_whole,
        stacks_are_given_up_while_memory_waits_to_come_back,
        threads_that_never_ask_for_memory_end,
    ]
);

cases!(lines, "lines.c", [blocks_of_two_threads_that_hand_some_over_share_no_line]);

cases!(
    fork,
    "fork.c",
    [
        fork_while_other_threads_allocate,
        fork_from_several_threads_at_once,
        a_child_forks_again,
        fork_handlers_allocate,
        fork_while_other_threads_read_and_flush_streams,
        posix_spawn_while_other_threads_allocate,
        a_signal_handler_forks,
        vfork_while_other_threads_allocate,
    ]
);

cases!(
    loading,
    "loading.c",
    ByProgram,
    libraries [],
    [
        it_opens_with_all_symbols_bound,
        its_other_names_lead_to_itself,
        it_opens_lazily_and_globally,
        threads_older_than_it_use_it,
        closing_it_harms_no_thread,
        it_opens_bound_to_itself_first,
        it_serves_although_no_key_is_left,
    ]
);

cases!(
    helper,
    "helper.c",
    [
        it_is_started_although_the_program_was_alone_before,
        it_ends_when_the_program_is_alone_again,
        it_is_gone_when_a_program_forks_that_is_alone_again,
        it_runs_where_the_program_may_whoever_starts_it,
        there_is_none_after_a_thread_that_has_ended,
        a_process_ends_with_its_last_thread,
    ]
);

cases!(
    purging,
    "purging.c",
    [
        a_program_of_one_thread_stays_one,
        a_small_program_has_no_huge_pages,
        blocks_that_nobody_touches_are_not_in_memory,
        free_memory_comes_back_by_itself,
        free_memory_comes_back_where_only_one_thread_allocates,
        most_of_what_one_thread_freed_comes_back_at_once,
        nearly_all_of_what_one_thread_freed_comes_back_at_once,
        what_is_free_goes_back_before_a_fork,
        pages_between_live_blocks_come_back_by_themselves,
        what_was_given_back_is_marked_for_huge_pages_no_more,
        pages_between_live_blocks_come_back_together_although_some_were_locked
    ]
);

cases!(linked, "linked.c", Linked, [one_library_serves_it, threads_and_forks_work]);

cases!(linked_and_preloaded, "linked.c", LinkedAndPreloaded, [one_library_serves_it, threads_and_forks_work]);
